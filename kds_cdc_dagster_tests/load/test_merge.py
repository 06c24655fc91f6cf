"""The merge, rule by rule (docs: semantics): placeholders, key changes, truncates, replays, repetition."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from kds_cdc_dagster.errors import InvariantBroken
from kds_cdc_dagster.load.figures import curated_figures
from kds_cdc_dagster.load.layout import Layout, Schemas
from kds_cdc_dagster.load.merge import merge
from kds_cdc_dagster_tests.load.breaking import BreakingWarehouse, Broken
from kds_cdc_dagster_tests.load.loading import LAYOUT, Loading
from kds_cdc_dagster_tests.load.source import CATALOGUE, Emitted, SourceTable, reworded


@pytest.fixture
def loading() -> Iterator[Loading]:
    """The dish target on a new DuckDB file."""
    with Loading.on_duckdb() as found:
        yield found


@pytest.fixture
def table() -> SourceTable:
    """A source table with two dishes."""
    found = SourceTable()
    found.insert(1, "soup")
    found.insert(2, "stew")
    return found


def test_s35_placeholder_in_the_same_batch(loading: Loading, table: SourceTable) -> None:
    """An update without its large columns keeps those of the create before it in the batch."""
    table.update(1, title="broth")
    loading.load("b-1", table.emitted)
    assert loading.view() == table.rows


def test_s35_placeholder_in_a_later_batch(loading: Loading, table: SourceTable) -> None:
    """An update without its large columns keeps the stored ones, batch after batch."""
    loading.load("b-1", table.emitted)
    for number in range(3):
        table.update(1, title=f"broth {number}")
        loading.load(f"b-{2 + number}", table.emitted[-1:])
    assert loading.view() == table.rows


def test_s35_unknown_until_an_older_change_has_it(loading: Loading, table: SourceTable) -> None:
    """A placeholder without a known value is null and listed as missing; an older change completes only that column."""
    table.update(1, title="broth", photo="new")
    create, update = table.emitted[0], table.emitted[-1]
    loading.load("b-2", [update])
    assert loading.view()[1] == {**table.rows[1], "recipe": None}
    assert loading.rows(f"SELECT _missing FROM {LAYOUT.rows}") == [(",recipe,",)]
    assert curated_figures(loading.warehouse, LAYOUT).incomplete == 1
    loading.load("b-1", [create])
    assert loading.view() == {1: table.rows[1]}
    assert loading.rows(f"SELECT _missing, _row_order FROM {LAYOUT.rows}") == [("", update.order)]


def test_tombstone_keeps_order_values_and_tenant(loading: Loading, table: SourceTable) -> None:
    """A key-only delete leaves a row with its last known values, its tenant and the delete's order."""
    table.delete(1)
    loading.load("b-1", table.emitted[:2])
    loading.load("b-2", table.emitted[2:])
    query = f"SELECT title, recipe, _tenant, _row_order FROM {LAYOUT.rows} WHERE _is_deleted"
    assert loading.rows(query) == [("soup", "recipe of soup", "acct-1", table.emitted[-1].order)]
    assert loading.view() == table.rows


def test_older_change_never_revives(loading: Loading, table: SourceTable) -> None:
    """An older create or update that arrives after the delete changes nothing visible."""
    table.update(1, title="broth")
    table.delete(1)
    create, _, update, delete = table.emitted
    for number, change in enumerate((delete, create, update)):
        loading.load(f"b-{number}", [change])
        assert 1 not in loading.view()


def test_dbz07_snapshot_read_after_newer_stream_events(loading: Loading, table: SourceTable) -> None:
    """A read ranks below a streaming change of its position, in whatever batch and order it comes."""
    table.update(1, title="broth", recipe="r", photo="p")
    table.read(1)
    newer, read = table.emitted[-2], reworded(table.emitted[-1], title="old", recipe="old", photo="old")
    for number, changes in enumerate(([newer], [read], [read, newer])):
        loading.load(f"b-{number}", changes)
        assert loading.view()[1]["title"] == "broth"


def swapped(table: SourceTable) -> list[Emitted]:
    """Swap the keys of dishes 1 and 2 through 99: d 1, c 99, d 2, c 1, d 99, c 2."""
    before = len(table.emitted)
    for old, new in ((1, 99), (2, 1), (99, 2)):
        table.rekey(old, new)
    return table.emitted[before:]


@pytest.mark.parametrize("groups", [[(1, 2, 99)], [(2, 99), (1,)], [(1,), (99,), (2,)], [(99,), (2,), (1,)]])
@pytest.mark.parametrize("is_pruned", [False, True])
def test_s34_dbz04_swap_through_a_spare_key(
    loading: Loading, table: SourceTable, groups: list[tuple[int, ...]], *, is_pruned: bool
) -> None:
    """Three chained key changes with placeholders, delivered whole or one key's group at a time: keys swapped."""
    loading.load("b-0", table.emitted)
    if is_pruned:
        loading.execute("DELETE FROM staging.dish")
    changes = swapped(table)
    for number, keys in enumerate(groups):
        loading.load(f"b-{1 + number}", [change for change in changes if change.dish_id in keys])
    assert loading.view() == table.rows
    assert curated_figures(loading.warehouse, LAYOUT).incomplete == 0


def test_key_change_waits_for_its_other_half(loading: Loading, table: SourceTable) -> None:
    """The create half shows null until the delete half names the old key, and is then completed by it."""
    loading.load("b-0", table.emitted)
    table.rekey(1, 7)
    delete, create = table.emitted[-2:]
    loading.load("b-1", [create])
    assert (loading.view()[7]["title"], loading.view()[7]["recipe"]) == ("soup", None)
    loading.load("b-2", [delete])
    assert loading.view() == table.rows


