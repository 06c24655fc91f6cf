"""Deletes and visibility changes whose entries fail one by one (SQS-02, SQS-03, SQS-04)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kds_cdc_dagster.adapters.sqs_entries import UNKNOWN
from kds_cdc_dagster_tests.adapters.sqs_given import TRIES_MAX, fill, open_inbox, receipts, receive
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


def failing(*failed: dict[str, Any], drop: tuple[str, ...] = ()) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Change a batch reply: these ids failed, and those are not mentioned at all."""
    silent = {one["Id"] for one in failed} | set(drop)

    def alter(reply: dict[str, Any]) -> dict[str, Any]:
        return {"Successful": [one for one in reply["Successful"] if one["Id"] not in silent], "Failed": list(failed)}

    return alter


# --- SQS-02, SQS-03: deletes ----------------------------------------------------------------------


def test_sqs03_a_retryable_failure_is_retried_alone_and_a_sender_fault_is_refused(stub: SqsStub) -> None:
    """Of ten, id 3 (InternalError) is asked for again by itself; id 7 (bad handle) never again."""
    fill(stub)
    inbox = open_inbox(stub)
    held = receipts(receive(inbox))
    internal = {"Id": "3", "Code": "InternalError", "SenderFault": False}
    invalid = {"Id": "7", "Code": "ReceiptHandleIsInvalid", "SenderFault": True}
    stub.faults.append(Fault("DeleteMessageBatch", alter=failing(internal, invalid)))
    answer = inbox.acknowledge(held)
    assert answer.confirmed == set(held) - {held[7]}
    assert answer.refused == {held[7]: "ReceiptHandleIsInvalid"}
    first, second = stub.bodies_of("DeleteMessageBatch")
    assert len(first["Entries"]) == 10
    assert [(one["Id"], one["ReceiptHandle"]) for one in second["Entries"]] == [("3", held[3])]


def test_sqs03_a_failure_that_stays_is_refused_after_bounded_tries(stub: SqsStub) -> None:
    """An entry that keeps failing by the service's fault ends refused with its code."""
    fill(stub, 1)
    inbox = open_inbox(stub)
    held = receipts(receive(inbox))
    internal = {"Id": "0", "Code": "InternalError", "SenderFault": False}
    stub.faults += [Fault("DeleteMessageBatch", alter=failing(internal)) for _ in range(TRIES_MAX + 1)]
    assert inbox.acknowledge(held).refused == {held[0]: "InternalError"}
    assert stub.counts["DeleteMessageBatch"] == TRIES_MAX
    assert inbox.counts()["not_deleted"] == 1


@pytest.mark.parametrize(
    "reply", [{}, {"Successful": [], "Failed": []}, {"Successful": [{"Id": "99"}]}, {"Failed": [{"Id": "98"}]}]
)
def test_sqs03_an_answer_that_says_nothing_of_an_entry_confirms_nothing(stub: SqsStub, reply: dict[str, Any]) -> None:
    """Neither Successful nor Failed, or only strangers: unknown, so not confirmed."""
    fill(stub, 2)
    inbox = open_inbox(stub)
    held = receipts(receive(inbox))
    stub.faults.append(Fault("DeleteMessageBatch", alter=lambda _reply: reply))
    answer = inbox.acknowledge(held)
    assert answer.confirmed == frozenset()
    assert answer.refused == dict.fromkeys(held, UNKNOWN)


def test_sqs03_an_entry_named_in_both_lists_is_not_confirmed(stub: SqsStub) -> None:
    """Contradiction counts as failure."""
    fill(stub, 1)
    inbox = open_inbox(stub)
    held = receipts(receive(inbox))
    both = {"Successful": [{"Id": "0"}], "Failed": [{"Id": "0", "Code": "Odd", "SenderFault": True}]}
    stub.faults.append(Fault("DeleteMessageBatch", alter=lambda _reply: both))
    assert inbox.acknowledge(held).refused == {held[0]: "Odd"}


def test_sqs03_one_failing_call_does_not_touch_the_receipts_of_others(stub: SqsStub) -> None:
    """35 receipts are four calls in parallel; the one that is refused whole refuses its own ten only."""
    fill(stub, 35, groups=35)
    inbox = open_inbox(stub)
    held = [receipt for _ in range(4) for receipt in receipts(receive(inbox))]
    stub.faults.append(Fault("DeleteMessageBatch", code="AccessDeniedException"))
    answer = inbox.acknowledge(held)
    assert len(held) == 35
    assert len(answer.confirmed) in {25, 30}
    assert answer.confirmed | answer.refused.keys() == set(held)
    assert set(answer.refused.values()) == {"AccessDenied"}
    assert len(stub.queue.in_flight) == len(answer.refused)


def test_a_lost_delete_reply_is_asked_again_and_confirmed(stub: SqsStub) -> None:
    """Deleting twice by one handle is no error at the service: the second answer counts."""
    fill(stub, 2)
    inbox = open_inbox(stub)
    held = receipts(receive(inbox))
    stub.faults.append(Fault("DeleteMessageBatch", is_done=True))
    assert inbox.acknowledge(held).confirmed == set(held)
    assert stub.counts["DeleteMessageBatch"] == 2


def test_sqs02_a_handle_whose_time_is_over_is_refused_and_not_retried(stub: SqsStub) -> None:
    """Expired handles are an ordinary refusal, told once."""
    fill(stub, 1)
    inbox = open_inbox(stub, visibility_seconds=1)
    held = receipts(receive(inbox))
    stub.queue.now = lambda: time.time() + 2
    assert inbox.acknowledge(held).refused == {held[0]: "InvalidParameterValue"}
    assert stub.counts["DeleteMessageBatch"] == 1


def test_a_receipt_given_twice_is_sent_once(stub: SqsStub) -> None:
    """Repeats in a call are one entry, and no refusal."""
    fill(stub, 1)
    inbox = open_inbox(stub)
    held = receipts(receive(inbox))
    assert inbox.acknowledge(held * 3).confirmed == set(held)
    assert [len(one["Entries"]) for one in stub.bodies_of("DeleteMessageBatch")] == [1]


# --- SQS-04: visibility ---------------------------------------------------------------------------


def test_sqs04_an_extension_that_fails_once_is_tried_again_for_that_entry_only(stub: SqsStub) -> None:
    """Entry 4 is extended at the second try, the others once."""
    fill(stub)
    inbox = open_inbox(stub, visibility_seconds=5)
    held = receive(inbox)
    internal = {"Id": "4", "Code": "InternalError", "SenderFault": False}
    stub.faults.append(Fault("ChangeMessageVisibilityBatch", alter=failing(internal)))
    inbox.extend(receipts(held), 60)
    again = stub.bodies_of("ChangeMessageVisibilityBatch")[1]
    assert [one["ReceiptHandle"] for one in again["Entries"]] == [held[4].receipt]
    stub.queue.now = lambda: time.time() + 30
    assert inbox.acknowledge(receipts(held)).confirmed == set(receipts(held))


def test_sqs04_extensions_that_fail_for_good_are_counted_and_raise_nothing(stub: SqsStub) -> None:
    """Twelve hours after the first receive the service refuses: visible in the counts, nothing else."""
    fill(stub, 1)
    inbox = open_inbox(stub)
    held = receipts(receive(inbox))
    inbox.extend(held, 43_000)
    stub.queue.now = lambda: time.time() + 42_900
    inbox.extend(held, 600)
    assert inbox.counts() == {"not_extended": 1}
