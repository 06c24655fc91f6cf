"""The same FIFO queue in memory, for one process: simulation, benchmark and fast tests.

Same manners as `LocalQueue` (one contract suite runs both, a property test compares them), plus faults that
a simulation can switch on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kds_cdc_dagster.adapters.local_queue import (
    DEDUP_WINDOW_SECONDS,
    EXTEND_MAX_SECONDS,
    IN_FLIGHT_MAX,
    MESSAGES_PER_RECEIVE_MAX,
    DeadMessage,
    LockedGroup,
    QueueRules,
    Receipt,
    Refusal,
    long_poll,
    refuse_unsendable,
)
from kds_cdc_dagster.adapters.memory_groups import QUEUE_NAME, FifoGroups, Group
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.errors import TransientError
from kds_cdc_dagster.ports import Acknowledgement, Clock, Message, QueueDepth


def _never(_: object) -> bool:
    return False


@dataclass(slots=True)
class QueueFaults:
    """Each question is asked when the fault could strike; answering True makes it strike."""

    is_receive_lost: Callable[[Sequence[Delivery]], bool] = _never
    """The reply is lost after these went in flight: the receiver sees TransientError."""
    is_acknowledge_refused: Callable[[str], bool] = _never
    """This receipt fails inside a batch that succeeds; its message stays in flight."""
    is_confirmation_lost: Callable[[str], bool] = _never
    """This receipt's message is deleted, but the answer does not say so."""


class MemoryQueue:
    """Ports Inbox and Outbound in memory; `faults` may be set at any time."""

    def __init__(
        self,
        *,
        clock: Clock,
        visibility_seconds: float = 60.0,
        dead_letter_after: int = 10,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self.faults = QueueFaults()
        self._clock = clock
        self._mutex = threading.RLock()
        self._is_closed = False
        self._groups = FifoGroups(QueueRules(visibility_seconds, dead_letter_after, in_flight_max))
        self._dedup: set[str] = set()
        self._dedup_ages: deque[tuple[float, list[str]]] = deque()
        """When each send was, and what it added."""

    def send(self, messages: Sequence[Message]) -> int:
        """Publish in order; returns how many were new. Raises ValueError, before sending any, for what SQS refuses."""
        refuse_unsendable(messages)
        with self._mutex:
            now = self._clock.now()
            while self._dedup_ages and self._dedup_ages[0][0] <= now - DEDUP_WINDOW_SECONDS:
                self._dedup.difference_update(self._dedup_ages.popleft()[1])
            added: list[str] = []
            self._dedup_ages.append((now, added))
            sent_at_ms = int(now * 1000)
            for message in messages:
                if message.dedup_id not in self._dedup:
                    self._dedup.add(message.dedup_id)
                    added.append(message.dedup_id)
                    self._groups.append(message, sent_at_ms)
            return len(added)

    def receive(self, *, max_messages: int, wait_seconds: float) -> list[Delivery]:
        """Up to ten messages: the group whose head waits longest gives what it has, then the next one."""
        room = min(max_messages, MESSAGES_PER_RECEIVE_MAX)
        found = long_poll(
            lambda: self._take(room),
            clock=self._clock,
            wait_seconds=wait_seconds,
            is_closed=lambda: self._is_closed,
        )
        if found and self.faults.is_receive_lost(found):
            raise TransientError("the reply of a receive was lost", messages=len(found))
        return found

    def _take(self, room: int) -> list[Delivery]:
        with self._mutex:
            return self._groups.take(room, self._clock.now())

    def acknowledge(self, receipts: Sequence[str]) -> Acknowledgement:
        """Delete; refused once the visibility ended or a later receive took the message over.

        A message that is already deleted counts as confirmed.
        """
        with self._mutex:
            now, groups = self._clock.now(), self._groups
            refused: dict[str, str] = {}
            changed: dict[str, Group] = {}
            for receipt in receipts:
                if reason := self._refusal(receipt, now):
                    refused[receipt] = reason
                elif (held := groups.flights.pop(receipt, None)) is not None:
                    group = changed[held.message.group_id] = groups.group_of(held)
                    del group.front[held.seq], groups.living[held.seq]
                    if self.faults.is_confirmation_lost(receipt):
                        refused[receipt] = "no answer"
            for group in changed.values():
                groups.settle(group, now)
            return Acknowledgement(frozenset(receipts).difference(refused), refused)

    def _refusal(self, receipt: str, now: float) -> str:
        held = self._groups.flights.get(receipt)
        if held is not None and held.until > now:
            return "InternalError" if self.faults.is_acknowledge_refused(receipt) else ""
        parsed = Receipt.parse(receipt)
        if parsed is None or parsed.queue != QUEUE_NAME:
            return Refusal.UNKNOWN
        return Refusal.EXPIRED if parsed.seq in self._groups.living or parsed.seq in self._groups.dead else ""

    def release(self, receipts: Sequence[str]) -> None:
        """Make messages visible again at once; their receipts are refused from then on."""
        self._hide(receipts, 0.0)

    def extend(self, receipts: Sequence[str], seconds: float) -> None:
        """Hide messages for `seconds` from now, at most twelve hours after their receive."""
        self._hide(receipts, self._clock.now() + seconds)

    def _hide(self, receipts: Sequence[str], until: float) -> None:
        with self._mutex:
            now = self._clock.now()
            flights = (self._groups.flights.get(receipt) for receipt in receipts)
            held = [one for one in flights if one is not None and one.until > now]
            for one in held:
                one.until = min(until, one.received_at + EXTEND_MAX_SECONDS)
            for group in {one.message.group_id: self._groups.group_of(one) for one in held}.values():
                self._groups.settle(group, now)

    def depth(self) -> QueueDepth:
        """Exact backlog."""
        with self._mutex:
            now = self._clock.now()
            in_flight = self._groups.in_flight(now)
            oldest = next(iter(self._groups.living.values()), None)
            age_seconds = None if oldest is None else max(0.0, now - oldest.sent_at_ms / 1000)
            return QueueDepth(len(self._groups.living) - in_flight, in_flight, len(self._groups.dead), age_seconds)

    def locked_groups(self, *, limit: int = 100) -> list[LockedGroup]:
        """Groups with messages in flight, the one that waits longest first."""
        with self._mutex:
            self._groups.free_expired(self._clock.now())
            locked = sorted((min(g.front), g.name) for g in self._groups.by_name.values() if g.front)
            return [self._locked_group(self._groups.by_name[name], head) for head, name in locked[:limit]]

    def _locked_group(self, group: Group, head: int) -> LockedGroup:
        now = self._clock.now()
        flying = sum(held.until > now for held in group.front.values())
        waiting = len(group.front) + len(group.waiting) - flying
        return LockedGroup(group.name, flying, waiting, group.front[head].sent_at_ms, group.until)

    def dead_letters(self, *, limit: int = 100) -> list[DeadMessage]:
        """Messages that were received too often, oldest first."""
        with self._mutex:
            return [self._groups.dead[seq] for seq in sorted(self._groups.dead)[:limit]]

    def redrive(self, *, limit: int = 1000) -> int:
        """Put the oldest dead letters back, in order, behind what waits; returns how many."""
        with self._mutex:
            letters = [self._groups.dead.pop(seq) for seq in sorted(self._groups.dead)[:limit]]
            for letter in letters:
                self._groups.append(letter.message, letter.sent_at_ms, letter.message_id)
            return len(letters)

    def close(self) -> None:
        """End pending and later receives."""
        self._is_closed = True