def test_truncate(loading: Loading, table: SourceTable) -> None:
    """Rows at or below a truncate are gone for good; what arrives late is dropped, what came later stays."""
    late = table.emitted[0]
    table.truncate()
    table.insert(3, "salad")
    loading.load("b-1", table.emitted[1:2] + table.emitted[3:])
    assert loading.load("b-2", table.emitted[2:3]).truncated == 1
    loading.load("b-3", [late])
    assert loading.view() == table.rows
    assert loading.rows(f"SELECT dish_id FROM {LAYOUT.rows}") == [(3,)]


def test_s19_replayed_twice(loading: Loading, table: SourceTable) -> None:
    """The same artifact staged and merged again leaves staging, curated and the ledger as they are."""
    first = loading.load("b-1", table.emitted)
    state = [loading.rows(f"SELECT * FROM {name} ORDER BY ALL") for name in ("staging.dish", LAYOUT.rows)]
    assert loading.stage("b-1", table.emitted).is_repeat
    again = loading.merge("b-1")
    assert (again.is_repeat, again.sequence) == (True, first.sequence)
    assert state == [loading.rows(f"SELECT * FROM {name} ORDER BY ALL") for name in ("staging.dish", LAYOUT.rows)]


def test_replay_in_place_changes_rows(loading: Loading, table: SourceTable) -> None:
    """Other typed values of the same changes (a repaired decoder) are applied again, where they still count."""
    loading.load("b-1", table.emitted)
    table.update(2, title="goulash")
    loading.load("b-2", table.emitted[-1:])
    fixed = [reworded(change, title=change.values["title"].upper(), recipe="repaired") for change in table.emitted[:2]]
    report = loading.load("b-1", fixed)
    assert (report.is_repeat, report.sequence) == (False, 3)
    view = loading.view()
    assert (view[1]["title"], view[2]["title"]) == ("SOUP", "goulash")
    # Of dish 2 the newest image has no recipe of its own: the repaired older one shows.
    assert (view[1]["recipe"], view[2]["recipe"]) == ("repaired", "repaired")


def test_another_code_version_applies_again(loading: Loading, table: SourceTable) -> None:
    """The ledger's key holds the code version: equal rows are applied again, to the same end."""
    loading.load("b-1", table.emitted)
    assert loading.merge("b-1", code_version="2").applied == 2
    assert loading.view() == table.rows


def test_report(loading: Loading, table: SourceTable) -> None:
    """Counts and lag of a merge, and what the second of two equal batches is: stale or repeated, never doubled."""
    table.update(1, title="broth")
    table.delete(2)
    loading.stage("b-1", table.emitted)
    sent_at = datetime(2026, 11, 1, 10, tzinfo=UTC).timestamp()
    report = merge(loading.warehouse, LAYOUT, "b-1", code_version="1", now=lambda: sent_at + 90)
    assert (report.changes, report.applied, report.stale, report.deleted) == (4, 2, 0, 1)
    assert (report.lag_max_seconds, report.lag_avg_seconds) == (90, 90)
    old = loading.load("b-2", table.emitted[1:2])
    assert (old.changes, old.applied, old.stale) == (1, 0, 1)


def test_nothing_staged(loading: Loading) -> None:
    """A merge without staging stops at once, naming batch and target."""
    with pytest.raises(InvariantBroken, match="batch=b-9, target=dish"):
        loading.merge("b-9")


def test_s33_isolated_target(loading: Loading, table: SourceTable) -> None:
    """Another curated schema is a target of its own: same staging, own rows, own ledger; live is untouched."""
    loading.load("b-1", table.emitted)
    replay = Loading(loading.warehouse, loading.store, Layout.of(CATALOGUE, "dish", Schemas(curated="replay_7")))
    assert replay.view() == {}
    assert replay.merge("b-1").sequence == 1
    assert replay.view() == table.rows == loading.view()


def test_s21_merged_side_by_side(loading: Loading, table: SourceTable) -> None:
    """Four merges of two batches at once: each batch is applied once, no key stands twice."""
    swapped(table)
    loading.stage("b-1", table.emitted[:4])
    loading.stage("b-2", table.emitted[4:])
    reports = []
    threads = [threading.Thread(target=lambda b=b: reports.append(loading.merge(b))) for b in ("b-1", "b-2") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((report.batch, report.is_repeat) for report in reports) == [
        ("b-1", False),
        ("b-1", True),
        ("b-2", False),
        ("b-2", True),
    ]
    assert loading.view() == table.rows
    assert curated_figures(loading.warehouse, LAYOUT).keys_twice == 0


def test_s20_s21_broken_at_every_step(loading: Loading, table: SourceTable) -> None:
    """A stage or merge that dies at any statement or right after its commit converges when it is repeated."""
    breaking = BreakingWarehouse(loading.warehouse)
    fragile = Loading(breaking, loading.store)
    swapped(table)
    loading.load("b-0", table.emitted[:3])
    survived = 0
    while True:
        batch = f"b-{1 + survived}"
        breaking.steps, breaking.at = 0, 1 + survived
        try:
            fragile.load(batch, table.emitted[3:])
        except Broken:
            survived += 1
            breaking.at = 0
            fragile.load(batch, table.emitted[3:])
            assert loading.view() == table.rows
            assert loading.rows(f"SELECT COUNT(*) FROM staging.dish WHERE _batch_id = '{batch}'") == [(5,)]
        else:
            break
    assert survived > 20
    assert loading.rows("SELECT COUNT(*), MAX(sequence) FROM ops.load_ledger") == [(survived + 2, survived + 2)]
