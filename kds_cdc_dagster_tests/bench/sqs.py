"""The SQS wire: our own signed JSON calls against a stub over real HTTP."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kds_cdc_dagster.adapters.sqs_access import SqsAccess
from kds_cdc_dagster.adapters.sqs_inbox import SqsInbox
from kds_cdc_dagster.adapters.sqs_wire import SqsWire
from kds_cdc_dagster.clock import SystemClock
from kds_cdc_dagster.intake.receivers import PumpPolicy, ReceivePump
from kds_cdc_dagster_tests.bench.measure import RUNS, Figure, Span, middle, span
from kds_cdc_dagster_tests.bench.sites import ROUND, VISIBILITY_SECONDS, open_intake
from kds_cdc_dagster_tests.bench.workload import Workload
from kds_cdc_dagster_tests.servers import valkey
from kds_cdc_dagster_tests.sqs_stub import SqsStub
from kds_cdc_dagster_tests.sqs_stub_queue import StubQueue

RECEIVERS = 8
STREAMS = 500


def sqs(*, quick: bool) -> Iterator[Figure]:
    """Messages of about 900 bytes from a stub in another process; CPU is this process's alone."""
    each = 4 if quick else 20
    count = STREAMS * each
    wire = middle([_received(each) for _ in range(1 if quick else RUNS)])
    whole = middle([_taken_in(each) for _ in range(1 if quick else RUNS)])
    share = f"{wire.cpu_seconds / count * 1e6:.0f} µs of CPU each"
    yield Figure("receive and delete alone", count / wire.cpu_seconds, "/s·core", note=share)
    share = f"{whole.cpu_seconds / count * 1e6:.0f} µs of CPU each; wall {count / whole.seconds:,.0f}/s beside the stub"
    yield Figure("whole rounds over SQS", count / whole.cpu_seconds, "/s·core", at_least=2_000.0, note=share)


def _received(each: int) -> Span:
    with _queue(each) as inbox, span() as taken:
        left = STREAMS * each
        while left:
            found = inbox.receive(max_messages=10, wait_seconds=1.0)
            left -= len(inbox.acknowledge([one.receipt for one in found]).confirmed)
    return taken


def _taken_in(each: int) -> Span:
    with _queue(each) as inbox, valkey() as server, tempfile.TemporaryDirectory() as folder:
        site = open_intake(Path(folder), server.url, inbox=inbox)
        policy = PumpPolicy(receivers=RECEIVERS, wait_seconds=1.0, age_max_seconds=60.0)
        pump = ReceivePump(inbox, ROUND, policy)
        left = STREAMS * each
        with span() as taken:
            while left:
                if deliveries := pump.collect(1.0):
                    left -= site.intake.round(deliveries)["received"]
        pump.close()
    return taken


@contextmanager
def _queue(each: int) -> Iterator[SqsInbox]:
    os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_REGION="eu-west-1")
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(each, theirs), daemon=True)
    server.start()
    address, url = ours.recv()
    wire = SqsWire(SqsAccess(url, endpoint_url=address), clock=SystemClock(), connections_max=2 * RECEIVERS)
    inbox = SqsInbox(wire, visibility_seconds=VISIBILITY_SECONDS, parallel=RECEIVERS)
    try:
        yield inbox
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
