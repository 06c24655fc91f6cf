"""What the tests of the SQS adapter start from."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kds_cdc_dagster.adapters.sqs_access import SqsAccess
from kds_cdc_dagster.adapters.sqs_inbox import SqsInbox
from kds_cdc_dagster.adapters.sqs_wire import SqsWire
from kds_cdc_dagster.core.backoff import Backoff
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.ports import Clock
from kds_cdc_dagster_tests.contracts.clocks import WallClock
from kds_cdc_dagster_tests.sqs_stub import SqsStub

TRIES_MAX = 3


def open_inbox(stub: SqsStub, clock: Clock | None = None, **options: Any) -> SqsInbox:
    """An inbox of the stub's queue that does not pause long."""
    backoff = Backoff(TRIES_MAX, first_seconds=0.01, longest_seconds=0.02)
    access = SqsAccess(stub.url(), endpoint_url=stub.endpoint)
    wire = SqsWire(access, clock=clock or WallClock(), backoff=backoff)
    return SqsInbox(wire, **{"visibility_seconds": 60.0, **options})


def fill(stub: SqsStub, number: int = 10, *, groups: int = 1) -> None:
    """Put numbered messages, dealt out to groups."""
    for n in range(number):
        stub.queue.put(f"kds.ticket|{n % groups}", f"body {n}", f"dedup-{n}")


def receive(inbox: SqsInbox, wait_seconds: float = 0) -> list[Delivery]:
    """One receive of ten."""
    return inbox.receive(max_messages=10, wait_seconds=wait_seconds)


def receipts(deliveries: list[Delivery]) -> list[str]:
    """Their handles."""
    return [one.receipt for one in deliveries]


def eventually(is_true: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.005)


def attempt_ids(stub: SqsStub) -> list[str]:
    """Ids of all receives so far."""
    return [one["ReceiveRequestAttemptId"] for one in stub.bodies_of("ReceiveMessage")]
