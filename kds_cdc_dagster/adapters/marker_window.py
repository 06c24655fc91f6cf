"""How long duplicate markers live, in whole buckets: one rule for every state store.

A committed marker lives for the duplicate window and at most one bucket longer; a pending one for one
to two windows. Older messages are answered by the durable index, so a marker that dies early (or a
worker whose clock is a bucket off) costs a look-up, never a wrong answer.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MarkerWindow:
    """Duplicate window and bucket width. All times are seconds since the epoch."""

    window_seconds: int = 3600
    bucket_seconds: int = 900
    """Wide buckets mean few look-ups a message; narrow ones let markers die nearer to the window's end."""

    def bucket(self, now: float) -> int:
        """Number of the bucket into which a marker committed at `now` goes."""
        return int(now // self.bucket_seconds)

    def buckets(self, now: float) -> range:
        """Buckets that may hold a live committed marker, newest first; one ahead, for fast clocks."""
        return range(self.bucket(now) + 1, self.bucket(now - self.window_seconds) - 1, -1)

    def generation(self, now: float) -> int:
        """Number of the generation into which a marker made pending at `now` goes."""
        return int(now // self.window_seconds)

    def generations(self, now: float) -> range:
        """Generations that may hold a live pending marker, newest first; one ahead, for fast clocks."""
        return range(self.generation(now) + 1, self.generation(now) - 2, -1)

    def committed_until(self, now: float) -> int:
        """When a marker committed at `now` dies."""
        return (self.bucket(now) + 1) * self.bucket_seconds + self.window_seconds

    def pending_until(self, now: float) -> int:
        """When a marker made pending at `now` dies."""
        return (self.generation(now) + 2) * self.window_seconds
