"""The real clock. Everything else takes time as an argument."""

from __future__ import annotations

import time


class SystemClock:
    """Wall-clock time."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
