"""The SQS wire: our own signed JSON calls against a stub over real HTTP."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kds_cdc_dagster.adapters.sqs_access import SqsAccess
from kds_cdc_dagster.adapters.sqs_inbox import SqsInbox
from kds_cdc_dagster.adapters.sqs_wire import SqsWire
from kds_cdc_dagster.clock import SystemClock
from kds_cdc_dagster.intake.receivers import PumpPolicy, ReceivePump
from kds_cdc_dagster_tests.bench.measure import RUNS, Figure, Span, span
from kds_cdc_dagster_tests.bench.sites import ROUND, VISIBILITY_SECONDS, open_intake
from kds_cdc_dagster_tests.bench.workload import Workload
from kds_cdc_dagster_tests.servers import valkey
from kds_cdc_dagster_tests.sqs_stub import SqsStub
from kds_cdc_dagster_tests.sqs_stub_queue import StubQueue

RECEIVERS = 8
STREAMS = 500


def sqs(*, quick: bool) -> Iterator[Figure]:
    """Messages of about 900 bytes from a stub in another process; CPU is this process's alone, without connecting."""
    each = 4 if quick else 20
    count = STREAMS * each
    wire = _middle([_received(each) for _ in range(1 if quick else RUNS)])
    whole = _middle([_taken_in(each) for _ in range(1 if quick else RUNS)])
    yield Figure("receive and delete alone", count / wire.span.cpu_seconds, "/s·core", note=wire.shares(count))
    note = f"{whole.shares(count)}; wall {count / whole.span.seconds:,.0f}/s beside the stub"
    yield Figure("whole rounds over SQS", count / whole.span.cpu_seconds, "/s·core", at_least=2_000.0, note=note)


@dataclass(frozen=True, slots=True)
class _Drain:
    """How long a drain took, and what of its CPU time was in calls, by action."""

    span: Span
    calls_seconds: Mapping[str, float]

    def shares(self, count: int) -> str:
        """CPU of a message, and its parts."""
        calls = [self.calls_seconds[action] for action in ("ReceiveMessage", "DeleteMessageBatch")]
        parts = [self.span.cpu_seconds, *calls, self.span.cpu_seconds - sum(calls)]
        whole, receive, delete, rest = (seconds / count * 1e6 for seconds in parts)
        return (
            f"{whole:.0f} µs of CPU each: {receive:.0f} receive calls, {delete:.0f} delete calls, {rest:.0f} the rest"
        )


class _TimedWire(SqsWire):
    """Adds up the CPU time of its calls."""

    def __init__(self, access: SqsAccess) -> None:
        super().__init__(access, clock=SystemClock(), connections_max=2 * RECEIVERS)
        self._adding = threading.Lock()
        self.calls_seconds: defaultdict[str, float] = defaultdict(float)

    def call(self, action: str, body: Mapping[str, Any], *, wait_seconds: float = 0.0) -> bytes:
        """As ever."""
        started = time.thread_time()
        try:
            return super().call(action, body, wait_seconds=wait_seconds)
        finally:
            with self._adding:
                self.calls_seconds[action] += time.thread_time() - started


def _middle(drains: list[_Drain]) -> _Drain:
    return sorted(drains, key=lambda one: one.span.cpu_seconds)[len(drains) // 2]


def _received(each: int) -> _Drain:
    with _queue(each) as (inbox, wire), span() as taken:
        left = STREAMS * each
        while left:
            found = inbox.receive(max_messages=10, wait_seconds=1.0)
            left -= len(inbox.acknowledge([one.receipt for one in found]).confirmed)
    return _Drain(taken, wire.calls_seconds)


def _taken_in(each: int) -> _Drain:
    with _queue(each) as (inbox, wire), valkey() as server, tempfile.TemporaryDirectory() as folder:
        site = open_intake(Path(folder), server.url, inbox=inbox)
        policy = PumpPolicy(receivers=RECEIVERS, wait_seconds=1.0, age_max_seconds=60.0)
        pump = ReceivePump(inbox, ROUND, policy)
        left = STREAMS * each
        with span() as taken:
            while left:
                if deliveries := pump.collect(1.0):
                    left -= site.intake.round(deliveries)["received"]
        pump.close()
    return _Drain(taken, wire.calls_seconds)


@contextmanager
def _queue(each: int) -> Iterator[tuple[SqsInbox, _TimedWire]]:
    os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_REGION="eu-west-1")
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(each, theirs), daemon=True)
    server.start()
    address, url = ours.recv()
    wire = _TimedWire(SqsAccess(url, endpoint_url=address))
    inbox = SqsInbox(wire, visibility_seconds=VISIBILITY_SECONDS, parallel=RECEIVERS)
    inbox.depth()  # finding credentials takes half a second, once for a process
    try:
        yield inbox, wire
    finally:
        inbox.close()
        ours.send(None)
        server.join()


def _serve(each: int, parent: Connection[Any, Any]) -> None:
    queue = StubQueue()
    for message in Workload(STREAMS).messages(1, each):
        queue.put(message.group_id, message.body, message.dedup_id)
    with SqsStub({"kds.fifo": queue}, is_recording=False) as stub:
        parent.send((stub.endpoint, stub.url()))
        parent.recv()
