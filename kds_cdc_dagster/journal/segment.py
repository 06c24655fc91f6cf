"""Segments: the immutable Parquet object that makes one round durable.

Accepted, rejected and parked deliveries ride whole in one object, marked; counts of every outcome ride
in the file's metadata. An END is an object of the same key that holds no Parquet: it says that this slot
will never hold a segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from kds_cdc_dagster.errors import InvariantBroken
from kds_cdc_dagster.journal import keys, parquet
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.ports import ObjectStore

END = b"END\n"
_COUNTS = b"kds.counts"

SCHEMA = pa.schema(
    [
        ("outcome", pa.string()),  # accepted | rejected | parked
        ("reason", pa.string()),  # reason code of a rejection, hold of a parked one, else ""
        ("detail", pa.string()),
        ("flag", pa.string()),  # core.change.Flag on an accepted one, else ""
        ("source", pa.string()),
        ("entity", pa.string()),
        ("database", pa.string()),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("op", pa.string()),
        ("primary_key", pa.string()),
        ("stream", pa.string()),
        ("account", pa.string()),
        ("store", pa.string()),
        ("tenant", pa.string()),
        ("company", pa.string()),
        ("stream_order", pa.string()),  # epoch + stream position; "" for snapshot reads
        ("row_order", pa.string()),
        ("row_position", pa.string()),
        ("identity", pa.string()),
        ("content_hash", pa.string()),
        ("lineage", pa.string()),
        ("occurred_at_ms", pa.int64()),
        ("group_id", pa.string()),
        ("sequence_number", pa.string()),
        ("message_id", pa.string()),
        ("sent_at_ms", pa.int64()),
        ("received_at_ms", pa.int64()),
        ("receive_count", pa.int32()),
        ("body", pa.binary()),
    ]
)
"""One row per delivery, in the order of the round. `body` is as received."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment as read back: its rows and the counts of its round."""

    id: SegmentId
    rows: pa.Table
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counts of every outcome since the log's last segment (`intake.counts`)."""
    size_bytes: int = 0


def encode(columns: Mapping[str, Sequence[object]], counts: Mapping[str, int]) -> bytes:
    """Bytes of a segment: deterministic for the same input, so that a retried put can be recognised."""
    table = pa.table([_array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)
    table = table.replace_schema_metadata({_COUNTS: msgspec.json.encode(dict(counts), order="deterministic")})
    return parquet.written(table, _REPEATING)


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """The values as a column: of one value again and again, as a third of the columns are, in a step."""
    if values and values[0] == values[-1] and values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], kind), len(values))
    return pa.array(values, kind)


UNIQUE = {
    "body",
    "identity",
    "content_hash",
    "sequence_number",
    "message_id",
    "primary_key",
    "row_order",
    "row_position",
    "stream_order",
}
"""Columns that say nearly always something new: a dictionary of them would be made and thrown away."""
_REPEATING = [name for name in SCHEMA.names if name not in UNIQUE]


def decode(id_: SegmentId, body: bytes, *, dictionaries: Sequence[str] = ()) -> Segment | None:
    """The segment, or None if the object is an END. `dictionaries`: columns to read as Arrow dictionaries."""
    if body == END:
        return None
    table = parquet.read(body, dictionaries)
    if table.schema.names != SCHEMA.names:
        raise InvariantBroken("a segment has other columns than this version writes", segment=id_)
    metadata = table.schema.metadata or {}
    counts = msgspec.json.decode(metadata.get(_COUNTS, b"{}"), type=dict[str, int])
    return Segment(id_, table, counts, len(body))


def read(store: ObjectStore, id_: SegmentId, *, dictionaries: Sequence[str] = ()) -> Segment | None:
    """Read a segment (see `decode`); None for an END. Raises ObjectMissing."""
    return decode(id_, store.get(keys.segment(id_)), dictionaries=dictionaries)
