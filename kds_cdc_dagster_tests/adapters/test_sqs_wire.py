"""What the wire may answer, and what a receive asks for."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kds_cdc_dagster.adapters import sqs_wire
from kds_cdc_dagster.adapters.sqs_access import SqsAccess
from kds_cdc_dagster.adapters.sqs_inbox import SqsInbox
from kds_cdc_dagster.adapters.sqs_wire import SqsWire
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.errors import SettingsError, TransientError
from kds_cdc_dagster_tests.adapters.sqs_given import (
    attempt_ids,
    fill,
    open_inbox,
    receipts,
    receive,
)
from kds_cdc_dagster_tests.contracts.clocks import ManualClock
from kds_cdc_dagster_tests.sqs_stub import Fault, SqsStub
from kds_cdc_dagster_tests.sqs_stub_queue import StubQueue


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


@pytest.mark.parametrize(
    ("code", "status"), [("ThrottlingException", 400), ("RequestThrottled", 403), ("Whatever", 503), ("Odd", 429)]
)
def test_throttling_and_server_faults_are_retried_with_growing_pauses(stub: SqsStub, code: str, status: int) -> None:
    """Two bad answers, then the messages; the clock moved on by two jittered pauses."""
    fill(stub, 1)
    clock = ManualClock(time.time())
    started = clock.now()
    stub.faults += [Fault("ReceiveMessage", code=code, status=status) for _ in range(2)]
    assert len(receive(open_inbox(stub, clock))) == 1
    assert 0.015 <= clock.now() - started <= 0.03


@pytest.mark.parametrize("code", ["AccessDeniedException", "QueueDoesNotExist", "InvalidSignatureException"])
def test_a_refused_call_names_the_deployers_fault_at_once(stub: SqsStub, code: str) -> None:
    """Wrong queue, rights or keys: SettingsError after one try, with the code and no retry."""
    stub.faults.append(Fault("ReceiveMessage", code=code))
    with pytest.raises(SettingsError, match=code.removesuffix("Exception")):
        receive(open_inbox(stub))
    assert stub.counts["ReceiveMessage"] == 1


def test_nobody_listening_is_a_transient_error(stub: SqsStub) -> None:
    """A refused connection is retried, then raised as transient; acknowledge refuses instead of raising."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    access = SqsAccess(stub.url(), endpoint_url=f"http://127.0.0.1:{port}")
    inbox = SqsInbox(SqsWire(access, clock=ManualClock(time.time())), visibility_seconds=60)
    with pytest.raises(TransientError, match="no reply"):
        receive(inbox)
    assert inbox.acknowledge(["m-1/1"]).refused == {"m-1/1": "no reply from SQS"}


def test_a_long_poll_is_not_taken_for_a_lost_reply(stub: SqsStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time allowed for a reply comes on top of the wait that was asked for; a reply slower than both is lost."""
    monkeypatch.setattr(sqs_wire, "REPLY_SECONDS", 0.4)
    inbox = open_inbox(stub)
    assert receive(inbox, wait_seconds=1) == []
    assert inbox.counts() == {}
    monkeypatch.setattr(sqs_wire, "REPLY_SECONDS", -0.8)
    with pytest.raises(TransientError, match="TimeoutError"):
        receive(inbox, wait_seconds=1)


@pytest.mark.parametrize("reply", [{"Messages": "none"}, {"Messages": [{"Body": "b"}]}])
def test_a_receive_reply_that_cannot_be_read_counts_as_lost(stub: SqsStub, reply: dict[str, Any]) -> None:
    """Garbage in the middle of the way: the same id is asked again."""
    fill(stub, 1)
    stub.faults.append(Fault("ReceiveMessage", alter=lambda _reply: reply))
    assert len(receive(open_inbox(stub))) == 1
    assert len(set(attempt_ids(stub))) == 1


def test_missing_queue_evidence_is_left_empty_for_the_parser_to_reject(stub: SqsStub) -> None:
    """No attributes: empty group and number, never an invented one."""
    bare = {"Messages": [{"Body": "b", "MessageId": "m", "ReceiptHandle": "r"}]}
    stub.faults.append(Fault("ReceiveMessage", alter=lambda _reply: bare))
    assert receive(open_inbox(stub)) == [Delivery(b"b", "", "", "m", "r", 1, 0)]


def test_the_receive_asks_for_what_the_settings_say(stub: SqsStub) -> None:
    """Visibility of the settings, the wait in whole seconds, no more than ten, and all FIFO evidence."""
    fill(stub, 1)
    open_inbox(stub, visibility_seconds=44.5).receive(max_messages=50, wait_seconds=0.2)
    (body,) = stub.bodies_of("ReceiveMessage")
    assert (body["VisibilityTimeout"], body["WaitTimeSeconds"], body["MaxNumberOfMessages"]) == (45, 1, 10)
    assert {"MessageGroupId", "SequenceNumber", "ApproximateReceiveCount"} <= set(body["MessageSystemAttributeNames"])


def test_many_receivers_share_one_inbox_and_keep_the_order_of_every_group() -> None:
    """Six threads drain 40 groups of 25: every group's messages come once, in order."""
    queue = StubQueue()
    for n in range(1000):
        queue.put(f"g{n % 40}", str(n), str(n))
    seen: dict[str, list[int]] = {}
    with SqsStub({"kds.fifo": queue}, is_recording=False) as stub:
        inbox = open_inbox(stub)

        def drain() -> None:
            while not inbox.depth().is_empty:
                held = receive(inbox)
                for one in held:
                    seen.setdefault(one.group_id, []).append(int(one.body))
                assert not inbox.acknowledge(receipts(held)).refused

        threads = [threading.Thread(target=drain) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert seen == {f"g{g}": list(range(g, 1000, 40)) for g in range(40)}


def test_a_queue_that_is_not_fifo_is_refused_by_name() -> None:
    """A standard queue keeps no order: refused before anything is opened."""
    with pytest.raises(SettingsError, match="KDS_CDC_SQS_QUEUE_URL"):
        SqsAccess("https://sqs.eu-west-1.amazonaws.com/111122223333/kds")
