"""Figures: measured, compared with their targets, printed. Times are wall clock unless they say CPU."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    """Rate of `count` a span; the note has the CPU time, in which other load counts less."""
    taken = middle(spans)
    note = (
        f"{taken.cpu_seconds / count * 1e6:.1f} µs CPU each, {count / min(s.cpu_seconds for s in spans):,.0f}/s of CPU"
    )
    return Figure(name, count / taken.seconds, "/s", at_least=at_least, note=note)


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def peak_mebibytes() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def conditions() -> str:
    """What else the machine does, and how fast plain Python is on it now (an idle one of ours: about 7 ms)."""
    best = min(_timed(_loop) for _ in range(9))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{os.cpu_count()} CPUs, load {load}; a loop of 200,000 additions takes {best * 1000:.1f} ms of CPU"


def _loop() -> None:
    total = 0
    for number in range(200_000):
        total += number & 7


def _timed(act: Callable[[], None]) -> float:
    with span() as taken:
        act()
    return taken.cpu_seconds
