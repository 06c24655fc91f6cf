"""Working ahead: a large round is asked about part by part, and ends as it would in one piece."""

from __future__ import annotations

import random
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest
from hypothesis import given as given_that
from hypothesis import strategies as st

from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.errors import StateUnavailable
from kds_cdc_dagster.intake.parts import Ahead, parts_of
from kds_cdc_dagster_tests.at_once import AtOnce
from kds_cdc_dagster_tests.intake.given import Given, drain

STORES = 6


def _delivery(group: int) -> Delivery:
    return Delivery(b"", f"g{group}", "1", "m", "r", 1, 0)


@given_that(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 7))
def test_no_group_is_cut_and_nothing_is_moved(groups: list[int], size: int) -> None:
    """All deliveries in their order; each group in one part; each part but the last as large as asked."""
    deliveries = [_delivery(group) for group in groups]
    parts = list(parts_of(deliveries, size))
    assert [delivery for part in parts for delivery in part] == deliveries
    assert all(len(part) >= size for part in parts[:-1])
    seen = [{delivery.group_id for delivery in part} for part in parts]
    assert sum(map(len, seen)) == len(set(groups))


def _outcome(ahead: Ahead | None) -> list[object]:
    given, dice = Given(out_of_order="quarantine"), random.Random(7)
    given.ahead = ahead
    for first in (1, 6):
        sent = [(store, position) for store in range(STORES) for position in range(first, first + 5)]
        sent += dice.sample(sent, 8)  # late repetitions, some with other content
        for place, (store, position) in enumerate(sent):
            given.send(position, store=store, value=f"version {place % 9}")
        given.send(body="not json")
        drain(given.worker("a"))
    rows = [(r["outcome"], r["reason"], r["stream"], r["stream_order"], r["content_hash"]) for r in _rows(given)]
    assert given.is_settled()
    return [sorted(rows), [given.committed(store) for store in range(STORES)]]


def _rows(given: Given) -> list[dict[str, str]]:
    return [row for outcome in ("accepted", "rejected", "parked") for row in given.rows(outcome)]


@pytest.mark.parametrize("executor", [AtOnce(), ThreadPoolExecutor(1)], ids=["at once", "in a thread"])
def test_parts_end_as_one_piece_does(executor: Executor) -> None:
    """New, repeated, conflicting and unreadable ones together."""
    assert _outcome(Ahead(executor, part_messages=3)) == _outcome(None)


def test_a_store_that_is_down_for_one_part_fails_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is acknowledged, whatever the other parts were told; all of it is taken in once the store is back."""
    given = Given()
    given.ahead = Ahead(ThreadPoolExecutor(1), part_messages=2)
    worker = given.worker("a")
    for store in range(STORES):
        given.send(1, 2, store=store)
    decide, calls = given.state.decide, 0

    def second_is_lost(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise StateUnavailable("lost")
        return decide(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(given.state, "decide", second_is_lost)
    assert "given_up" in " ".join(drain(worker).counts)
    given.reappear()
    drain(worker)
    assert [given.accepted(store) for store in range(STORES)] == [[1, 2]] * STORES
    assert given.is_settled()
