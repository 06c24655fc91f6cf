"""Counts of what happened to deliveries, such that they close.

``received = accepted + safe_duplicate + parked + Σ rejected.* + Σ control.* + Σ given_up.*``

The same names with the prefix ``release.`` count deliveries that came from a held stream's park, not
from the queue. Counts ride in segments, are summed in manifests, and are proven by `intake.audit`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

RECEIVED = "received"
ACCEPTED = "accepted"
SAFE_DUPLICATE = "safe_duplicate"
PARKED = "parked"
REJECTED = "rejected."
CONTROL = "control."
GIVEN_UP = "given_up."
RELEASE = "release."
NOT_DELETED = "not_deleted"
"""Deliveries whose delete the queue refused: they come again. Informative, outside the equation."""


def outcomes(counts: Mapping[str, int], prefix: str = "") -> int:
    """Sum of all outcomes under `prefix`; equals the received count under it if the counts close."""
    families = (ACCEPTED, SAFE_DUPLICATE, PARKED)
    total = sum(counts.get(prefix + name, 0) for name in families)
    return total + sum(family_total(counts, prefix + name) for name in (REJECTED, CONTROL, GIVEN_UP))


def family_total(counts: Mapping[str, int], family: str) -> int:
    """Sum over all names that begin with `family`."""
    return sum(number for name, number in counts.items() if name.startswith(family))


def imbalance(counts: Mapping[str, int]) -> dict[str, int]:
    """Prefix -> received minus outcomes, for the prefixes that do not close."""
    found = {p: counts.get(p + RECEIVED, 0) - outcomes(counts, p) for p in ("", RELEASE)}
    return {prefix or "queue": gap for prefix, gap in found.items() if gap}


def total(*parts: Mapping[str, int]) -> dict[str, int]:
    """Sum of counts."""
    added: Counter[str] = Counter()
    for counts in parts:
        added.update(counts)
    return dict(added)
