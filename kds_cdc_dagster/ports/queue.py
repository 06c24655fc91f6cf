"""The queue: where deliveries come from, messages go to, and dead letters lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from kds_cdc_dagster.core.change import Delivery


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Backlog of the queue; numbers may be approximate where the service's are."""

    visible: int
    in_flight: int
    dead_letter: int = 0
    oldest_age_seconds: float | None = None

    @property
    def is_empty(self) -> bool:
        """No message waits and none is in flight (dead letters do not count)."""
        return self.visible == 0 and self.in_flight == 0


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Result of an acknowledge call, per receipt. Only `confirmed` ones are gone from the queue."""

    confirmed: frozenset[str]
    refused: Mapping[str, str] = field(default_factory=dict)
    """receipt -> reason (expired handle and the like); the message will come again."""


@runtime_checkable
class Inbox(Protocol):
    """A FIFO queue, read side: few messages a receive (SQS: ten), group locked while one is in flight."""

    def receive(self, *, max_messages: int, wait_seconds: float) -> list[Delivery]:
        """Up to `max_messages`, of SQS ten at most, in queue order per group; empty after `wait_seconds`.

        An empty answer does not prove an empty queue. Raises TransientError.
        """
        ...

    def acknowledge(self, receipts: Sequence[str]) -> Acknowledgement:
        """Delete messages. Any number of receipts; never raises for single ones."""
        ...

    def release(self, receipts: Sequence[str]) -> None:
        """Make messages visible again at once. Best effort: never raises for single ones."""
        ...

    def extend(self, receipts: Sequence[str], seconds: float) -> None:
        """Hide messages for `seconds` from now. Best effort."""
        ...

    def depth(self) -> QueueDepth:
        """Current backlog."""
        ...

    def close(self) -> None:
        """Let pending receives end; strand nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish: body text, FIFO group, deduplication id."""

    body: str
    group_id: str
    dedup_id: str


class Outbound(Protocol):
    """A FIFO queue, write side (`kds-cdc enqueue`, `simulate`, redrive)."""

    def send(self, messages: Sequence[Message]) -> int:
        """Publish in order; returns how many were new (not suppressed by deduplication)."""
        ...


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was received too often and moved away. Its body stays where it is."""

    group_id: str
    message_id: str
    receive_count: int
    sent_at_ms: int


class DeadLetters(Protocol):
    """Messages that were received too often."""

    def letters(self, *, limit: int) -> list[DeadLetter]:
        """The oldest of them, up to `limit`. SQS shows the oldest of each group only: it locks a group it gave out."""
        ...

    def redrive(self, *, limit: int) -> int:
        """Put up to `limit` back into the queue, each group in order; returns how many."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...
