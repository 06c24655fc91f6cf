"""Parquet, as segments, raw artifacts and load artifacts are written and read."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq


def written(rows: pa.Table, repeating: Sequence[str], *, has_arrow_schema: bool = True) -> bytes:
    """The rows as one object: the same bytes for the same rows.

    `repeating`: columns whose values repeat for sure get dictionaries; elsewhere zstd finds what does. No statistics:
    nobody asks. `has_arrow_schema`: False where rows hold dictionaries that are nobody else's business.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(
        *(rows, sink),
        compression="zstd",
        compression_level=1,
        use_dictionary=list(repeating),
        write_statistics=False,
        store_schema=has_arrow_schema,
    )
    return bytes(sink.getvalue())


def read(body: bytes, dictionaries: Sequence[str] = ()) -> pa.Table:
    """The rows of an object. `dictionaries`: columns to read as Arrow dictionaries.

    In one thread: `pq.read_table` takes half as long again, most of it to start its threads.
    """
    return pq.ParquetFile(pa.BufferReader(body), read_dictionary=list(dictionaries)).read(use_threads=False)
