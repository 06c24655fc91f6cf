"""A claim: the identity of one single-threaded incarnation of a worker, with its own log.

A restart, or any doubt whether the last turn is still running, takes a new one. Claim ids are never
reused.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kds_cdc_dagster.journal.keys import SegmentId


@dataclass(slots=True)
class Claim:
    """Id, next free slot, and the floors of rule F."""

    id: str
    started_at: float
    next_slot: int = 1
    floors: dict[tuple[str, str], str] = field(default_factory=dict)
    """(source, stream) -> highest stream order this claim has itself put: it never accepts below it,
    even if the state store forgot."""

    @property
    def segment(self) -> SegmentId:
        """The slot that the next put uses up."""
        return SegmentId(self.id, self.next_slot)


def new_claim(worker: str, now: float, token: str | None = None) -> Claim:
    """A fresh claim; its id sorts by start and tells the worker."""
    started = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%S")
    return Claim(f"{started}-{worker}-{token or secrets.token_hex(4)}", now)
