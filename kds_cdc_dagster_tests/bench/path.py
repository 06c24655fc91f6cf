"""The whole path, enqueued → curated: intake and load as two processes, and the usual in-house worker beside it."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from kds_cdc_dagster.core.batch import CloseReason
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.intake.collect import RoundLimits
from kds_cdc_dagster_tests.bench.backlog import Backlog
from kds_cdc_dagster_tests.bench.measure import RUNS, Figure, peak_mebibytes
from kds_cdc_dagster_tests.bench.sites import check, open_intake, open_load
from kds_cdc_dagster_tests.bench.workload import Workload
from kds_cdc_dagster_tests.servers import valkey

STREAMS, EACH, BATCH = 500, 10, 10_000
ROUND = RoundLimits(STREAMS * EACH, 8 << 20, 0.25)
"""By count, so that two rounds are a batch, neither more nor less."""
POLL_SECONDS = 0.02
DUCKDB_MEGABYTES = 128
"""Of the load's process."""
MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Whole:
    """One run: seconds from the first send to the last commit, and what the processes took."""

    seconds: float
    cpu_seconds: tuple[float, float]
    """Of the intake and of the load; Valkey's is beside."""
    mebibytes: tuple[float, float]
    """Peaks of both."""


def path(*, quick: bool) -> Iterator[Figure]:
    """500 streams × 10 in turn, batches of 10,000, Valkey, folder, DuckDB; every row compared with the source."""
    rounds = 8 if quick else 40
    count = rounds * STREAMS * EACH
    ours = [_ours(rounds) for _ in range(1 if quick else RUNS)]
    speed = count / median(run.seconds for run in ours)
    taking, loading = (median(run.cpu_seconds[which] for run in ours) / count * 1e6 for which in (0, 1))
    share = f"CPU each: intake {taking:.1f} µs, load {loading:.1f} µs"
    yield Figure("whole path, two processes", speed, "/s", at_least=20_000.0, note=share)
    largest = max((run.mebibytes for run in ours), key=sum)
    share = f"intake {largest[0]:.0f}, load {largest[1]:.0f}, of which DuckDB may use {DUCKDB_MEGABYTES} MB"
    yield Figure("memory of both at their peaks", sum(largest), "MiB", at_most=600.0, note=share)
    few = max(1, rounds // 8)
    theirs = [_baseline(few) for _ in range(1 if quick else RUNS)]
    theirs_speed = few * STREAMS * EACH / median(theirs)
    yield Figure("usual in-house worker, same messages, no guarantees", theirs_speed, "/s")
    yield Figure("ratio", speed / theirs_speed, "times", at_least=5.0)


def _ours(rounds: int) -> Whole:
    with valkey() as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        workload = _written(folder / MESSAGES, rounds + 1)
        context = multiprocessing.get_context("spawn")
        ends = [context.Pipe() for _ in range(2)]
        processes = [
            context.Process(target=_take_in, args=(folder, server.url, rounds, ends[0][1])),
            context.Process(target=_load, args=(folder, ends[1][1])),
        ]
        for process in processes:
            process.start()
        taker, loader = (ours for ours, _ in ends)
        taker.recv()  # a first round is sealed: what a process does once is done
        loader.send(None), loader.recv()  # and loaded
        started = time.monotonic()
        taker.send(None), loader.send(None)
        taken = taker.recv()
        loader.send(None)  # what is in the outbox now is all
        loaded = loader.recv()
        seconds = time.monotonic() - started
        for process in processes:
            process.join()
        site = open_load(folder)
        check(site.warehouse, workload)
        site.warehouse.close()
        return Whole(seconds, (taken[0], loaded[0]), (taken[1], loaded[1]))


def _written(folder: Path, rounds: int) -> Workload:
    """Write the messages, a part of `STREAMS` × `EACH` to a file."""
    workload = Workload(STREAMS)
    folder.mkdir()
    for number in range(rounds):
        (folder / str(number)).write_bytes(msgspec.msgpack.encode(workload.deliveries(1, EACH)))
    return workload


def _parts(folder: Path, numbers: range) -> Iterator[list[Delivery]]:
    """Written messages, read as they are taken, so that they are not the intake's memory."""
    for number in numbers:
        yield msgspec.msgpack.decode((folder / str(number)).read_bytes(), type=list[Delivery])


def _take_in(folder: Path, redis_url: str, rounds: int, parent: Connection[Any, Any]) -> None:
    """The intake's process. It also fills the queue, always ahead of what it takes."""
    backlog = Backlog()
    site = open_intake(folder, redis_url, batch_records=BATCH, inbox=backlog)
    backlog.publish(_parts(folder / MESSAGES, range(1)))
    accepted = site.drain(ROUND)
    site.intake.seal(CloseReason.DRAIN)
    parent.send(None), parent.recv()
    cpu = time.process_time()
    backlog.publish(_parts(folder / MESSAGES, range(1, rounds + 1)))
    accepted += site.drain(ROUND)
    site.intake.seal(CloseReason.DRAIN)
    took = time.process_time() - cpu
    backlog.prove_empty()
    assert accepted == (rounds + 1) * STREAMS * EACH
    parent.send((took, peak_mebibytes()))


def _load(folder: Path, parent: Connection[Any, Any]) -> None:
    """The load's process: whatever waits in the outbox, until told that no more comes."""
    site = open_load(folder, duckdb_megabytes=DUCKDB_MEGABYTES)
    parent.recv()
    site.load_waiting()
    parent.send(None), parent.recv()
    cpu = time.process_time()
    is_last = False
    while not is_last:
        is_last = parent.poll()
        if not site.load_waiting() and not is_last:
            time.sleep(POLL_SECONDS)
    site.warehouse.close()
    parent.send((time.process_time() - cpu, peak_mebibytes()))


def _baseline(rounds: int) -> float:
    from kds_cdc_dagster_tests.bench import baseline  # pandas is no part of the processes above

    workload = Workload(STREAMS)
    with valkey() as server, tempfile.TemporaryDirectory() as name:
        return baseline.run(workload.deliveries(rounds, EACH), workload, server.url, Path(name))
