"""The local queue between processes, against its twin in memory, and the twin's faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kds_cdc_dagster.adapters.local_inbox import LocalQueue
from kds_cdc_dagster.adapters.memory_inbox import MemoryQueue
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.errors import TransientError
from kds_cdc_dagster.ports import Message
from kds_cdc_dagster_tests.contracts.clocks import ManualClock, WallClock
from kds_cdc_dagster_tests.contracts.inbox_suite import bodies, receipts

_WORKER = """
import sys, time
from pathlib import Path
from kds_cdc_dagster.adapters.local_inbox import LocalQueue
from kds_cdc_dagster_tests.contracts.clocks import WallClock
queue = LocalQueue(Path(sys.argv[1]), clock=WallClock(), visibility_seconds=1.0)
print("ready", flush=True)
while not queue.depth().is_empty:
    asked = time.monotonic()
    got = queue.receive(max_messages=10, wait_seconds=0.2)
    for delivery in got:
        print(delivery.group_id, delivery.body.decode(), "received", asked, flush=True)
    if got:
        time.sleep(0.002)
        confirmed = queue.acknowledge([delivery.receipt for delivery in got]).confirmed
        known = time.monotonic()
        for delivery in got:
            if delivery.receipt in confirmed:
                print(delivery.group_id, delivery.body.decode(), "gone", known, flush=True)
"""


def _start(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _WORKER, str(path)], stdout=subprocess.PIPE, text=True)


def test_s14_processes_share_the_queue_and_one_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Three start at once, one is killed -9 at work: each message is gone once and for all, in order in its group."""
    path = tmp_path / "queue.db"
    queue = LocalQueue(path, clock=WallClock(), visibility_seconds=1.0)
    queue.send([Message(str(n), f"g{n % 20}", str(n)) for n in range(900)])
    workers = [_start(path) for _ in range(3)]
    try:
        assert workers[0].stdout is not None
        first = ""
        for _ in range(100):
            first += workers[0].stdout.readline()
        os.kill(workers[0].pid, signal.SIGKILL)
        printed = [worker.communicate(timeout=240)[0] for worker in workers]
        printed[0] = first + printed[0]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert queue.depth().is_empty
    queue.close()
    gone = [_events(text, "gone") for text in printed]
    # A worker that stalls for longer than the visibility hears late that a message is gone, from another's hand.
    gone_at: dict[str, float] = {}
    for _, body, known in chain(*gone):
        gone_at[body] = min(known, gone_at.get(body, known))
    assert len(gone_at) >= 900 - 10, "the killed one may have deleted one receive without saying so"
    received = chain(*(_events(text, "received") for text in printed))
    assert [body for _, body, asked in received if asked > gone_at.get(body, asked)] == []
    for lines in gone:
        for group in {group for group, _, _ in lines}:
            numbers = [int(body) for of, body, _ in lines if of == group]
            assert numbers == sorted(numbers)


def _events(printed: str, kind: str) -> list[tuple[str, str, float]]:
    """(group, body, when) of one worker's lines of a kind; when: asked for, or known to be gone."""
    lines = (line.split() for line in printed.splitlines())
    return [(line[0], line[1], float(line[3])) for line in lines if len(line) == 4 and line[2] == kind]


_STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 3), st.integers(0, 40)),
    st.tuples(st.just("receive"), st.integers(1, 10), st.just(0)),
    st.tuples(st.sampled_from(["acknowledge", "release", "extend"]), st.integers(0, 30), st.integers(1, 4)),
    st.tuples(st.just("sleep"), st.sampled_from([3, 7, 11, 300]), st.just(0)),
    st.tuples(st.just("redrive"), st.integers(1, 3), st.just(0)),
)


class _Run:
    """One queue on its way through the steps; answers name receipts by the order in which they were given out."""

    def __init__(self, queue: LocalQueue | MemoryQueue, clock: ManualClock) -> None:
        self.queue, self.clock = queue, clock
        self.receipts: list[str] = []

    def step(self, name: str, first: int, second: int) -> object:
        if name == "send":
            return self.queue.send([Message("x", f"g{first}", f"d{second + n}") for n in range(3)])
        if name == "receive":
            return [self._told(d) for d in self.queue.receive(max_messages=first, wait_seconds=0)]
        if name == "redrive":
            return self.queue.redrive(limit=first)
        if name == "sleep":
            return self.clock.sleep(first)
        chosen = self.receipts[-1 - first :][:second]
        if name == "acknowledge":
            answer = self.queue.acknowledge(chosen)
            return [answer.refused.get(receipt, "confirmed") for receipt in chosen]
        return self.queue.release(chosen) if name == "release" else self.queue.extend(chosen, 15)

    def _told(self, delivery: Delivery) -> tuple[object, ...]:
        self.receipts.append(delivery.receipt)
        return (delivery.group_id, delivery.sequence_number, delivery.receive_count, delivery.sent_at_ms)

    def look(self) -> object:
        letters = [(d.sequence_number, d.receive_count, d.died_at) for d in self.queue.dead_letters()]
        return self.queue.depth(), self.queue.locked_groups(), letters


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_STEPS, max_size=40))
@example(
    [("send", 0, 0), ("receive", 2, 0), ("sleep", 11, 0), ("receive", 1, 0), ("sleep", 11, 0), ("receive", 1, 0)]
)  # the head died, what follows it was in flight before
def test_the_queue_on_disk_and_the_one_in_memory_give_the_same_answers(steps: list[tuple[str, int, int]]) -> None:
    """Whatever is done to them, in whatever order, step by step."""
    limits = {"visibility_seconds": 10.0, "dead_letter_after": 2, "in_flight_max": 12}
    with TemporaryDirectory() as folder:
        clocks = ManualClock(), ManualClock()
        disk = LocalQueue(Path(folder) / "queue.db", clock=clocks[0], **limits)
        runs = _Run(disk, clocks[0]), _Run(MemoryQueue(clock=clocks[1], **limits), clocks[1])
        for step in steps:
            answers = [(run.step(*step), run.look()) for run in runs]
            assert answers[0] == answers[1]
        disk.close()


def test_faults_of_the_memory_queue_strike_as_told() -> None:
    """Lost receive: in flight all the same. Refused: still there. Lost confirmation: gone all the same."""
    clock = ManualClock()
    queue = MemoryQueue(clock=clock, visibility_seconds=30)
    queue.send([Message(text, "g", text) for text in "abc"])
    queue.faults.is_receive_lost = lambda _: True
    with pytest.raises(TransientError):
        queue.receive(max_messages=10, wait_seconds=0)
    assert queue.depth().in_flight == 3
    queue.faults.is_receive_lost = lambda _: False
    clock.sleep(31)
    a, b, c = receipts(queue.receive(max_messages=10, wait_seconds=0))
    queue.faults.is_acknowledge_refused = lambda receipt: receipt == a
    queue.faults.is_confirmation_lost = lambda receipt: receipt == b
    assert queue.acknowledge([a, b, c]).confirmed == {c}
    clock.sleep(31)
    assert bodies(queue.receive(max_messages=10, wait_seconds=0)) == ["a"]
