"""The clock."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Time as an argument: the simulation moves it by hand."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; a virtual clock only moves on."""
        ...
