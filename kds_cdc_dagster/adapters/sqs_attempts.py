"""Receive attempt ids: getting back at once what a lost reply had handed out (SQS-09).

The service gives the same messages and handles for the same id, for five minutes, and only while none of
them was deleted or had its visibility changed. A lost reply's handles are not known here, so nothing
here can have touched them; if their time ran out or they were touched elsewhere, the service refuses
the id, and a fresh one waits for redelivery.
"""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass

REUSE_SECONDS = 290.0
"""A little under the service's five minutes."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One id, when it was first sent (seconds since the epoch), and whether it was sent before."""

    id: str
    since: float
    is_reused: bool = False


class Attempts:
    """Ids whose reply was lost, to be sent again first. Safe between threads: deque operations are atomic."""

    def __init__(self) -> None:
        self._lost: deque[Attempt] = deque()

    def next(self, now: float) -> Attempt:
        """The oldest lost one that may still be sent, else a fresh one."""
        while self._lost:
            try:
                attempt = self._lost.popleft()
            except IndexError:  # another thread was quicker
                break
            if now - attempt.since < REUSE_SECONDS:
                return Attempt(attempt.id, attempt.since, is_reused=True)
        return Attempt(uuid.uuid4().hex, now)

    def lost(self, attempt: Attempt) -> None:
        """No reply came for it."""
        self._lost.append(attempt)
