"""Compare a replay with live, and swap it in while live traffic flows.

The swap is a merge: the replay's rows are evidence like any other (`load.evidence`), folded with the live rows
of the same keys in one transaction under the target's lock. So it only ever moves forward: a row that live
traffic has made newer since stays, equal versions take the replay's values, and everybody sees either the
rows before or those after.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from kds_cdc_dagster.load import ledger, truncates
from kds_cdc_dagster.load.evidence import EVIDENCE, evidence_columns
from kds_cdc_dagster.load.layout import Layout, listed, literal, same, staged_columns
from kds_cdc_dagster.load.merge import MergeReport, apply_evidence
from kds_cdc_dagster.ports import Transaction, Warehouse

SWAP = "swap"
"""First word of the ledger's batch id of a swap."""


class Comparison(msgspec.Struct, frozen=True):
    """How a replayed target differs from the live one, in keys."""

    target: str
    equal: int
    only_replayed: int
    only_live: int
    """Keys that the replay's range does not hold (or refuses now)."""
    live_newer: int
    replayed_newer: int
    different: int
    """Same version, other values: what a fixed decoder or catalogue changes."""
    columns: dict[str, int]
    """Column -> keys of the same version whose value differs."""

    @property
    def is_same(self) -> bool:
        """Nothing to swap in."""
        return not (self.only_replayed or self.replayed_newer or self.different)


def compare(warehouse: Warehouse, live: Layout, replayed: Layout) -> Comparison:
    """Compare all keys, in one transaction."""
    return warehouse.run(lambda tx: _compare(tx, live, replayed))


def _compare(tx: Transaction, live: Layout, replayed: Layout) -> Comparison:
    is_json_comparable = tx.dialect.column_type("json") != "SUPER"
    columns = [c.name for c in live.entity.columns if c.type != "json" or is_json_comparable]
    differ = {name: f"(l._row_order = r._row_order AND {_differ(name)})" for name in [*columns, "_is_deleted"]}
    sums = ", ".join(f"COALESCE(SUM(CASE WHEN {text} THEN 1 ELSE 0 END), 0)" for text in differ.values())
    joined = f"{live.rows} l JOIN {replayed.rows} r ON {same(live.key, 'l', 'r')}"
    ((both, live_newer, replayed_newer, different, *counts),) = tx.rows(
        "SELECT COUNT(*), COALESCE(SUM(CASE WHEN l._row_order > r._row_order THEN 1 ELSE 0 END), 0), "
        "COALESCE(SUM(CASE WHEN l._row_order < r._row_order THEN 1 ELSE 0 END), 0), "
        f"COALESCE(SUM(CASE WHEN {' OR '.join(differ.values())} THEN 1 ELSE 0 END), 0), {sums} FROM {joined}"
    )
    ((in_live,),) = tx.rows(f"SELECT COUNT(*) FROM {live.rows}")
    ((in_replay,),) = tx.rows(f"SELECT COUNT(*) FROM {replayed.rows}")
    return Comparison(
        target=live.target.name,
        equal=int(both - live_newer - replayed_newer - different),
        only_replayed=int(in_replay - both),
        only_live=int(in_live - both),
        live_newer=int(live_newer),
        replayed_newer=int(replayed_newer),
        different=int(different),
        columns={name: int(count) for name, count in zip(differ, counts, strict=True) if count},
    )


def _differ(name: str) -> str:
    left, right = (f"CASE WHEN {alias}.{name} IS NULL THEN 1 ELSE 0 END" for alias in "lr")
    return f"(l.{name} <> r.{name} OR {left} <> {right})"


def swap(
    warehouse: Warehouse,
    live: Layout,
    replayed: Layout,
    *,
    label: str,
    code_version: str,
    now: Callable[[], float] = time.time,
) -> MergeReport:
    """Bring the replay's rows into the live target, atomically and forward only. Repeatable.

    `label` names the swap in the ledger (batch id) and in `_batch_id` of the rows it wrote.
    Raises WarehouseBusy, LoadRefused.
    """
    report = warehouse.run(lambda tx: _swap(tx, live, replayed, label, code_version, now), lock=live.lock)
    for entity in live.target.from_:
        lock = f"{live.schemas.staging}.{entity}"
        warehouse.run(lambda tx, name=entity: _take_staging(tx, live, replayed, name), lock=lock)  # type: ignore[misc]
    return report


