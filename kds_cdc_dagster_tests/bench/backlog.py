"""A queue for the whole path, as cheap as one can be: what is measured is the intake, not a queue in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

from kds_cdc_dagster.adapters.local_queue import MESSAGES_PER_RECEIVE_MAX, Refusal
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.ports import Acknowledgement, QueueDepth

AHEAD = 5_000
"""The publisher keeps at least so many messages waiting, so that no round is cut short by an empty queue."""


class Backlog:
    """Port Inbox: at most ten messages of one group a receive, which stays locked until all of them are deleted.

    Deliveries come as the queue hands them over, each exactly once: no visibility ends here, and a round that is
    given up ends the run.
    """

    def __init__(self) -> None:
        self._coming: Iterator[list[Delivery]] = iter(())
        self._waiting: dict[str, deque[Delivery]] = {}
        self._free: deque[str] = deque()
        """Groups with waiting messages of which none is in flight, the one that waits longest first."""
        self._locked: dict[str, int] = {}
        """Group -> how many of its messages are in flight."""
        self._flights: dict[str, str] = {}
        """Receipt -> group."""
        self._published = self._received = self._deleted = 0

    def publish(self, parts: Iterable[list[Delivery]]) -> None:
        """Publish these from now on, part by part as they are taken, so that memory holds two parts at most."""
        self._coming = iter(parts)

    def receive(self, *, max_messages: int, wait_seconds: float) -> list[Delivery]:
        """Messages of the free group that waits longest; none if there is none. Nobody else publishes: never waits."""
        del wait_seconds
        if self._published - self._received < AHEAD:
            self._append(next(self._coming, []))
        if not self._free:
            return []
        group = self._free.popleft()
        waiting = self._waiting[group]
        run = [waiting.popleft() for _ in range(min(max_messages, MESSAGES_PER_RECEIVE_MAX, len(waiting)))]
        self._flights.update(dict.fromkeys([one.receipt for one in run], group))
        self._locked[group] = len(run)
        self._received += len(run)
        return run

    def _append(self, part: Sequence[Delivery]) -> None:
        for one in part:
            group = one.group_id
            waiting = self._waiting.get(group)
            if waiting is None:
                waiting = self._waiting[group] = deque()
            if not waiting and group not in self._locked:
                self._free.append(group)
            waiting.append(one)
        self._published += len(part)

    def acknowledge(self, receipts: Sequence[str]) -> Acknowledgement:
        """Delete; refuses receipts that are not in flight."""
        refused: dict[str, str] = {}
        for receipt in receipts:
            group = self._flights.pop(receipt, None)
            if group is None:
                refused[receipt] = Refusal.UNKNOWN
                continue
            self._deleted += 1
            self._locked[group] -= 1
            if not self._locked[group]:
                self._unlock(group)
        return Acknowledgement(frozenset(receipts).difference(refused), refused)

    def _unlock(self, group: str) -> None:
        del self._locked[group]
        if self._waiting[group]:
            self._free.append(group)

    def prove_empty(self) -> None:
        """Everything that was published was handed out and deleted, once. Raises AssertionError."""
        assert not self._flights, f"{len(self._flights)} messages are in flight"
        counts = (self._published, self._received, self._deleted)
        assert len(set(counts)) == 1, f"published, received, deleted: {counts}"

    def release(self, receipts: Sequence[str]) -> NoReturn:
        """A round was given up. Raises AssertionError."""
        raise AssertionError(f"a round of {len(receipts)} messages was given up")

    def extend(self, receipts: Sequence[str], seconds: float) -> None:
        """Nothing becomes visible again by itself."""

    def depth(self) -> QueueDepth:
        """Exact."""
        return QueueDepth(self._published - self._received, self._received - self._deleted)

    def close(self) -> None:
        """Nothing is pending."""
