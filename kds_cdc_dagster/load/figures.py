"""Figures of the warehouse for status, checks and metadata."""

from __future__ import annotations

from typing import Any

import msgspec

from kds_cdc_dagster.load.layout import Layout, Schemas, listed
from kds_cdc_dagster.ports import Warehouse


class CuratedFigures(msgspec.Struct, frozen=True):
    """State of one target."""

    live: int
    tombstones: int
    incomplete: int
    """Live rows with a column that no change has shown yet."""
    keys_twice: int
    """Must be 0: no warehouse here enforces keys."""
    watermark: int
    batches: int
    last_loaded_at: Any
    """Time of the newest merge; None before the first."""


class QuarantineCount(msgspec.Struct, frozen=True):
    """Quarantined deliveries of one kind."""

    outcome: str
    reason: str
    source: str
    rows: int


def quarantine_counts(warehouse: Warehouse, schemas: Schemas) -> list[QuarantineCount]:
    """Open quarantine by outcome, reason and source, most first."""
    found = warehouse.run(
        lambda tx: tx.rows(
            f"SELECT outcome, reason, source, COUNT(*) FROM {schemas.op('quarantine')} WHERE status = 'open' "
            "GROUP BY outcome, reason, source ORDER BY 4 DESC, 1, 2, 3"
        )
    )
    return [QuarantineCount(outcome, reason, source or "", rows) for outcome, reason, source, rows in found]


def curated_figures(warehouse: Warehouse, layout: Layout) -> CuratedFigures:
    """Counts of one target, and whether its key is unique."""
    key = listed(layout.key)
    rows = (
        "SELECT COALESCE(SUM(CASE WHEN _is_deleted THEN 0 ELSE 1 END), 0), "
        "COALESCE(SUM(CASE WHEN _is_deleted THEN 1 ELSE 0 END), 0), "
        f"COALESCE(SUM(CASE WHEN NOT _is_deleted AND _missing <> '' THEN 1 ELSE 0 END), 0) FROM {layout.rows}"
    )
    twice = f"SELECT COUNT(*) FROM (SELECT {key} FROM {layout.rows} GROUP BY {key} HAVING COUNT(*) > 1) t"
    merges = (
        f"SELECT COALESCE(MAX(sequence), 0), COUNT(DISTINCT batch_id), MAX(applied_at) "
        f"FROM {layout.schemas.op('load_ledger')} WHERE schema_name = ? AND target = ?"
    )
    counts, (keys_twice,), ledger = warehouse.run(
        lambda tx: (tx.rows(rows)[0], tx.rows(twice)[0], tx.rows(merges, layout.scope)[0])
    )
    live, tombstones, incomplete = (int(count) for count in counts)
    return CuratedFigures(live, tombstones, incomplete, int(keys_twice), *ledger)


def control_totals(warehouse: Warehouse, layout: Layout) -> dict[str, str]:
    """Live rows, tombstones, and the sum of each decimal column over live rows, as text."""
    decimals = [column.name for column in layout.entity.columns if column.type.startswith("decimal")]
    sums = "".join(f", SUM(CASE WHEN _is_deleted THEN NULL ELSE {name} END)" for name in decimals)
    query = (
        "SELECT COALESCE(SUM(CASE WHEN _is_deleted THEN 0 ELSE 1 END), 0), "
        f"COALESCE(SUM(CASE WHEN _is_deleted THEN 1 ELSE 0 END), 0){sums} FROM {layout.rows}"
    )
    ((*found,),) = warehouse.run(lambda tx: tx.rows(query))
    names = ["rows", "tombstones", *(f"sum_{name}" for name in decimals)]
    return {name: str(value) for name, value in zip(names, found, strict=True) if value is not None}
