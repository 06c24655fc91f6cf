"""Figures: measured, compared with their targets, printed. Times are wall clock unless they say CPU."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

RUNS = 3
"""Every rate is the median of so many runs (`--quick`: of one)."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. `at_least` or `at_most`: its target, if it has one."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    def line(self) -> str:
        """As it is printed."""
        target = ""
        if self.at_least is not None:
            target = f"≥ {_text(self.at_least):>7} {'ok' if self.value >= self.at_least else 'MISSED'}"
        elif self.at_most is not None:
            target = f"≤ {_text(self.at_most):>7} {'ok' if self.value <= self.at_most else 'MISSED'}"
        return f"  {self.name:<58} {_text(self.value):>10} {self.unit:<8} {target:<17} {self.note}".rstrip()


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}"


@dataclass(slots=True)
class Span:
    """How long something took, by the wall and of this process's CPUs."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0


@contextmanager
def span() -> Iterator[Span]:
    """Time the block."""
    found = Span()
    cpu, wall = time.process_time(), time.perf_counter()
    try:
        yield found
    finally:
        found.seconds, found.cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu


def middle(spans: list[Span]) -> Span:
    """Median of each."""
    return Span(median(s.seconds for s in spans), median(s.cpu_seconds for s in spans))


def rate(name: str, count: int, spans: list[Span], *, at_least: float | None = None) -> Figure:
    """Rate of `count` a span, by its median; the note has the best one and the CPU time."""
    taken = middle(spans)
    best = count / min(one.seconds for one in spans)
    note = f"best {best:,.0f}/s; {taken.cpu_seconds / count * 1e6:.1f} µs of CPU each"
    return Figure(name, count / taken.seconds, "/s", at_least=at_least, note=note)


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def peak_mebibytes() -> float:
    """Largest resident memory of this process so far. (`getrusage` would count its parent's, too, after a spawn.)"""
    status = Path("/proc/self/status").read_text("ascii")
    return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0]) / 1024


def conditions() -> str:
    """What else the machine does, and how fast Python is on it now: with JSON, as a loop of numbers says too little."""
    best = min(_timed(_work) for _ in range(9))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{os.cpu_count()} CPUs, load {load}; {PACE} small documents read and written take {best * 1000:.1f} ms of CPU"
    )


PACE = 2_000


def _work() -> None:
    row = {f"column_{number}": f"value {number}" for number in range(20)}
    for number in range(PACE):
        row["number"] = str(number)
        json.dumps(json.loads(json.dumps(row)), sort_keys=True)


def _timed(act: Callable[[], None]) -> float:
    with span() as taken:
        act()
    return taken.cpu_seconds
