"""Merge: a batch's staged changes become the current rows of a target, in one short transaction.

Newer row order wins, deletes included; a deleted row stays as a tombstone with its last known values.
Repeating a merge, also side by side with itself or in another order of batches, changes nothing: the load
ledger knows (batch, target, checksum, code version), and the fold knows what is newer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from kds_cdc_dagster.errors import InvariantBroken
from kds_cdc_dagster.load import ledger, moves, truncates
from kds_cdc_dagster.load.evidence import EVIDENCE, FIRST_ADDED, collect_changes, collect_stored, partial_columns
from kds_cdc_dagster.load.fold import CHOICE, FOLDED, WORK, fold
from kds_cdc_dagster.load.layout import Layout, listed, same
from kds_cdc_dagster.ports import Transaction, Warehouse

_TENANTS = "kds_tenants"


class MergeReport(msgspec.Struct, frozen=True):
    """What a merge did with one batch and target."""

    target: str
    batch: str
    checksum: str
    sequence: int
    """Rises by one with every merge of the target: the watermark of exports."""
    changes: int = 0
    applied: int = 0
    """Keys whose row was written."""
    stale: int = 0
    """Keys for which the target knew everything, or newer, already."""
    deleted: int = 0
    """Rows written as tombstones."""
    truncated: int = 0
    """Rows removed by truncates."""
    duration_seconds: float = 0.0
    lag_max_seconds: float | None = None
    """Sent by the publisher → curated, over the rows written."""
    lag_avg_seconds: float | None = None
    is_repeat: bool = False
    """The ledger had this merge already: nothing was done."""


def merge(
    warehouse: Warehouse,
    layout: Layout,
    batch: str,
    *,
    code_version: str,
    now: Callable[[], float] = time.time,
) -> MergeReport:
    """Merge what is staged of `batch` into the target.

    Raises InvariantBroken if none of the target's entities is staged, WarehouseBusy, LoadRefused.
    """
    return warehouse.run(lambda tx: _merge(tx, layout, batch, code_version, now), lock=layout.lock)


def _merge(tx: Transaction, layout: Layout, batch: str, code_version: str, now: Callable[[], float]) -> MergeReport:
    started_at = now()
    checksum = ledger.staged(tx, layout, batch)
    if checksum is None:
        raise InvariantBroken("nothing is staged for this merge", batch=batch, target=layout.target.name)
    known = ledger.sequence_of(tx, layout, batch, checksum, code_version)
    if known is not None:
        return MergeReport(layout.target.name, batch, checksum, known, is_repeat=True)
    sequence = ledger.last_sequence(tx, layout) + 1
    truncated = truncates.apply(tx, layout, batch, sequence)
    collect_changes(tx, layout, batch)
    moves.resolve(tx, layout)
    is_replay = ledger.has_batch(tx, layout, batch)
    report = MergeReport(layout.target.name, batch, checksum, sequence, truncated=truncated)
    report = _timed(apply_evidence(tx, layout, report, now(), is_replay=is_replay), started_at, now())
    ledger.record(tx, layout, report, code_version=code_version, applied_at=datetime.fromtimestamp(now(), UTC))
    return report


def apply_evidence(
    tx: Transaction, layout: Layout, report: MergeReport, loaded_at: float, *, is_replay: bool
) -> MergeReport:
    """Fold the evidence of `report.batch` with the stored rows and write what changes; returns the counts."""
    collect_stored(tx, layout)
    fold(tx, layout, partial_columns(tx, layout), is_replay=is_replay)
    _note_tenants(tx, layout, report.sequence)
    _replace(tx, layout, report.batch, loaded_at)
    return _report(tx, report)


def _note_tenants(tx: Transaction, layout: Layout, sequence: int) -> None:
    """Whose rows change: owners of the new rows, and of the rows they replace."""
    tx.execute(f"DROP TABLE IF EXISTS {_TENANTS}")
    tx.execute(
        f"CREATE TEMP TABLE {_TENANTS} AS SELECT COALESCE(_tenant, '') AS tenant FROM {WORK} UNION "
        f"SELECT COALESCE(r._tenant, '') AS tenant FROM {layout.rows} r JOIN {WORK} w ON {same(layout.key, 'w', 'r')}"
    )
    ledger.note_tenants(tx, layout, f"SELECT tenant FROM {_TENANTS}", sequence)


def _replace(tx: Transaction, layout: Layout, batch: str, loaded_at: float) -> None:
    """Delete before insert: the first touch of the table takes its exclusive lock."""
    moves.keep_past(tx, layout)
    name = layout.rows
    bare = name.rpartition(".")[2]
    tx.execute(f"DELETE FROM {name} USING {WORK} WHERE {same(layout.key, bare, WORK)}")
    columns = listed([*layout.key, *layout.values, *FOLDED])
    tx.execute(
        f"INSERT INTO {name} ({columns}, _loaded_at, _batch_id) SELECT {columns}, ?, ? FROM {WORK}",
        (datetime.fromtimestamp(loaded_at, UTC), batch),
    )


def _report(tx: Transaction, report: MergeReport) -> MergeReport:
    ((changes,),) = tx.rows(f"SELECT COUNT(*) FROM {EVIDENCE} WHERE _n < {FIRST_ADDED}")
    ((keys,),) = tx.rows(f"SELECT COUNT(*) FROM {CHOICE}")
    ((applied, deleted, first, average),) = tx.rows(
        "SELECT COUNT(*), SUM(CASE WHEN _is_deleted THEN 1 ELSE 0 END), "
        f"MIN(EXTRACT(EPOCH FROM _sent_at)), AVG(EXTRACT(EPOCH FROM _sent_at)) FROM {WORK}"
    )
    for table in (EVIDENCE, CHOICE, WORK, _TENANTS):
        tx.execute(f"DROP TABLE {table}")
    return msgspec.structs.replace(
        report,
        changes=changes,
        applied=applied,
        stale=keys - applied,
        deleted=int(deleted or 0),
        lag_max_seconds=None if first is None else float(first),
        lag_avg_seconds=None if average is None else float(average),
    )


def _timed(report: MergeReport, started_at: float, ended_at: float) -> MergeReport:
    """Turn the times of sending into lags."""
    lags = (report.lag_max_seconds, report.lag_avg_seconds)
    longest, average = (None if sent is None else ended_at - sent for sent in lags)
    return msgspec.structs.replace(
        report, duration_seconds=ended_at - started_at, lag_max_seconds=longest, lag_avg_seconds=average
    )
