"""A finding: what is so, how bad that is, and what to do about it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """ok and info ask for nothing; warn: it will hurt one day; error: it does not work, or loses rows."""

    OK = "ok"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"


class Finding(msgspec.Struct, frozen=True):
    """One fact about one part. Never row data."""

    severity: Severity
    part: str
    """settings | catalogue | disk | queue | state | store | warehouse | tables | drift"""
    what: str
    remedy: str = ""

    def line(self) -> str:
        """One line for people, a second one for the remedy."""
        remedy = f"\n{'':17}→ {self.remedy}" if self.remedy else ""
        return f"{self.severity.value:<5}  {self.part:<9} {self.what}{remedy}"


class Notes:
    """Makes the findings of one part."""

    def __init__(self, part: str) -> None:
        self._part = part

    def ok(self, what: str) -> Finding:
        """As it should be."""
        return Finding(Severity.OK, self._part, what)

    def info(self, what: str, remedy: str = "") -> Finding:
        """Worth knowing."""
        return Finding(Severity.INFO, self._part, what, remedy)

    def warn(self, what: str, remedy: str) -> Finding:
        """Will hurt one day."""
        return Finding(Severity.WARN, self._part, what, remedy)

    def error(self, what: str, remedy: str) -> Finding:
        """Does not work, or loses rows."""
        return Finding(Severity.ERROR, self._part, what, remedy)
