"""A sealed batch's deliveries, read once from the journal however many entities are loaded from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kds_cdc_dagster.core.change import Outcome
from kds_cdc_dagster.errors import InvariantBroken
from kds_cdc_dagster.journal import segment
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.ports import ObjectStore

PLACE = pa.schema([("segment", pa.string()), ("segment_row", pa.int32())])
"""Where a delivery lies in the journal: the segment (claim/slot) and the row in it."""

SCHEMA = pa.schema([*segment.SCHEMA, *PLACE])
"""Columns of `Batch.rows` and of raw artifacts."""

DICTIONARIES = (
    *("outcome", "reason", "detail", "flag", "source", "entity", "database", "schema_name", "table_name"),
    *("stream", "account", "store", "tenant", "company", "lineage", "group_id"),
)
"""Columns whose few texts are kept once, as Arrow dictionaries: half the time to read, to move and to write them."""

_kept: dict[tuple[ObjectStore, str, int, int], pa.Table] = {}
"""Rows of the last batch that was read: a run asks for one batch for each of its entities in turn."""


@dataclass(frozen=True, slots=True)
class Batch:
    """All deliveries of a batch, in journal order (columns: `SCHEMA`; texts of `DICTIONARIES` as dictionaries)."""

    manifest: Manifest
    rows: pa.Table

    def accepted(self, entity: str) -> pa.Table:
        """The entity's changes."""
        return self.rows.take(self.places(entity))

    def places(self, entity: str) -> pa.Array:
        """Which of `rows` are the entity's changes, rising."""
        is_accepted = pc.equal(self.rows["outcome"], Outcome.ACCEPTED.value)
        return pc.indices_nonzero(pc.and_(is_accepted, pc.equal(self.rows["entity"], entity)))

    def set_aside(self) -> pa.Table:
        """Rejected and parked deliveries."""
        return self.rows.filter(pc.not_equal(self.rows["outcome"], Outcome.ACCEPTED.value))


def plain(rows: pa.Table) -> pa.Table:
    """These columns of a batch or a raw artifact, dictionaries as the texts that they stand for."""
    return rows.cast(pa.schema([SCHEMA.field(name) for name in rows.column_names]))


def read_batch(store: ObjectStore, manifest: Manifest) -> Batch:
    """Read the batch's segments. Raises InvariantBroken if they are not what was sealed, ObjectMissing."""
    rows = _rows(store, manifest)
    accepted = pc.sum(pc.equal(rows["outcome"], Outcome.ACCEPTED.value)).as_py() or 0
    if accepted != manifest.accepted:
        raise InvariantBroken(
            "a batch's segments hold another number of changes than were sealed",
            batch=manifest.batch,
            sealed=manifest.accepted,
            found=accepted,
        )
    return Batch(manifest, rows)


def _rows(store: ObjectStore, manifest: Manifest) -> pa.Table:
    """Immutable objects: what is kept cannot go stale. It goes before other rows come: memory holds one batch."""
    key = (store, manifest.claim, manifest.first_slot, manifest.last_slot)
    found = _kept.get(key)
    if found is None:
        _kept.clear()
        slots = range(manifest.first_slot, manifest.last_slot + 1)
        tables = [_placed(store, SegmentId(manifest.claim, slot)) for slot in slots]
        # Rows are taken for each entity in turn: from one chunk in half the time.
        found = _kept[key] = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    return found


def _placed(store: ObjectStore, id_: SegmentId) -> pa.Table:
    found = segment.read(store, id_, dictionaries=DICTIONARIES)
    if found is None:
        raise InvariantBroken("an END stands where a sealed batch has a segment", segment=id_)
    rows = found.rows.replace_schema_metadata(None)
    place = [pa.repeat(pa.scalar(str(id_)), rows.num_rows), pa.array(np.arange(rows.num_rows, dtype=np.int32))]
    return pa.Table.from_arrays([*rows.columns, *place], names=SCHEMA.names)
