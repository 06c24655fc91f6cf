"""How long a FIFO group stays locked: receive → deleted."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kds_cdc_dagster.adapters.memory_inbox import MemoryQueue
from kds_cdc_dagster.adapters.object_store import open_local
from kds_cdc_dagster.clock import SystemClock
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.intake.collect import RoundLimits
from kds_cdc_dagster.ports import Acknowledgement
from kds_cdc_dagster_tests.bench.measure import Figure, percentile
from kds_cdc_dagster_tests.bench.sites import VISIBILITY_SECONDS, open_intake
from kds_cdc_dagster_tests.bench.workload import Workload
from kds_cdc_dagster_tests.servers import valkey

QUEUE_SECONDS, PUT_SECONDS = 0.010, 0.060
"""What a call takes over the network: SQS in the region, an S3 put."""


class _Timed:
    """The queue in memory, `delay` seconds away; notes how long each receive's messages were locked."""

    def __init__(self, queue: MemoryQueue, delay: float) -> None:
        self._queue = queue
        self._delay = delay
        self._received: dict[str, float] = {}
        self.locked_seconds: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def receive(self, *, max_messages: int, wait_seconds: float) -> list[Delivery]:
        time.sleep(self._delay / 2)
        found = self._queue.receive(max_messages=max_messages, wait_seconds=wait_seconds)
        self._received.update(dict.fromkeys((one.receipt for one in found), time.monotonic()))
        time.sleep(self._delay / 2)
        return found

    def acknowledge(self, receipts: Sequence[str]) -> Acknowledgement:
        time.sleep(self._delay / 2)
        answer = self._queue.acknowledge(receipts)
        now = time.monotonic()
        self.locked_seconds += [now - self._received.pop(receipt) for receipt in receipts]
        time.sleep(self._delay / 2)
        return answer


class _Far:
    """The store, with puts that take their time."""

    def __init__(self, store: Any, delay: float) -> None:
        self._store = store
        self._delay = delay

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, key: str, body: bytes) -> None:
        time.sleep(self._delay)
        self._store.create(key, body)


def lock(*, quick: bool) -> Iterator[Figure]:
    """Receive → deleted, of a worker that keeps up, and of one group alone as fast as it goes."""
    rounds = 30 if quick else 200
    near, _ = _locked(rounds, streams=20, queue_seconds=0.0, put_seconds=0.0)
    yield Figure("folder store, p50", percentile(near, 0.5) * 1e3, "ms", at_most=15.0)
    yield Figure("folder store, p99", percentile(near, 0.99) * 1e3, "ms", at_most=50.0)
    far, speed = _locked(rounds, streams=1, queue_seconds=QUEUE_SECONDS, put_seconds=PUT_SECONDS)
    yield Figure("10 ms a queue call, 60 ms a put, p50", percentile(far, 0.5) * 1e3, "ms", at_most=120.0)
    yield Figure("the same: one group's rate", speed, "/s", at_least=80.0)


def _locked(rounds: int, *, streams: int, queue_seconds: float, put_seconds: float) -> tuple[list[float], float]:
    with valkey() as server, tempfile.TemporaryDirectory() as folder:
        queue = MemoryQueue(clock=SystemClock(), visibility_seconds=VISIBILITY_SECONDS)
        inbox = _Timed(queue, queue_seconds)
        store = _Far(open_local(Path(folder) / "store", "bench", is_synced=True), put_seconds)
        site = open_intake(Path(folder), server.url, inbox=inbox, store=store)
        limits = RoundLimits(records_max=5_000, bytes_max=1 << 20, linger_seconds=0.0)
        workload = Workload(streams)
        queue.send(workload.messages(1, 1))
        site.drain(limits)  # scripts loaded
        inbox.locked_seconds.clear()
        started, count = time.monotonic(), 0
        for _ in range(rounds):
            queue.send(workload.messages(1, 10))
            count += site.drain(limits)
        return inbox.locked_seconds, count / (time.monotonic() - started)
