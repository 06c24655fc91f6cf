"""What the gate loads: a source table's history as sealed batches, and the table's own rows as the oracle."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable

from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.ports import ObjectStore
from kds_cdc_dagster_tests.load.journaled import Record, record, sealed
from kds_cdc_dagster_tests.load.source import LARGE, Emitted, SourceTable, play

SEED, STEPS, BATCHES = 11, 36, 3
PLACEHOLDER = "__debezium_unavailable_value"


def history() -> SourceTable:
    """Inserts, updates with placeholders, deletes, reused and moved keys, truncates, snapshots."""
    return play(random.Random(SEED), STEPS)


def seal(store: ObjectStore, table: SourceTable) -> list[Manifest]:
    """The history in the journal of `store`, cut into batches."""
    size = -(-len(table.emitted) // BATCHES)
    return [
        sealed(store, list(_records(table.emitted[at : at + size])), first_slot=1 + at // size)
        for at in range(0, len(table.emitted), size)
    ]


def _records(changes: Iterable[Emitted]) -> Iterable[Record]:
    for change in changes:
        known = change.row()
        yield record(
            0,
            source=known["_source"],
            schema_name="kds",
            table_name="dish",
            op=change.op,
            tenant=known["_tenant"],
            company=known["_company"],
            row_order=change.order,
            row_position=change.position,
            identity=known["_identity"],
            content_hash=known["_content_hash"],
            body=json.dumps(_envelope(change)).encode(),
        )


def _envelope(change: Emitted) -> Record:
    row = {"dish_id": change.dish_id, **{name: change.values.get(name) for name in ("account_id", "title", *LARGE)}}
    row |= {name: PLACEHOLDER for name in change.missing if name in LARGE}
    image = None if change.op == "t" else row
    return {"op": change.op, **({"before": image} if change.op == "d" else {"before": None, "after": image})}
