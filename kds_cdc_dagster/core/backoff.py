"""How long to pause between tries: doubling up to a longest pause, jittered between half and whole."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Tries and pauses of one kind of call."""

    tries_max: int = 5
    first_seconds: float = 0.1
    longest_seconds: float = 2.0

    def pause_seconds(self, failures: int, dice: float) -> float:
        """Pause after so many failures in a row (≥ 1); `dice` from 0 to 1 spreads callers apart."""
        whole = min(self.longest_seconds, self.first_seconds * 2.0 ** min(failures - 1, 30))
        return whole * (0.5 + dice / 2)
