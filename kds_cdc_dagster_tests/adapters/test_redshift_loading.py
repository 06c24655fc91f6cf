"""Whole loads over the Redshift stand-in: the field reports, lost connections at every statement."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from typing import Any

import pytest
import sqlglot

from kds_cdc_dagster.adapters.redshift_warehouse import RepeatPolicy
from kds_cdc_dagster.core.catalogue import Catalogue, Entity
from kds_cdc_dagster.errors import KdsCdcError, WarehouseBusy
from kds_cdc_dagster.load.export import current_export, export
from kds_cdc_dagster.load.merge import MergeReport
from kds_cdc_dagster.load.schema import ensure_schema
from kds_cdc_dagster_tests.load.loading import SCHEMAS, Loading
from kds_cdc_dagster_tests.load.source import CATALOGUE, Emitted, SourceTable, play
from kds_cdc_dagster_tests.redshift import faults
from kds_cdc_dagster_tests.redshift.sessions import connect
from kds_cdc_dagster_tests.redshift.warehouse import Site

pytest_plugins = ("kds_cdc_dagster_tests.redshift.fixtures",)


@pytest.fixture
def site(redshift_site: Site) -> Site:
    """A fresh database."""
    return redshift_site


def loading(site: Site) -> Loading:
    """A loader with an adapter of its own, as another process has."""
    return Loading(site.warehouse(), site.store)


def batches(changes: list[Emitted], size: int) -> list[list[Emitted]]:
    """Cut a history into batches."""
    return [changes[at : at + size] for at in range(0, len(changes), size)]


def applied(loader: Loading) -> list[tuple[Any, ...]]:
    """The load ledger."""
    return loader.rows("SELECT batch_id, sequence, applied FROM ops.load_ledger ORDER BY sequence")


def test_every_statement_is_redshifts(site: Site) -> None:
    """All statements of schema, staging, merge and export parse in sqlglot's Redshift dialect, and none failed."""
    table = play(random.Random(5), steps=25)
    loader = loading(site)
    loader.load("b-1", table.emitted)
    table.emitted.clear()
    for key in (90, 91):
        table.insert(key, "usual")
    table.delete(90)
    loader.load("b-2", table.emitted)
    table.delete(91)
    loader.load("b-3", table.emitted[-1:])
    assert loader.view() == table.rows
    export(loader.warehouse, site.store, loader.layout)
    assert any("JOIN kds_newest" in executed.sql for executed in site.redshift.statements)
    for executed in site.redshift.statements:
        assert executed.outcome == "done", executed
        if not executed.sql.startswith("LOCK TABLE"):  # which sqlglot does not know
            sqlglot.parse_one(executed.sql, read="redshift", error_level=sqlglot.ErrorLevel.RAISE)


def test_schema_is_made_once_and_gains_columns(site: Site) -> None:
    """A second run finds nothing to do; a column that the catalogue gains is added, in the view as well."""
    loader = loading(site)
    assert ensure_schema(loader.warehouse, CATALOGUE, SCHEMAS) == 0
    (dish,) = CATALOGUE.entities
    spice = {"name": "spice", "type": "integer"}
    more = Entity.model_validate({**dish.model_dump(by_alias=True), "columns": (*dish.columns, spice)})
    grown = Catalogue(sources=CATALOGUE.sources, entities=(more,), targets=CATALOGUE.targets)
    assert ensure_schema(loader.warehouse, grown, SCHEMAS) > 0
    assert loader.rows("SELECT spice FROM curated.dish") == []


