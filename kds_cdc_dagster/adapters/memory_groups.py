"""The groups of a FIFO queue as a pure state machine: told the time, it answers; no clock, no lock.

A free group's messages all wait; a receive takes a run from their front; so what is in flight is always the
front of the group.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush

import msgspec

from kds_cdc_dagster.adapters.local_queue import DeadMessage, QueueRules, sequence_number
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.ports import Message

QUEUE_NAME = "memory"


class Held(msgspec.Struct, eq=False, gc=False):
    """A living message."""

    seq: int
    message: Message
    body: bytes
    message_id: str
    sent_at_ms: int
    receive_count: int = 0
    received_at: float = 0.0
    until: float = 0.0
    receipt: str = ""


@dataclass(slots=True, eq=False)
class Group:
    """A group with messages. `front` was handed out and is not settled; it is empty while the group is free."""

    name: str
    waiting: deque[Held] = field(default_factory=deque)
    front: dict[int, Held] = field(default_factory=dict)

    @property
    def until(self) -> float:
        """When the last of `front` becomes visible again, seconds since the epoch; 0.0 if `front` is empty."""
        return max([held.until for held in self.front.values()], default=0.0)


class FifoGroups:
    """All living messages by group. After changing a group's `front`, call `settle`."""

    def __init__(self, rules: QueueRules) -> None:
        self._rules = rules
        self.last_seq = 0
        self.by_name: dict[str, Group] = {}
        self.living: dict[int, Held] = {}
        self.flights: dict[str, Held] = {}
        """By receipt: every message that is handed out and whose group is not free again."""
        self.dead: dict[int, DeadMessage] = {}
        self._free: list[tuple[int, str]] = []
        """Heap of (head, group). Entries go stale and are checked when they come up; so are those of `_locked`."""
        self._locked: list[tuple[float, str]] = []

    def append(self, message: Message, sent_at_ms: int, message_id: str = "") -> None:
        """Add a living message behind all others, under a sequence number that was never used."""
        self.last_seq = seq = self.last_seq + 1
        group = self.by_name.get(message.group_id)
        if group is None:
            group = self.by_name[message.group_id] = Group(message.group_id)
            heappush(self._free, (seq, group.name))
        held = Held(seq, message, message.body.encode(), message_id or f"{QUEUE_NAME}-{seq}", sent_at_ms)
        group.waiting.append(held)
        self.living[seq] = held

    def take(self, room: int, now: float) -> list[Delivery]:
        """Hand out up to `room` messages: the group whose head waits longest gives what it has, then the next one."""
        self.free_expired(now)
        if len(self.flights) + room > self._rules.in_flight_max:
            room = min(room, self._rules.in_flight_max - self.in_flight(now))
        taken: list[Delivery] = []
        while len(taken) < room and self._free:
            head, name = heappop(self._free)
            group = self.by_name.get(name)
            if group is None or group.front or group.waiting[0].seq != head:
                continue  # stale
            run = [group.waiting.popleft() for _ in range(min(room - len(taken), len(group.waiting)))]
            if max([held.receive_count for held in run]) >= self._rules.dead_letter_after:
                self._bury(group, run, now)
            else:
                taken += self._handed_over(group, run, now)
            self.settle(group, now)
        return taken

    def _bury(self, group: Group, run: list[Held], now: float) -> None:
        """Move those of the run that were received too often; the group then queues up anew."""
        group.waiting.extendleft(held for held in reversed(run) if held.receive_count < self._rules.dead_letter_after)
        for held in run:
            if held.receive_count >= self._rules.dead_letter_after:
                del self.living[held.seq]
                number, count = sequence_number(held.seq), held.receive_count
                self.dead[held.seq] = DeadMessage(held.message, held.message_id, number, count, held.sent_at_ms, now)

    def _handed_over(self, group: Group, run: list[Held], now: float) -> list[Delivery]:
        until, name = now + self._rules.visibility_seconds, group.name
        deliveries = []
        for held in run:
            held.receive_count = count = held.receive_count + 1
            held.received_at, held.until = now, until
            seq = held.seq
            held.receipt = receipt = f"{QUEUE_NAME}.{seq}.{count}"
            group.front[seq] = self.flights[receipt] = held
            number = sequence_number(seq)
            deliveries.append(Delivery(held.body, name, number, held.message_id, receipt, count, held.sent_at_ms))
        return deliveries

    def group_of(self, held: Held) -> Group:
        """The group of a living message."""
        return self.by_name[held.message.group_id]

    def free_expired(self, now: float) -> None:
        """Free the groups whose last in-flight message is visible again."""
        while self._locked and self._locked[0][0] <= now:
            group = self.by_name.get(heappop(self._locked)[1])
            if group is not None and group.front:
                self.settle(group, now)
        if len(self._locked) > 2 * len(self.by_name) + 1000:  # mostly stale: keep the heap as small as the groups
            self._locked = sorted((g.until, g.name) for g in self.by_name.values() if g.front)

    def settle(self, group: Group, now: float) -> None:
        """After any change of its front: a group stays locked while a message is in flight, else it is free."""
        until = group.until
        if until > now:
            heappush(self._locked, (until, group.name))
            return
        for held in reversed(group.front.values()):
            del self.flights[held.receipt]
            group.waiting.appendleft(held)
        group.front.clear()
        if group.waiting:
            heappush(self._free, (group.waiting[0].seq, group.name))
        else:
            del self.by_name[group.name]

    def in_flight(self, now: float) -> int:
        """How many messages are hidden."""
        return sum(held.until > now for held in self.flights.values())
