"""Checks and swaps over random histories (moves, truncates, snapshots, placeholders), on DuckDB and Redshift."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kds_cdc_dagster.adapters.duckdb_warehouse import DuckdbWarehouse
from kds_cdc_dagster.adapters.object_store import open_memory
from kds_cdc_dagster.load.compare import compare, swap
from kds_cdc_dagster.load.layout import Layout, Schemas
from kds_cdc_dagster.load.reconcile_curated import VALUES, curated_findings
from kds_cdc_dagster.ports import ObjectStore, Warehouse
from kds_cdc_dagster_tests.load.loading import Loading
from kds_cdc_dagster_tests.load.source import CATALOGUE, Emitted, SourceTable, play
from kds_cdc_dagster_tests.redshift.warehouse import Site

pytest_plugins = ("kds_cdc_dagster_tests.redshift.fixtures",)

REPLAY = Layout.of(CATALOGUE, "dish", Schemas("again_staging", "again", "again_ops"))
STEPS, BATCH = 60, 9


@contextmanager
def _on_duckdb() -> Iterator[Loading]:
    store = open_memory("kds")
    with tempfile.TemporaryDirectory() as folder, closing(DuckdbWarehouse(Path(folder) / "w.duckdb", store)) as found:
        yield Loading(found, store)


def _cut(table: SourceTable, dice: random.Random) -> list[list[Emitted]]:
    """Batches in any order, as concurrent runs and late messages make them."""
    batches = [table.emitted[at : at + BATCH] for at in range(0, len(table.emitted), BATCH)]
    dice.shuffle(batches)
    return batches


def _load(loading: Loading, batches: list[list[Emitted]], name: str = "b") -> None:
    for number, changes in enumerate(batches):
        loading.load(f"{name}-{number}", changes)


def _beside(live: Loading) -> Loading:
    """A replay's own schemas in the same warehouse."""
    return Loading(live.warehouse, live.store, REPLAY)


def _check_soundness(live: Loading) -> None:
    for batch in ("", "b-0"):
        assert [
            f.line() for f in curated_findings(live.warehouse, live.layout, batch) if not f.has_passed and f.is_blocking
        ] == []


@pytest.mark.parametrize("seed", range(4))
def test_sound_histories_pass_every_check(seed: int) -> None:
    """No history, in no order of batches, makes a check cry wolf."""
    dice = random.Random(seed)
    table = play(dice, steps=STEPS)
    with _on_duckdb() as live:
        _load(live, _cut(table, dice))
        _check_soundness(live)
        assert live.view() == table.rows


@pytest.mark.parametrize("seed", range(4))
def test_a_swap_completes_a_table_that_lacks_batches(seed: int) -> None:
    """Live has some of the batches, the replay all: after the swap live is the source's own final state."""
    dice = random.Random(seed)
    table = play(dice, steps=STEPS)
    batches = _cut(table, dice)
    with _on_duckdb() as live:
        replay = _beside(live)
        _load(live, batches[: len(batches) // 2])
        _load(replay, batches)
        swap(live.warehouse, live.layout, replay.layout, label="1", code_version="1")
        assert live.view() == table.rows
        found = compare(live.warehouse, live.layout, replay.layout)
        assert found.is_same
        assert found.only_live == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_swap_of_an_older_range_changes_nothing(seed: int) -> None:
    """Live has all batches, the replay some: every row of the replay is older or equal, nothing moves back."""
    dice = random.Random(seed)
    table = play(dice, steps=STEPS)
    batches = _cut(table, dice)
    with _on_duckdb() as live:
        replay = _beside(live)
        _load(live, batches)
        _load(replay, batches[: len(batches) // 2])
        assert compare(live.warehouse, live.layout, replay.layout).replayed_newer == 0
        swap(live.warehouse, live.layout, replay.layout, label="1", code_version="1")
        assert live.view() == table.rows
        _check_soundness(live)


def test_checks_compare_and_swap_speak_redshift(redshift_site: Site) -> None:
    """The same statements run on the stand-in: sound after a load, a changed value is found, a swap repairs it."""
    dice = random.Random(3)
    table = play(dice, steps=25)
    warehouse: Warehouse = redshift_site.warehouse()
    store: ObjectStore = redshift_site.store
    live = Loading(warehouse, store)
    replay = _beside(live)
    _load(live, [table.emitted])
    _load(replay, [table.emitted])
    _check_soundness(live)
    live.execute("UPDATE curated.dish_rows SET title = 'by hand' WHERE NOT _is_deleted")
    (failed,) = [f for f in curated_findings(warehouse, live.layout) if not f.has_passed]
    assert (failed.check, failed.facts["columns"]) == (VALUES, "title")
    assert compare(warehouse, live.layout, replay.layout).columns == {"title": len(table.rows)}
    swap(warehouse, live.layout, replay.layout, label="1", code_version="1")
    assert live.view() == table.rows
    _check_soundness(live)
