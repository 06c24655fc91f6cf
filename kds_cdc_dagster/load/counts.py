"""Counts of a merge, added up over the ways that its keys take."""

from __future__ import annotations

import msgspec


class Sent(msgspec.Struct, frozen=True):
    """When the changes of written rows were sent, in seconds since 1970."""

    first: float | None = None
    total: float = 0.0
    count: int = 0

    @classmethod
    def of(cls, first: object, total: object, count: object) -> Sent:
        """From a row of MIN, SUM and COUNT, whose numbers have the types of the warehouse."""
        return cls(None if first is None else float(str(first)), float(str(total or 0)), int(str(count)))

    @property
    def average(self) -> float | None:
        """None without any."""
        return self.total / self.count if self.count else None

    def __add__(self, other: Sent) -> Sent:
        firsts = [first for first in (self.first, other.first) if first is not None]
        return Sent(min(firsts, default=None), self.total + other.total, self.count + other.count)


class Counts(msgspec.Struct, frozen=True):
    """Of some keys of a batch."""

    changes: int = 0
    keys: int = 0
    applied: int = 0
    """Keys whose row was written."""
    deleted: int = 0
    """Rows written as tombstones."""
    sent: Sent = Sent()

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.changes + other.changes,
            self.keys + other.keys,
            self.applied + other.applied,
            self.deleted + other.deleted,
            self.sent + other.sent,
        )