def _swap(
    tx: Transaction, live: Layout, replayed: Layout, label: str, code_version: str, now: Callable[[], float]
) -> MergeReport:
    started_at = now()
    sequence = ledger.last_sequence(tx, live) + 1
    truncated = sum(truncates.apply_one(tx, live, truncate, sequence) for truncate in _truncates(tx, replayed))
    report = MergeReport(live.target.name, f"{SWAP}-{label}", "", sequence, truncated=truncated)
    _collect(tx, live, replayed)
    report = apply_evidence(tx, live, report, started_at, is_replay=True)
    lags = {"lag_max_seconds": None, "lag_avg_seconds": None}  # old changes: their age is no lag of the pipeline
    report = msgspec.structs.replace(report, duration_seconds=now() - started_at, **lags)
    ledger.record(tx, live, report, code_version=code_version, applied_at=datetime.fromtimestamp(now(), UTC))
    return report


def _truncates(tx: Transaction, replayed: Layout) -> list[tuple[str, str, str]]:
    """What the replay knows of truncates; live may lack one, and with it what it removed."""
    table = replayed.schemas.op("truncates")
    query = f"SELECT _source, _relation, _row_order FROM {table} WHERE schema_name = ? AND target = ?"
    return [(str(a), str(b), str(c)) for a, b, c in tx.rows(query, replayed.scope)]


def _collect(tx: Transaction, live: Layout, replayed: Layout) -> None:
    """The replay's rows as evidence, without what a live truncate lies above."""
    schema, target = map(literal, live.scope)
    *columns, _, _, _ = evidence_columns(live)
    rows = (
        f"SELECT {listed(columns, 'r')}, 's' AS _op, 1 AS _from_batch, COALESCE(t._row_order, '') AS _barrier "
        f"FROM {replayed.rows} r LEFT JOIN {live.schemas.op('truncates')} t "
        f"ON {same(['_source', '_relation'], 't', 'r')} AND t.schema_name = {schema} AND t.target = {target} "
        "WHERE r._row_order > COALESCE(t._row_order, '')"
    )
    tx.execute(f"DROP TABLE IF EXISTS {EVIDENCE}")
    tx.execute(f"CREATE TEMP TABLE {EVIDENCE} AS SELECT ROW_NUMBER() OVER () AS _n, u.* FROM ({rows}) u")


def _take_staging(tx: Transaction, live: Layout, replayed: Layout, entity: str) -> int:
    """Let live staging hold the replay's typed rows of the batches it still has, so that checks compare with them.

    Only batches that were replayed whole: a replay of some streams leaves staging as it is.
    """
    mine, theirs = live.schemas.op("staged"), replayed.schemas.op("staged")
    whole = tx.rows(
        f"SELECT r.batch_id, r.checksum, r.rows_staged, r.rows_refused FROM {theirs} r JOIN {mine} l "
        "ON l.entity = r.entity AND l.batch_id = r.batch_id WHERE r.entity = ? AND l.checksum <> r.checksum "
        "AND l.rows_staged + l.rows_refused = r.rows_staged + r.rows_refused",
        (entity,),
    )
    table, source = f"{live.schemas.staging}.{entity}", f"{replayed.schemas.staging}.{entity}"
    columns = listed([*(name for name, _ in staged_columns(live.entity)), "_batch_id"])
    for batch, checksum, rows, refused in whole:
        tx.execute(f"DELETE FROM {table} WHERE _batch_id = ?", (batch,))
        tx.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {source} WHERE _batch_id = ?", (batch,))
        tx.execute(
            f"UPDATE {mine} SET checksum = ?, rows_staged = ?, rows_refused = ? WHERE entity = ? AND batch_id = ?",
            (checksum, rows, refused, entity, batch),
        )
    return len(whole)
