"""The benchmark's queue has a FIFO queue's manners, or its figures would say nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster_tests.bench import backlog
from kds_cdc_dagster_tests.bench.backlog import Backlog


def _part(groups: str, first: int = 0) -> list[Delivery]:
    return [Delivery(b"", group, f"{n:020d}", f"m-{n}", f"r-{n}", 1, 0) for n, group in enumerate(groups, first)]


def _receive(queue: Backlog) -> list[Delivery]:
    return queue.receive(max_messages=10, wait_seconds=0.0)


def _receipts(deliveries: Sequence[Delivery]) -> list[str]:
    return [one.receipt for one in deliveries]


def test_a_group_is_locked_until_all_of_it_that_was_handed_out_is_deleted() -> None:
    """At most ten of one group at once, in order; the rest follows only after the last of them."""
    queue = Backlog()
    queue.publish([_part("a" * 13 + "b")])
    first, second = _receive(queue), _receive(queue)
    assert (_receipts(first), _receipts(second)) == ([f"r-{n}" for n in range(10)], ["r-13"])
    queue.acknowledge(_receipts(first)[:9])
    assert _receive(queue) == []
    queue.acknowledge(_receipts(first)[9:])
    assert _receipts(_receive(queue)) == ["r-10", "r-11", "r-12"]


def test_receipts_are_refused_before_they_are_handed_out_and_after_their_message_is_deleted() -> None:
    """Else an intake that acknowledges twice, or what it never received, would go unnoticed."""
    queue = Backlog()
    queue.publish([_part("a" * 11)])
    held = _receipts(_receive(queue))
    answer = queue.acknowledge(["r-10", *held])
    assert (answer.confirmed, set(answer.refused)) == (set(held), {"r-10"})
    assert set(queue.acknowledge(held).refused) == set(held)


def test_parts_are_published_ahead_of_what_is_received(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that is locked when its next part comes keeps its order; no round ends for want of messages."""
    monkeypatch.setattr(backlog, "AHEAD", 2)
    queue = Backlog()
    queue.publish([_part("ab"), _part("ab", first=2)])
    assert [_receipts(_receive(queue)), _receipts(_receive(queue))] == [["r-0"], ["r-1", "r-3"]]
    queue.acknowledge(["r-0"])
    assert _receipts(_receive(queue)) == ["r-2"]


@pytest.mark.parametrize("deleted", [0, 1])
def test_an_end_with_anything_left_is_no_proof(deleted: int) -> None:
    """Neither what was never handed out nor what is still in flight may be forgotten."""
    queue = Backlog()
    queue.publish([_part("aab")])
    held = _receipts(_receive(queue))
    queue.acknowledge(held[: 2 * deleted])
    with pytest.raises(AssertionError):
        queue.prove_empty()
    queue.acknowledge([*held, *_receipts(_receive(queue))])
    queue.prove_empty()
