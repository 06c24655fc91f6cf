"""The usual keys' short way against the fold: same histories, same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kds_cdc_dagster.load import merge, newest
from kds_cdc_dagster.load.layout import listed
from kds_cdc_dagster.load.newest import Kind
from kds_cdc_dagster_tests.load.loading import LAYOUT, Loading
from kds_cdc_dagster_tests.load.source import LARGE, Emitted, SourceTable, cut, play

_dice = st.integers(0, 1 << 32).map(random.Random)
_ROW = listed(name for name, _ in LAYOUT.row_columns if name != "_loaded_at")
_LEFT = {
    "curated.dish_rows": _ROW,
    "curated.dish_past": _ROW,
    "curated.dish_moves": "*",
    "ops.truncates": "*",
    "ops.changed_tenants": "DISTINCT *",
}
_LEDGER = (
    "SELECT batch_id, sequence, changes, applied, stale, deleted, truncated, lag_avg_seconds IS NULL "
    "FROM ops.load_ledger ORDER BY sequence"
)


class MostlyWhole(SourceTable):
    """Most of its changes carry their large columns."""

    def update(self, dish_id: int, **values: str) -> None:
        """See the base."""
        super().update(dish_id, **self._large(dish_id) | values)

    def rekey(self, old: int, new: int, **values: str) -> None:
        """See the base."""
        super().rekey(old, new, **self._large(old) | values)

    def _large(self, dish_id: int) -> dict[str, str]:
        return {name: self.rows[dish_id][name] for name in LARGE} if self.dice.random() < 0.95 else {}


def _fold_all(tx: Any, layout: Any, report: Any, loaded_at: float, known: Any) -> Any:
    del known
    return merge._fold_all(tx, layout, report, loaded_at, is_replay=False)


def _outcome(batches: list[tuple[str, list[Emitted]]]) -> list[Any]:
    """All that merging the batches leaves behind; times of loading apart."""
    with Loading.on_duckdb() as loading:
        for name, changes in batches:
            loading.load(name, changes)
        left = (f"SELECT {columns} FROM {name} ORDER BY ALL" for name, columns in _LEFT.items())
        return [*map(loading.rows, left), loading.rows(_LEDGER)]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(dice=_dice, steps=st.integers(1, 40), is_shuffled=st.booleans())
def test_s34_short_way_equals_the_fold(dice: random.Random, steps: int, *, is_shuffled: bool) -> None:
    """Any history in any batches, in order or not, some changes twice, some batches again: equal in every column."""
    changes = list(play(dice, steps, kind=MostlyWhole).emitted)
    changes += dice.sample(changes, min(dice.choice((0, 0, 3)), len(changes)))
    if is_shuffled:
        dice.shuffle(changes)
    batches = [(f"b-{number}", part) for number, part in enumerate(cut(dice, changes, longest=15))]
    batches += [(f"again-{name}", part) for name, part in batches[:1]]
    batches += [(name, part[1:]) for name, part in batches[:1] if part[1:]]
    usual = _outcome(batches)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "_merge_new", _fold_all)
        assert usual == _outcome(batches)


@pytest.fixture
def loading() -> Iterator[Loading]:
    """The dish target on a new DuckDB file."""
    with Loading.on_duckdb() as found:
        yield found


def _kinds(loading: Loading, changes: list[Emitted]) -> dict[int | None, str]:
    """Key -> kind, as the changes would be merged next."""
    loading.stage("b-next", changes)

    def body(tx: Any) -> dict[int | None, str]:
        newest.look(tx, LAYOUT, "b-next", is_barred=False)
        return dict(tx.rows(f"SELECT dish_id, _kind FROM {newest.NEWEST}"))

    return loading.warehouse.run(body)


def test_kinds(loading: Loading) -> None:
    """What takes the short way, so that a batch does not pay for the fold unseen, and what does not."""
    table = SourceTable()
    for key in range(1, 7):
        table.insert(key, f"dish {key}")
    table.update(6, title="lacks its large columns")
    loading.load("b-1", table.emitted)
    loading.load("b-2", table.emitted[-1:])
    known = list(table.emitted)
    table.insert(10, "new")
    table.update(1, title="changed", recipe="r", photo="p")
    table.delete(2)
    table.insert(11, "short")
    table.delete(11)
    table.update(4, title="partial")
    table.delete(5)
    table.insert(5, "again")
    table.update(6, title="changed", recipe="r", photo="p")
    kinds = _kinds(loading, [known[2], *table.emitted[len(known) :]])
    assert kinds == {
        10: Kind.IMAGE,
        1: Kind.IMAGE,
        2: Kind.DELETED,
        11: Kind.ENDED,
        3: Kind.STALE,
        4: Kind.FOLDED,
        5: Kind.FOLDED,
        6: Kind.FOLDED,
    }


def test_kinds_of_what_nothing_is_known(loading: Loading) -> None:
    """A delete without any image is folded; a truncate is no key."""
    table = SourceTable()
    table.insert(1, "soup")
    table.delete(1)
    table.truncate()
    assert _kinds(loading, table.emitted[1:]) == {1: Kind.FOLDED, None: Kind.TRUNCATE}
