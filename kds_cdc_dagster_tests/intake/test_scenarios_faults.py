"""Scenarios with crashes, zombies, a state store that is down or emptied, and held streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from kds_cdc_dagster.adapters.life_ids import LEASE_SECONDS
from kds_cdc_dagster.errors import StateUnavailable, TransientError
from kds_cdc_dagster_tests.intake.given import DEAD_AFTER_SECONDS, Given, drain, dying, turn


def is_segment(key: str, *_: object) -> bool:
    """Whether a segment is put."""
    return key.startswith("journal/")


def always(*_: object) -> bool:
    """At the first such call."""
    return True


@contextmanager
def down(given: Given) -> Iterator[None]:
    """The state store cannot be reached."""
    calls = ("life", "begin_life", "load", "finish_life", "decide", "settle", "hold", "unhold")
    patches = [mock.patch.object(given.state, call, side_effect=StateUnavailable("down")) for call in calls]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def test_s08_a_redelivery_before_commit_is_taken_once() -> None:
    """Decided, but the worker dies before its put: pending elsewhere is resolved by content, then accepted once."""
    given = Given()
    given.send(1, 2)
    with dying(given.store, "create", is_segment, is_done=False):
        drain(given.worker("a"))
    given.reappear()
    report = drain(given.worker("b"))
    assert report.counts == {"received": 2, "accepted": 2}
    assert given.accepted() == [1, 2]
    assert given.is_settled()


def test_s08_a_redelivery_after_commit_is_acknowledged() -> None:
    """Settled, but the worker dies before the delete: no second effect."""
    given = Given()
    given.send(1, 2)
    with dying(given.queue, "acknowledge", always, is_done=False):
        drain(given.worker("a"))
    given.reappear()
    report = drain(given.worker("b"))
    assert report.counts == {"received": 2, "safe_duplicate": 2}
    assert given.accepted() == [1, 2]
    assert given.is_settled()


def test_s09_state_down_fails_closed_and_recovers() -> None:
    """Nothing is accepted, nothing acknowledged, the tick says so; afterwards everything is taken in."""
    given = Given()
    worker = given.worker("a")
    given.send(1)
    drain(worker)
    given.send(2)
    with down(given):
        report = drain(worker)
        assert report.failure
        assert report.counts.get("accepted", 0) == 0
    assert given.accepted() == [1]
    given.reappear()
    assert drain(worker).failure == ""
    assert given.accepted() == [1, 2]
    assert given.is_settled()


def test_s09_state_that_dies_in_a_round_gives_the_round_up() -> None:
    """The reply of a decision is lost: nothing is acknowledged, the claim is changed, the messages come again."""
    given = Given()
    worker = given.worker("a")
    given.send(1)
    turn(worker)
    claim = worker.intake.tenure.claim
    given.send(2)
    with mock.patch.object(given.state, "decide", side_effect=StateUnavailable("down")):
        assert turn(worker).given_up == 1
    assert claim is not None
    assert worker.intake.tenure.claim != claim
    drain(worker)
    worker.close()
    assert sorted(given.accepted()) == [1, 2]
    assert given.is_settled()


def test_s09_a_store_that_refuses_writes_costs_messages_no_receives() -> None:
    """Disk full for many ticks: nobody receives what cannot be written, so nothing ends as received too often."""
    given = Given()
    worker = given.worker("a")
    given.send(1, 2)
    full = TransientError("disk full")
    with (
        mock.patch.object(given.store, "create", side_effect=full),
        mock.patch.object(given.store, "overwrite", side_effect=full),
    ):
        assert all(drain(worker).failure for _ in range(20))
    given.reappear()
    drain(worker)
    assert given.accepted() == [1, 2]
    assert given.reasons() == []


def test_s09_while_one_worker_rebuilds_the_others_say_so_and_wait() -> None:
    """It dies in the middle: when its lease is over, the next tick rebuilds, and everything is taken once."""
    given = Given()
    given.send(1)
    drain(given.worker("a"))
    given.state.forget_everything()
    given.send(2)
    with dying(given.state, "load", always, is_done=False):
        drain(given.worker("b"))
    waiting = given.worker("c")
    report = drain(waiting)
    assert "another worker is rebuilding" in report.failure
    assert report.counts.get("received", 0) == 0
    given.clock.sleep(LEASE_SECONDS + 1)
    assert drain(waiting).failure == ""
    given.reappear()
    drain(waiting)
    assert given.accepted() == [1, 2]
    assert given.is_settled()


@pytest.mark.parametrize("is_sealed", [True, False])
def test_s09_an_emptied_state_is_rebuilt_before_anything_is_decided(
    is_sealed: bool,  # noqa: FBT001 a column of the table
) -> None:
    """Committed comes back from manifests and unsealed segments; what comes again is known."""
    given = Given(age_seconds=1e6)
    worker = given.worker("a")
    given.send(1, 2, 3)
    (drain if is_sealed else turn)(worker)
    given.state.forget_everything()
    given.send(2, 4)
    drain(worker)
    assert given.committed() == 4
    assert sorted(given.accepted()) == [1, 2, 3, 4]
    assert given.reasons() == []
    assert given.is_settled()


def test_s11_crash_before_the_durable_write_loses_nothing() -> None:
    """Nothing was acknowledged, so everything comes again and is taken in."""
    given = Given()
    given.send(1, 2, 3)
    with dying(given.state, "decide", always, is_done=True):
        drain(given.worker("a"))
    assert given.accepted() == []
    given.reappear()
    drain(given.worker("b"))
    assert given.accepted() == [1, 2, 3]
    assert given.is_settled()


@pytest.mark.parametrize("is_settled", [True, False])
def test_s12_crash_after_the_durable_write_doubles_nothing(
    is_settled: bool,  # noqa: FBT001 a column of the table
) -> None:
    """The segment is there: its redelivered messages are safe duplicates, settled on the dead owner's behalf."""
    given = Given()
    given.send(1, 2, 3)
    with dying(given.state, "settle", always, is_done=is_settled):
        drain(given.worker("a"))
    given.reappear()
    b = given.worker("b")
    assert drain(b).counts == {"received": 3, "safe_duplicate": 3}
    given.clock.sleep(DEAD_AFTER_SECONDS + 1)
    drain(b)
    assert given.accepted() == [1, 2, 3]
    assert [batch.close_reason for batch in given.batches()] == ["adopted"]
    assert given.committed() == 3
    assert given.is_settled()


