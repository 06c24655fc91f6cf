"""Publishing to SQS: order inside a group whatever fails, and calls no larger than the service takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kds_cdc_dagster.adapters.sqs_access import SqsAccess
from kds_cdc_dagster.adapters.sqs_outbound import SqsOutbound
from kds_cdc_dagster.adapters.sqs_wire import SqsWire
from kds_cdc_dagster.core.backoff import Backoff
from kds_cdc_dagster.errors import TransientError
from kds_cdc_dagster.ports import Message
from kds_cdc_dagster_tests.contracts.clocks import ManualClock
from kds_cdc_dagster_tests.sqs_stub import Fault, SqsStub


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[SqsStub]:
    """A service of its own for each test, with keys to sign for it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with SqsStub() as running:
        yield running


def open_outbound(stub: SqsStub) -> SqsOutbound:
    """A publisher that tries three times."""
    access = SqsAccess(stub.url(), endpoint_url=stub.endpoint)
    return SqsOutbound(SqsWire(access, clock=ManualClock(time.time()), backoff=Backoff(tries_max=3)))


def messages(number: int, groups: int) -> list[Message]:
    """Numbered messages dealt out to groups."""
    return [Message(str(n), f"g{n % groups}", str(n)) for n in range(number)]


def stored(stub: SqsStub) -> dict[str, list[str]]:
    """Bodies of every group in the queue's order."""
    return {group: [one.body for one in found.values()] for group, found in stub.queue.groups.items()}


def first_fails(reply: dict[str, Any]) -> dict[str, Any]:
    """The first entry failed by the service's fault, the others were taken."""
    first, *others = reply["Successful"]
    return {"Successful": others, "Failed": [{"Id": first["Id"], "Code": "InternalError", "SenderFault": False}]}


def test_a_group_keeps_its_order_and_groups_share_calls(stub: SqsStub) -> None:
    """30 messages of 10 groups are three calls, and no call holds two of a group."""
    assert open_outbound(stub).send(messages(30, 10)) == 30
    assert stored(stub) == {f"g{g}": [str(n) for n in range(g, 30, 10)] for g in range(10)}
    calls = [[entry["MessageGroupId"] for entry in body["Entries"]] for body in stub.bodies_of("SendMessageBatch")]
    assert [len(call) for call in calls] == [10, 10, 10]
    assert all(len(set(call)) == len(call) for call in calls)


def test_a_failed_entry_goes_before_the_next_of_its_group(stub: SqsStub) -> None:
    """The service fails the first message of a group: it is sent again before the second is."""
    lost = Fault("SendMessageBatch", code="InternalFailure", status=500)
    stub.faults += [lost, Fault("SendMessageBatch", alter=first_fails)]
    assert open_outbound(stub).send(messages(4, 2)) == 4
    entries = [[entry["MessageBody"] for entry in body["Entries"]] for body in stub.bodies_of("SendMessageBatch")]
    assert entries == [["0", "1"], ["0", "1"], ["0"], ["2", "3"]]


def test_a_lost_reply_doubles_nothing(stub: SqsStub) -> None:
    """The call was done, its reply lost: the same deduplication ids keep the queue single."""
    stub.faults.append(Fault("SendMessageBatch", is_done=True))
    open_outbound(stub).send(messages(4, 4))
    assert stored(stub) == {f"g{n}": [str(n)] for n in range(4)}


def test_a_message_that_is_not_taken_stops_those_behind_it(stub: SqsStub) -> None:
    """After bounded tries the error tells how many went out; nothing later of any group did."""
    stub.faults += [Fault("SendMessageBatch", alter=first_fails) for _ in range(3)]
    with pytest.raises(TransientError, match=r"sent=1, reasons=InternalError"):
        open_outbound(stub).send(messages(6, 2))
    assert {entry["MessageBody"] for body in stub.bodies_of("SendMessageBatch") for entry in body["Entries"]} == {
        "0",
        "1",
    }


def test_large_bodies_do_not_share_a_call(stub: SqsStub) -> None:
    """All bodies of a call stay within its limit, counted in bytes."""
    bodies = ["é" * 300_000, "b" * 400_000, "c" * 100_000]
    assert open_outbound(stub).send([Message(body, f"g{n}", str(n)) for n, body in enumerate(bodies)]) == 3
    sizes = [
        sum(len(one["MessageBody"].encode()) for one in body["Entries"]) for body in stub.bodies_of("SendMessageBatch")
    ]
    assert sorted(sizes) == [100_000, 1_000_000]


def test_what_sqs_refuses_is_refused_before_anything_is_sent(stub: SqsStub) -> None:
    """An empty body in the middle: nothing goes out."""
    with pytest.raises(ValueError, match="message 1"):
        open_outbound(stub).send([Message("a", "g", "1"), Message("", "g", "2")])
    assert stub.calls == []
