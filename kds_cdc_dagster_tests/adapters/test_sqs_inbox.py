"""Receives over a wire that misbehaves, and closing (SQS-05, SQS-08, SQS-09)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.errors import SettingsError, TransientError
from kds_cdc_dagster_tests.adapters.sqs_given import (
    TRIES_MAX,
    attempt_ids,
    eventually,
    fill,
    open_inbox,
    receipts,
    receive,
)
from kds_cdc_dagster_tests.contracts.clocks import ManualClock
from kds_cdc_dagster_tests.sqs_stub import Fault, SqsStub


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)


@pytest.fixture
def stub() -> Iterator[SqsStub]:
    """A service of its own for each test."""
    with SqsStub() as running:
        yield running


# --- SQS-05: empty and full -----------------------------------------------------------------------


@pytest.mark.parametrize("is_silent", [True, False])
def test_sqs05_the_in_flight_cap_is_an_empty_answer_in_both_forms(stub: SqsStub, *, is_silent: bool) -> None:
    """At the cap a receive gives nothing and raises nothing; depth shows what waits; acknowledging opens it."""
    stub.queue.in_flight_max = 5
    stub.queue.is_cap_silent = is_silent
    fill(stub, 8, groups=8)
    inbox = open_inbox(stub)
    held = receive(inbox)
    assert len(held) == 5
    assert receive(inbox) == []
    depth = inbox.depth()
    assert (depth.visible, depth.in_flight, depth.is_empty) == (3, 5, False)
    inbox.acknowledge(receipts(held))
    assert len(receive(inbox)) == 3


def test_sqs05_an_over_limit_answer_does_not_spin(stub: SqsStub) -> None:
    """The error comes at once, so the answer is held back for a moment of the wait."""
    clock = ManualClock(time.time())
    stub.faults.append(Fault("ReceiveMessage", code="OverLimit"))
    started = clock.now()
    inbox = open_inbox(stub, clock)
    assert receive(inbox, wait_seconds=20) == []
    assert clock.now() - started == pytest.approx(1.0)
    assert inbox.counts()["full"] == 1


def test_sqs05_delayed_messages_count_as_waiting(stub: SqsStub) -> None:
    """A queue with a delivery delay is not drained while messages are still to come."""
    delayed = {f"ApproximateNumberOfMessages{name}": number for name, number in [("", "0"), ("Delayed", "2")]}
    stub.faults.append(Fault("GetQueueAttributes", alter=lambda _reply: {"Attributes": delayed}))
    assert open_inbox(stub).depth().visible == 2


# --- SQS-08: closing ------------------------------------------------------------------------------


def test_sqs08_what_a_poll_brings_in_while_closing_goes_back_at_once(stub: SqsStub) -> None:
    """A ticket that arrives after close began reaches the next worker now, not when its visibility ends."""
    inbox = open_inbox(stub, visibility_seconds=900)
    found: list[list[Delivery]] = []
    poll = threading.Thread(target=lambda: found.append(receive(inbox, wait_seconds=5)))
    poll.start()
    eventually(lambda: stub.counts["ReceiveMessage"])
    closing = threading.Thread(target=inbox.close)
    closing.start()
    eventually(inbox._closing.is_set)
    fill(stub, 3)
    closing.join(5)
    poll.join(5)
    assert not closing.is_alive()
    assert found == [[]]
    assert [one.body for one in receive(open_inbox(stub))] == [b"body 0", b"body 1", b"body 2"]


def test_sqs08_a_lost_reply_while_closing_is_fetched_again_and_given_back(stub: SqsStub) -> None:
    """Messages handed to a reply that was lost are not left in the dark by a close."""
    fill(stub, 2)
    inbox = open_inbox(stub, visibility_seconds=900)
    stub.faults.append(Fault("ReceiveMessage", is_done=True))
    inbox._wire.pause = lambda _failures: inbox._closing.set()  # type: ignore[method-assign]
    assert receive(inbox, wait_seconds=5) == []
    assert [body["WaitTimeSeconds"] for body in stub.bodies_of("ReceiveMessage")] == [5, 0]
    assert len(receive(open_inbox(stub))) == 2


def test_a_closed_inbox_still_acknowledges(stub: SqsStub) -> None:
    """The round under way at close must be able to delete its messages, also in several calls."""
    fill(stub, 25, groups=25)
    inbox = open_inbox(stub)
    held = [receipt for _ in range(3) for receipt in receipts(receive(inbox))]
    inbox.close()
    assert inbox.acknowledge(held).confirmed == set(held)
    assert stub.queue.visible == 0


# --- SQS-09: attempt ids --------------------------------------------------------------------------


def test_sqs09_a_lost_reply_is_fetched_again_by_its_id(stub: SqsStub) -> None:
    """The same three messages with the same handles come at once, received once."""
    fill(stub, 3)
    stub.faults.append(Fault("ReceiveMessage", is_done=True))
    inbox = open_inbox(stub)
    held = receive(inbox)
    assert [(one.body, one.receive_count) for one in held] == [(f"body {n}".encode(), 1) for n in range(3)]
    first, second = attempt_ids(stub)
    assert first == second
    assert inbox.acknowledge(receipts(held)).confirmed == set(receipts(held))


def test_sqs09_answered_receives_never_share_an_id(stub: SqsStub) -> None:
    """An id whose reply came is not used again, with or without messages in it."""
    fill(stub, 3, groups=3)
    inbox = open_inbox(stub)
    for _ in range(4):
        inbox.receive(max_messages=1, wait_seconds=0)
    assert len(set(attempt_ids(stub))) == 4


def test_sqs09_an_id_whose_messages_were_touched_gives_way_to_a_fresh_one(stub: SqsStub) -> None:
    """InvalidParameterValue for a reused id is no error: the messages come again later."""
    fill(stub, 3)
    stub.faults += [Fault("ReceiveMessage", is_done=True), Fault("ReceiveMessage", code="InvalidParameterValue")]
    inbox = open_inbox(stub)
    assert receive(inbox) == []
    first, second, third = attempt_ids(stub)
    assert first == second != third
    assert inbox.counts() == {"transient": 1, "refused": 1, "attempt_refused": 1}


def test_sqs09_an_id_is_not_reused_after_five_minutes(stub: SqsStub) -> None:
    """The next receive after a long outage starts with a fresh id."""
    clock = ManualClock(time.time())
    inbox = open_inbox(stub, clock)
    stub.faults += [Fault("ReceiveMessage") for _ in range(TRIES_MAX)]
    with pytest.raises(TransientError):
        receive(inbox)
    clock.sleep(301)
    receive(inbox)
    *lost, fresh = attempt_ids(stub)
    assert len(set(lost)) == 1
    assert fresh not in lost


def test_sqs09_an_id_lost_in_one_call_is_taken_up_by_the_next(stub: SqsStub) -> None:
    """Tries used up do not strand the messages: the next receive asks for them first."""
    fill(stub, 2)
    inbox = open_inbox(stub)
    stub.faults += [Fault("ReceiveMessage", is_done=True), *[Fault("ReceiveMessage") for _ in range(TRIES_MAX - 1)]]
    with pytest.raises(TransientError):
        receive(inbox)
    assert [one.receive_count for one in receive(inbox)] == [1, 1]


def test_an_invalid_parameter_of_a_fresh_id_is_a_settings_error(stub: SqsStub) -> None:
    """Only a reused id excuses the code; otherwise it would be retried for ever."""
    stub.faults += [Fault("ReceiveMessage", code="InvalidParameterValue")]
    with pytest.raises(SettingsError, match="InvalidParameterValue"):
        receive(open_inbox(stub))
