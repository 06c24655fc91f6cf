"""Ids of lives: a store that was emptied is told from the one before by its id.

An id begins with a number greater than that of every life seen before, so that of two rebuilds that
begin at once on a store of several parts the same one wins on every part.
"""

from __future__ import annotations

from uuid import uuid4

LEASE_SECONDS = 10.0
"""How long a rebuild is left alone after its begin or its last `load`. It saves work and nothing rests on it: a
rebuild that is overtaken loads into no other life."""


def next_life(latest: str) -> str:
    """A new id, greater as text than `latest` (empty: the store carries none)."""
    number = int(latest.split("-", 1)[0], 16) + 1 if latest else 1
    return f"{number:08x}-{uuid4().hex}"


def is_leased(until: float, now: float) -> bool:
    """Whether a lease that ends at `until` runs. One that ends far later than a lease can is of a wrong clock."""
    return now < until <= now + 2 * LEASE_SECONDS
