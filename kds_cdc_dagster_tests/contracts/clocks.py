"""Clocks for tests: one moved by hand, and the real one."""

from __future__ import annotations

import time


class ManualClock:
    """Virtual time, seconds; sleeping moves it on."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += max(0.0, seconds)

    def turn_back(self, seconds: float) -> None:
        """What a correction of a wrong clock does."""
        self._now -= seconds


class WallClock:
    """Real time."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