def test_s13_a_zombie_that_wakes_before_its_put_changes_nothing() -> None:
    """Its messages were taken over meanwhile: its late put meets an END, the round is dropped, the claim given up."""
    given = Given()
    a, b = given.worker("a"), given.worker("b")
    given.send(1, 2)
    real = given.store.create

    def overtaken(key: str, body: bytes) -> None:
        if is_segment(key):
            given.store.create = real
            given.reappear()
            assert drain(b).counts == {"received": 2, "accepted": 2}
        real(key, body)

    given.store.create = overtaken
    report = drain(a)
    assert report.given_up == 1
    assert "SlotTaken" in report.failure
    assert given.accepted() == [1, 2]
    assert given.is_settled()


def test_s13_a_zombie_that_wakes_after_its_put_doubles_nothing() -> None:
    """Its segment was settled on its behalf; its own settle and its expired receipts change nothing."""
    given = Given()
    a, b = given.worker("a"), given.worker("b")
    given.send(1, 2)
    real = given.state.settle

    def overtaken(life: str, calls: object) -> None:
        given.state.settle = real
        given.reappear()
        assert drain(b).counts == {"received": 2, "safe_duplicate": 2}
        real(life, calls)

    given.state.settle = overtaken
    drain(a)
    assert given.accepted() == [1, 2]
    assert given.is_settled()


def test_s13_a_living_worker_that_is_adopted_goes_on_under_a_new_claim() -> None:
    """A wrong judgement costs a claim, never a message."""
    given = Given(age_seconds=1e6)
    a = given.worker("a")
    given.send(1, 2)
    turn(a)
    drain(given.worker("b", is_gone=lambda _heartbeat, _now: True))
    assert len(given.batches()) == 1
    given.send(3)
    drain(a)
    assert sorted(given.accepted()) == [1, 2, 3]
    assert given.is_settled()
