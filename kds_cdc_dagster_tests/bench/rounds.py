"""Intake rounds: rate of one worker, cost against the streams ever seen, Redis bytes of a marker."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kds_cdc_dagster.core.batch import CloseReason
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster_tests.bench.measure import RUNS, Figure, Span, middle, rate, span
from kds_cdc_dagster_tests.bench.sites import IntakeSite, check, open_intake, open_load
from kds_cdc_dagster_tests.bench.workload import Workload
from kds_cdc_dagster_tests.servers import ValkeyServer, valkey

SHAPES = ((500, 10, 20_000.0), (5_000, 1, 8_000.0))
"""Streams, messages of each in a round, target."""
ROUNDS = 5
"""Timed in one run."""


def rounds(*, quick: bool) -> Iterator[Figure]:
    """Decode, validate, decide, segment, settle, acknowledge: one worker, 5,000 received messages a round."""
    for streams, each, target in SHAPES:
        spans = [_run(streams, each) for _ in range(1 if quick else RUNS)]
        yield rate(f"round of {streams} streams × {each}", ROUNDS * streams * each, spans, at_least=target)


def _run(streams: int, each: int) -> Span:
    workload = Workload(streams)
    with valkey() as server, tempfile.TemporaryDirectory() as folder:
        site = open_intake(Path(folder), server.url)
        _take(site, workload, 1, each)  # caches warm, scripts loaded
        site.queue.send(workload.messages(ROUNDS, each))
        gc.freeze()  # what waits in memory here waits in a queue elsewhere: no collection looks at it there
        spans = [_round(site, streams * each) for _ in range(ROUNDS)]
        gc.unfreeze()
        site.intake.seal(CloseReason.DRAIN)
        _prove(site, Path(folder), workload)
    return Span(sum(one.seconds for one in spans), sum(one.cpu_seconds for one in spans))


def _round(site: IntakeSite, records: int) -> Span:
    deliveries: list[Delivery] = []
    while len(deliveries) < records:
        deliveries += site.queue.receive(max_messages=10, wait_seconds=0.0)
    with span() as taken:
        site.take(deliveries)
    return taken


def _take(site: IntakeSite, workload: Workload, count: int, each: int) -> None:
    site.queue.send(workload.messages(count, each))
    site.drain()


def _prove(site: IntakeSite, folder: Path, workload: Workload) -> None:
    load = open_load(folder, site.store)
    load.load_waiting()
    check(load.warehouse, workload)
    load.warehouse.close()


def streams(*, quick: bool) -> Iterator[Figure]:
    """What a message costs a worker and the server when 10² … 10⁵ streams were seen before."""
    with valkey() as server, tempfile.TemporaryDirectory() as folder:
        site = open_intake(Path(folder), server.url)
        seen = 0
        for target in (100, 1_000, 10_000, 100_000)[: 3 if quick else 4]:
            while seen < target:
                part = min(5_000, target - seen)
                _take(site, Workload(part, ids_from=1 + seen), 1, 1)
                seen += part
            yield from _cost(site, server, seen)
        yield from _marker_bytes(site, server)


def _cost(site: IntakeSite, server: ValkeyServer, seen: int) -> Iterator[Figure]:
    """Rounds of 1,000 streams that are among those seen, or all of them."""
    workload = Workload(100, ids_from=10_000_000 + seen)
    _take(site, workload, 1, 10)
    spans, busy = [], _server_seconds(server)
    for _ in range(RUNS):
        site.queue.send(workload.messages(1, 10))
        with span() as taken:
            site.drain()
        spans.append(taken)
    busy = (_server_seconds(server) - busy) / RUNS
    cost = min(s.cpu_seconds for s in spans) / 1_000
    note = f"wall {middle(spans).seconds * 1e3:.1f} µs; server {busy * 1e3:.1f} µs"
    yield Figure(f"cost of a message, {seen:,} streams ever seen", cost * 1e6, "µs CPU", note=note)


def _server_seconds(server: ValkeyServer) -> float:
    found = server.client().info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def _marker_bytes(site: IntakeSite, server: ValkeyServer) -> Iterator[Figure]:
    """Growth of the server's memory by live markers alone: many messages of few streams."""
    workload = Workload(100, ids_from=20_000_000)
    _take(site, workload, 1, 10)
    before = server.client().info("memory")["used_memory"]
    _take(site, workload, 40, 10)
    after = server.client().info("memory")["used_memory"]
    yield Figure("Redis memory of a live marker", (after - before) / 40_000, "bytes", at_most=130.0)
