"""Truncates: everything of a source's table at or below one's row order is gone, whenever it arrives."""

from __future__ import annotations

from kds_cdc_dagster.load import ledger
from kds_cdc_dagster.load.layout import Layout
from kds_cdc_dagster.ports import Transaction


def apply(tx: Transaction, layout: Layout, batch: str, sequence: int) -> int:
    """Remember the batch's truncates and remove rows at or below them; returns how many rows."""
    parts = " UNION ALL ".join(
        f"SELECT _source, _relation, _row_order FROM {layout.schemas.staging}.{name} WHERE _batch_id = ? AND _op = 't'"
        for name in layout.target.from_
    )
    found = tx.rows(
        f"SELECT _source, _relation, MAX(_row_order) FROM ({parts}) t GROUP BY _source, _relation",
        [batch] * len(layout.target.from_),
    )
    return sum(apply_one(tx, layout, truncate, sequence) for truncate in found)


def apply_one(tx: Transaction, layout: Layout, truncate: tuple[str, str, str], sequence: int) -> int:
    """Remember one truncate (source, relation, row order) and remove rows at or below it; returns how many."""
    relation, order = truncate[:2], truncate[2]
    table = layout.schemas.op("truncates")
    where = "schema_name = ? AND target = ? AND _source = ? AND _relation = ?"
    scope = (*layout.scope, *relation)
    tx.execute(f"DELETE FROM {table} WHERE {where} AND _row_order < ?", (*scope, order))
    if not tx.rows(f"SELECT 1 FROM {table} WHERE {where}", scope):
        tx.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?)", (*scope, order))
    gone = "_source = ? AND _relation = ? AND _row_order <= ?"
    values = (*relation, order)
    tenants = tx.rows(f"SELECT DISTINCT COALESCE(_tenant, '') FROM {layout.rows} WHERE {gone}", values)
    ((count,),) = tx.rows(f"SELECT COUNT(*) FROM {layout.rows} WHERE {gone}", values)
    ledger.note_tenants(tx, layout, [tenant for (tenant,) in tenants], sequence)
    for name in (layout.rows, layout.past):
        tx.execute(f"DELETE FROM {name} WHERE {gone}", values)
    return int(count)
