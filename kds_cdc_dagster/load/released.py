"""Parked deliveries that were released: their quarantine rows are closed, and keep no segment from being pruned."""

from __future__ import annotations

from collections import defaultdict

from kds_cdc_dagster.journal import parked
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.load.layout import Schemas
from kds_cdc_dagster.ports import ObjectStore, Transaction, Warehouse

SEGMENTS_MAX = 500
"""Named by one statement."""

_Parked = dict[tuple[str, str], list[str]]
"""(source, stream) -> segments."""


def close_released(warehouse: Warehouse, store: ObjectStore, schemas: Schemas) -> None:
    """Close the open rows of parked deliveries that nothing points at any more. Repeatable.

    A pointer is there before a batch that has the delivery, and goes only with a release (`journal.parked`). One
    look into the store for each segment with such rows. Raises WarehouseBusy.
    """
    table = schemas.op("quarantine")
    query = f"SELECT DISTINCT source, stream, segment FROM {table} WHERE outcome = 'parked' AND status = 'open'"
    released: _Parked = defaultdict(list)
    for source, stream, name in warehouse.run(lambda tx: tx.rows(query)):
        if not parked.is_pointed_at(store, source, stream, SegmentId.parse(name)):
            released[source, stream].append(name)
    if released:
        warehouse.run(lambda tx: _close(tx, table, released), lock=table)


def _close(tx: Transaction, table: str, released: _Parked) -> None:
    for stream, names in released.items():
        for at in range(0, len(names), SEGMENTS_MAX):
            part = names[at : at + SEGMENTS_MAX]
            tx.execute(
                f"UPDATE {table} SET status = 'released' WHERE outcome = 'parked' AND status = 'open' "
                f"AND source = ? AND stream = ? AND segment IN ({', '.join('?' for _ in part)})",
                (*stream, *part),
            )