def test_rs01_loads_that_commit_together_survive_1023(site: Site) -> None:
    """1023 on commits three times, then the other wording: both batches are in once; readers never wait or fail."""
    tables = [SourceTable(random.Random(seed)) for seed in (1, 2)]
    for at, table in enumerate(tables):
        table.insert(at, f"dish {at}")
    loader = loading(site)
    for at, table in enumerate(tables):
        loader.stage(f"b-{17 + at}", table.emitted)
    # The lock's table is there: making it side by side may cost a repetition of its own, which is not counted here.
    loader.warehouse.run(lambda _: None, lock=loader.layout.lock)
    site.redshift.faults.fail("^commit", times=3)
    site.redshift.faults.fail("^INSERT INTO ops.load_ledger", faults.CONFLICT)
    is_over = threading.Event()
    seen: list[int] = []
    dashboard = threading.Thread(target=_read_until, args=(site, is_over, seen))
    dashboard.start()
    workers = [threading.Thread(target=loading(site).merge, args=(f"b-{number}",)) for number in (17, 18)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    is_over.set()
    dashboard.join()
    assert sorted(batch for batch, *_ in applied(loader)) == ["b-17", "b-18"]
    assert loader.view().keys() == {0, 1}
    assert seen == sorted(seen)
    assert seen[-1] == 2
    assert len(site.waits) == 4


def _read_until(site: Site, is_over: threading.Event, seen: list[int]) -> None:
    with closing(connect(site.redshift, is_autocommit=True)) as connection, connection.cursor() as cursor:
        is_last = False
        while not is_last:
            is_last = is_over.is_set()
            cursor.execute("SELECT COUNT(*) FROM curated.dish")
            seen.extend(count for (count,) in cursor.fetchall())


def test_rs01_after_the_limit_the_batch_stays_claimable(site: Site) -> None:
    """WarehouseBusy, nothing half applied, and a later attempt loads it."""
    table = SourceTable()
    table.insert(1, "soup")
    loader = loading(site)
    loader.stage("b-17", table.emitted)
    site.redshift.faults.fail("^commit", times=-1)
    with pytest.raises(WarehouseBusy):
        loader.merge("b-17")
    site.redshift.faults.clear()
    assert (loader.view(), applied(loader)) == ({}, [])
    assert loader.merge("b-17").applied == 1


def test_rs02_several_rows_per_key_become_one(site: Site) -> None:
    """Redshift enforces no key: one row per key all the same, and none for what was deleted in the batch."""
    table = SourceTable()
    table.insert(43, "old")
    loader = loading(site)
    loader.load("b-1", table.emitted)
    table.emitted.clear()
    table.insert(42, "NEW")
    for status in ("FIRED", "BUMPED"):
        table.update(42, title=status)
    table.update(43, title="changed")
    table.delete(43)
    table.insert(43, "last create")
    table.insert(44, "short")
    table.delete(44)
    # The same changes twice in one batch: what a redelivery that no state could see any more does.
    loader.load("b-2", table.emitted * 2)
    assert {key: row["title"] for key, row in loader.view().items()} == {42: "BUMPED", 43: "last create"}
    before = loader.rows("SELECT * FROM curated.dish_rows ORDER BY dish_id")
    loader.load("b-2", table.emitted * 2)
    loader.load("b-3", table.emitted)
    after = loader.rows("SELECT * FROM curated.dish_rows ORDER BY dish_id")
    assert [row[:7] for row in after] == [row[:7] for row in before]


_STATEMENTS = ["^SET", "^begin", "^LOCK", "^CREATE TEMP", "^COPY", "pg_last_copy", "^DELETE", "^INSERT INTO staging"]
_STATEMENTS += ["ops.staged", "INTO kds_evidence", "INTO curated.dish_rows", "INTO ops.load_ledger", "^UNLOAD"]
_STATEMENTS += ["pg_last_unload", "ops.export_ledger", "^commit"]


@pytest.mark.parametrize("when", ["before", "midway", "after"])
def test_s21_connection_lost_at_every_statement_loads_once(site: Site, when: faults.When) -> None:
    """Each kind of statement of stage, merge and export is cut off once: all is in once, and exported whole."""
    table = play(random.Random(7), steps=12, with_snapshots=False)
    warehouse = site.warehouse(policy=RepeatPolicy(attempts_max=len(_STATEMENTS) + 1, wait_seconds=0))
    patterns = ["^COPY", "^UNLOAD"] if when == "midway" else _STATEMENTS  # the others have no middle
    for pattern in patterns:
        site.redshift.faults.drop(pattern, when=when)
    loader = Loading(warehouse, site.store)
    loader.load("b-1", table.emitted)
    export(loader.warehouse, site.store, loader.layout)
    assert len(site.waits) == len(patterns)
    assert loader.view() == table.rows
    assert [row[:2] for row in applied(loader)] == [("b-1", 1)]
    exported = current_export(site.store, "dish")
    assert exported
    assert exported.rows == len(table.rows)


def test_s21_merges_side_by_side_converge(site: Site) -> None:
    """Several processes merge several batches, each batch twice: one ledger row each, the newest rows win."""
    table = play(random.Random(11), steps=24)
    loader = loading(site)
    names = []
    for number, changes in enumerate(batches(table.emitted, 8)):
        names.append(f"b-{number}")
        loader.stage(names[-1], changes)
    reports: list[MergeReport | KdsCdcError] = []

    def merge(name: str) -> None:
        try:
            reports.append(loading(site).merge(name))
        except KdsCdcError as error:
            reports.append(error)

    workers = [threading.Thread(target=merge, args=(name,)) for name in [*reversed(names), *names]]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sum(isinstance(report, MergeReport) and report.is_repeat for report in reports) == len(names)
    assert len(applied(loader)) == len(names)
    assert loader.view() == table.rows
