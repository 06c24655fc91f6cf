"""Load artifacts: Arrow rows as a Parquet object that every warehouse can COPY.

Physical types are those that COPY FORMAT PARQUET takes everywhere: time, json and uuid as text,
binary as hex text, an instant as a UTC timestamp without zone (Redshift drops zones, and reads
neither TIME nor VARBYTE from Parquet; facts: Redshift guide, "COPY from columnar data formats").
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256

import pyarrow as pa

from kds_cdc_dagster.errors import ObjectExists
from kds_cdc_dagster.journal import parquet
from kds_cdc_dagster.load.layout import Columns
from kds_cdc_dagster.ports import LoadArtifact, ObjectStore

_REPEATING = ["_source", "_relation", "_op", "_company", "_tenant", "_missing", "_extra"]


def put_artifact(store: ObjectStore, prefix: str, rows: pa.Table, columns: Columns) -> LoadArtifact:
    """Write `rows` (every column of `columns`, in its order) under `prefix`, named by its own checksum."""
    landing = pa.table([_landing(rows[name]) for name, _ in columns], names=[name for name, _ in columns])
    body = parquet.written(landing, _REPEATING)
    checksum = sha256(body).hexdigest()
    key = f"{prefix}{checksum}.parquet"
    # Content-addressed: an object of that name is this very object.
    with suppress(ObjectExists):
        store.create(key, body)
    return LoadArtifact(key, f"{prefix}{checksum}.manifest", checksum, rows.num_rows, len(body), landing)


def _landing(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_time(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        micros = column if kind.unit == "us" else column.cast(pa.timestamp("us", kind.tz))
        return pa.chunked_array([chunk.view(pa.timestamp("us")) for chunk in micros.chunks], pa.timestamp("us"))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        texts = [None if value is None else value.hex() for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type)
    return column
