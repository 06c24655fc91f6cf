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
from kds_cdc_dagster.load import ledger, moves, newest, newest_rows, truncates
from kds_cdc_dagster.load.counts import Counts, Sent
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
    known = ledger.known(tx, layout, batch)
    if known.checksum is None:
        raise InvariantBroken("nothing is staged for this merge", batch=batch, target=layout.target.name)
    merged = known.merged.get((known.checksum, code_version))
    if merged is not None:
        return MergeReport(layout.target.name, batch, known.checksum, merged, is_repeat=True)
    report = MergeReport(layout.target.name, batch, known.checksum, known.last_sequence + 1)
    if known.is_replay:
        report = _fold_all(tx, layout, report, now(), is_replay=True)
    else:
        report = _merge_new(tx, layout, report, now(), known)
    report = _timed(report, started_at, now())
    ledger.record(tx, layout, report, code_version=code_version, applied_at=datetime.fromtimestamp(now(), UTC))
    return report


def _merge_new(
    tx: Transaction, layout: Layout, report: MergeReport, loaded_at: float, known: ledger.Known
) -> MergeReport:
    """Merge a batch that the target has never seen: usual keys straight from staging, the others by their evidence."""
    batch = report.batch
    found = newest.look(tx, layout, batch, is_barred=known.has_truncates)
    if found.count(newest.Kind.TRUNCATE):
        tx.execute(f"DROP TABLE {newest.NEWEST}")
        report = _truncated(tx, layout, report)
        found = newest.look(tx, layout, batch, is_barred=True)
    is_linked = found.has_halves or (known.has_moves and moves.is_touched(tx, layout, batch))
    if is_linked or (found.has_many and newest.has_twins(tx, layout, batch)):
        report = _fold_all(tx, layout, report, loaded_at, is_replay=False)
    else:
        report = _told(report, _merge_keys(tx, layout, report, loaded_at, found))
    tx.execute(f"DROP TABLE {newest.NEWEST}")
    return report


def _merge_keys(tx: Transaction, layout: Layout, report: MergeReport, loaded_at: float, found: newest.Found) -> Counts:
    """Each key by itself: no key change links them, and no change is there twice."""
    counts = found.written
    if counts.applied:
        ledger.note_tenants(tx, layout, newest.tenants(found), report.sequence)
        newest_rows.write(tx, layout, report.batch, found, loaded_at=datetime.fromtimestamp(loaded_at, UTC))
    if found.count(newest.Kind.FOLDED):
        collect_changes(tx, layout, report.batch, newest.is_folded(layout))
        counts += _fold(tx, layout, report, loaded_at, is_replay=False)
    return counts


def _fold_all(
    tx: Transaction, layout: Layout, report: MergeReport, loaded_at: float, *, is_replay: bool
) -> MergeReport:
    """Merge all keys of the batch by their evidence."""
    report = _truncated(tx, layout, report)
    collect_changes(tx, layout, report.batch)
    moves.resolve(tx, layout)
    return apply_evidence(tx, layout, report, loaded_at, is_replay=is_replay)


def _truncated(tx: Transaction, layout: Layout, report: MergeReport) -> MergeReport:
    removed = truncates.apply(tx, layout, report.batch, report.sequence)
    return msgspec.structs.replace(report, truncated=report.truncated + removed)


def apply_evidence(
    tx: Transaction, layout: Layout, report: MergeReport, loaded_at: float, *, is_replay: bool
) -> MergeReport:
    """Fold the evidence of `report.batch` with the stored rows and write what changes; returns the counts."""
    return _told(report, _fold(tx, layout, report, loaded_at, is_replay=is_replay))


def _fold(tx: Transaction, layout: Layout, report: MergeReport, loaded_at: float, *, is_replay: bool) -> Counts:
    collect_stored(tx, layout)
    fold(tx, layout, partial_columns(tx, layout), is_replay=is_replay)
    _note_tenants(tx, layout, report.sequence)
    _replace(tx, layout, report.batch, loaded_at)
    return _counted(tx)


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


def _counted(tx: Transaction) -> Counts:
    ((changes,),) = tx.rows(f"SELECT COUNT(*) FROM {EVIDENCE} WHERE _n < {FIRST_ADDED}")
    ((keys,),) = tx.rows(f"SELECT COUNT(*) FROM {CHOICE}")
    ((applied, deleted, *sent),) = tx.rows(
        "SELECT COUNT(*), SUM(CASE WHEN _is_deleted THEN 1 ELSE 0 END), MIN(EXTRACT(EPOCH FROM _sent_at)), "
        f"SUM(EXTRACT(EPOCH FROM _sent_at)), COUNT(_sent_at) FROM {WORK}"
    )
    for table in (EVIDENCE, CHOICE, WORK, _TENANTS):
        tx.execute(f"DROP TABLE {table}")
    return Counts(int(changes), int(keys), int(applied), int(deleted or 0), Sent.of(*sent))


def _told(report: MergeReport, counts: Counts) -> MergeReport:
    """The report with the counts, and the times of sending in place of lags."""
    return msgspec.structs.replace(
        report,
        changes=counts.changes,
        applied=counts.applied,
        stale=counts.keys - counts.applied,
        deleted=counts.deleted,
        lag_max_seconds=counts.sent.first,
        lag_avg_seconds=counts.sent.average,
    )


def _timed(report: MergeReport, started_at: float, ended_at: float) -> MergeReport:
    """Turn the times of sending into lags."""
    lags = (report.lag_max_seconds, report.lag_avg_seconds)
    longest, average = (None if sent is None else ended_at - sent for sent in lags)
    return msgspec.structs.replace(
        report, duration_seconds=ended_at - started_at, lag_max_seconds=longest, lag_avg_seconds=average
    )
