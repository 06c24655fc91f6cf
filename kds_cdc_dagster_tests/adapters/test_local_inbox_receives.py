"""Receives of more than ten from the local queue: what SQS cannot do must not change any FIFO manner."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from kds_cdc_dagster.adapters import local_file
from kds_cdc_dagster.adapters.local_inbox import LocalQueue
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.ports import Message
from kds_cdc_dagster_tests.contracts.clocks import ManualClock
from kds_cdc_dagster_tests.contracts.inbox_suite import bodies, receipts


@pytest.fixture
def clock() -> ManualClock:
    """Virtual time."""
    return ManualClock()


@pytest.fixture
def queue(tmp_path: Path, clock: ManualClock) -> LocalQueue:
    """A queue that gives up to a hundred at once, of at most 150 in flight; two receives per message."""
    limits = {"dead_letter_after": 2, "in_flight_max": 150, "receive_max": 100}
    return LocalQueue(tmp_path / "queue.db", clock=clock, visibility_seconds=30.0, **limits)


def _send(queue: LocalQueue, group: str, *texts: str) -> None:
    queue.send([Message(text, group, uuid.uuid4().hex) for text in texts])


def _receive(queue: LocalQueue, max_messages: int = 100) -> list[Delivery]:
    return queue.receive(max_messages=max_messages, wait_seconds=0)


def test_one_receive_takes_many_groups_each_whole_and_in_order(queue: LocalQueue) -> None:
    """The oldest head first; a group gives what it has before the next; all of them are locked."""
    for start in range(0, 30, 10):
        for group in "abc":
            _send(queue, group, *[f"{group}{n}" for n in range(start, start + 10)])
    found = _receive(queue)
    assert bodies(found) == [f"{group}{n}" for group in "abc" for n in range(30)]
    _send(queue, "a", "later")
    assert _receive(queue) == []
    assert not queue.acknowledge(receipts(found)).refused
    assert bodies(_receive(queue)) == ["later"]


def test_whoever_asks_for_ten_gets_ten(queue: LocalQueue) -> None:
    """The limit is the smaller of what is asked for and what the queue gives."""
    _send(queue, "a", *map(str, range(150)))
    assert len(_receive(queue, 10)) == 10
    queue.release(receipts(queue.receive(max_messages=10, wait_seconds=0)))
    _send(queue, "b", *map(str, range(150)))
    assert len(_receive(queue, 1000)) == 100


def test_a_group_is_locked_until_all_its_messages_of_a_receive_are_gone(queue: LocalQueue) -> None:
    """Acknowledging 99 of a hundred opens nothing; what stays comes again first when its time is over."""
    _send(queue, "a", *map(str, range(120)))
    found = _receive(queue)
    queue.acknowledge(receipts(found[1:]))
    assert _receive(queue) == []
    queue.release(receipts(found[:1]))
    again = _receive(queue)
    assert bodies(again) == ["0", *map(str, range(100, 120))]
    assert [one.receive_count for one in again] == [2] + [1] * 20


def test_the_in_flight_cap_holds_for_large_receives(queue: LocalQueue) -> None:
    """A hundred, then fifty, then nothing; full is an ordinary answer."""
    for group in "abcd":
        _send(queue, group, *map(str, range(60)))
    assert [len(_receive(queue)) for _ in range(3)] == [100, 50, 0]


def test_worn_messages_among_many_go_to_the_dead_letters(queue: LocalQueue, clock: ManualClock) -> None:
    """Each group's worn ones leave it, what was never received stays; order and counts are those of small receives."""
    for group in "ab":
        _send(queue, group, *[f"{group}{n}" for n in range(5)])
    for _ in range(2):
        assert len(_receive(queue, 10)) == 10
        clock.sleep(31)
    _send(queue, "a", "a5")
    _send(queue, "c", "c0")
    assert bodies(_receive(queue)) == ["a5", "c0"]
    assert [dead.message.body for dead in queue.dead_letters()] == [f"{group}{n}" for group in "ab" for n in range(5)]


def test_a_receive_is_bounded_in_bytes(queue: LocalQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large bodies end it early, in the middle of a group if need be; the rest of the group waits its turn."""
    monkeypatch.setattr(local_file, "RECEIVE_BYTES_MAX", 30)
    _send(queue, "a", *[f"{n:010}" for n in range(5)])
    _send(queue, "b", "b")
    first = _receive(queue)
    assert bodies(first) == [f"{n:010}" for n in range(3)]
    assert bodies(_receive(queue)) == ["b"]
    queue.acknowledge(receipts(first))
    assert bodies(_receive(queue)) == [f"{n:010}" for n in range(3, 5)]


def test_as_many_bytes_as_sqs_can_give_at_once_are_no_limit_for_ten(queue: LocalQueue) -> None:
    """Ten of the largest bodies come in one receive, as from SQS."""
    _send(queue, "a", *["x" * (1 << 20) for _ in range(11)])
    assert len(_receive(queue)) == 10
