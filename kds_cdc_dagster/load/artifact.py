"""Load artifacts: Arrow rows as a Parquet object that every warehouse can COPY, and its manifest.

Physical types are those that COPY FORMAT PARQUET takes everywhere: time, json and uuid as text,
binary as hex text, an instant as a UTC timestamp without zone (Redshift drops zones, and reads
neither TIME nor VARBYTE from Parquet; facts: Redshift guide, "COPY from columnar data formats").
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from kds_cdc_dagster.errors import ObjectExists
from kds_cdc_dagster.load.layout import Columns
from kds_cdc_dagster.ports import LoadArtifact, ObjectStore


def put_artifact(store: ObjectStore, prefix: str, rows: pa.Table, columns: Columns) -> LoadArtifact:
    """Write `rows` (every column of `columns`, in its order) under `prefix`, named by its own checksum."""
    landing = pa.table([_landing(rows[name]) for name, _ in columns], names=[name for name, _ in columns])
    sink = pa.BufferOutputStream()
    pq.write_table(landing, sink, compression="zstd", compression_level=1, write_statistics=False)
    body = bytes(sink.getvalue())
    checksum = sha256(body).hexdigest()
    key = f"{prefix}{checksum}.parquet"
    entry = {"url": store.uri(key), "mandatory": True, "meta": {"content_length": len(body)}}
    artifact = LoadArtifact(key, f"{prefix}{checksum}.manifest", checksum, rows.num_rows, len(body))
    for name, content in ((key, body), (artifact.manifest_key, msgspec.json.encode({"entries": [entry]}))):
        # Content-addressed: an object of that name is this very object.
        with suppress(ObjectExists):
            store.create(name, content)
    return artifact


def _landing(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_time(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz)).cast(pa.timestamp("us"))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        texts = [None if value is None else value.hex() for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type)
    return column
