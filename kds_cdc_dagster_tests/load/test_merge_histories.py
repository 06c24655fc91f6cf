"""The merge against an oracle that knows nothing of it: the source table's own rows at the end of a history."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kds_cdc_dagster_tests.load.loading import Loading
from kds_cdc_dagster_tests.load.source import Emitted, SourceTable, cut, play

_SETTINGS = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
_dice = st.integers(0, 1 << 32).map(random.Random)


def _assert_same(loading: Loading, table: SourceTable) -> None:
    assert loading.view() == table.rows
    newest: dict[int | None, str] = {}
    for change in table.emitted:
        newest[change.dish_id] = max(change.order, newest.get(change.dish_id, ""))
    truncated = max((change.order for change in table.emitted if change.op == "t"), default="")
    stored = dict(loading.rows(f"SELECT dish_id, _row_order FROM {loading.layout.rows}"))
    assert stored == {key: order for key, order in newest.items() if key is not None and order > truncated}


@_SETTINGS
@given(dice=_dice, steps=st.integers(1, 30))
def test_s34_in_order(dice: random.Random, steps: int) -> None:
    """Delivered in order, in any batches: curated equals the source's rows, row orders included."""
    table = play(dice, steps)
    with Loading.on_duckdb() as loading:
        loading.run_out(cut(dice, table.emitted))
        _assert_same(loading, table)


@_SETTINGS
@given(dice=_dice, steps=st.integers(1, 25))
def test_s21_shuffled_and_repeated(dice: random.Random, steps: int) -> None:
    """Changes shuffled over batches, batches in any order, some again, some under another name: the same rows."""
    table = play(dice, steps)
    changes = list(table.emitted)
    dice.shuffle(changes)
    batches = cut(dice, changes)
    batches += dice.sample(batches, min(2, len(batches)))
    with Loading.on_duckdb() as loading:
        loading.run_out(batches)
        loading.load("batch-0", batches[0])
        _assert_same(loading, table)


@_SETTINGS
@given(dice=_dice, steps=st.integers(1, 30))
def test_s34_staging_pruned(dice: random.Random, steps: int) -> None:
    """In order with staging pruned down to the last two batches: stored rows and past lives suffice for key changes."""
    table = play(dice, steps)
    with Loading.on_duckdb() as loading:
        for number, changes in enumerate(cut(dice, table.emitted)):
            loading.load(f"batch-{number}", changes)
            loading.execute(f"DELETE FROM staging.dish WHERE _batch_id NOT IN ('batch-{number}', 'batch-{number - 1}')")
        _assert_same(loading, table)


@_SETTINGS
@given(dice=_dice, steps=st.integers(2, 20))
def test_s21_every_prefix_is_newest_first(dice: random.Random, steps: int) -> None:
    """After every batch, in whatever order, each row carries the newest version delivered so far."""
    table = play(dice, steps, with_snapshots=False)
    changes = [change for change in table.emitted if change.op != "t"]
    dice.shuffle(changes)
    delivered: dict[int | None, Emitted] = {}
    with Loading.on_duckdb() as loading:
        for number, batch in enumerate(cut(dice, changes)):
            loading.load(f"batch-{number}", batch)
            for change in batch:
                known = delivered.get(change.dish_id)
                if known is None or change.order > known.order:
                    delivered[change.dish_id] = change
            stored = loading.rows(f"SELECT dish_id, _row_order, _is_deleted FROM {loading.layout.rows}")
            assert {key: (order, gone) for key, order, gone in stored} == {
                key: (change.order, change.op == "d") for key, change in delivered.items()
            }
