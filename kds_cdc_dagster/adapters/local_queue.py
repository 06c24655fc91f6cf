"""What the local queues share: the limits and manners of an SQS FIFO queue, and their words.

`LocalQueue` (one SQLite file, many processes) and `MemoryQueue` (one process, simulation and benchmark)
behave alike: one contract suite runs both, and a property test compares them step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.core.fifo import broken_rule
from kds_cdc_dagster.errors import SettingsError
from kds_cdc_dagster.ports import Clock, Message

MESSAGES_PER_RECEIVE_MAX = 10
IN_FLIGHT_MAX = 20_000
"""SQS: at this many in-flight messages a FIFO queue answers receives with nothing."""
DEDUP_WINDOW_SECONDS = 300.0
"""SQS: a deduplication id is remembered this long after its first send, deleted or not."""
EXTEND_MAX_SECONDS = 43_200.0
"""SQS: a message is hidden for twelve hours after its receive at most, however often extended."""
POLL_SECONDS = 0.01
"""How late a long poll may notice a message that another process sent."""


@dataclass(frozen=True, slots=True)
class QueueRules:
    """How a local queue behaves."""

    visibility_seconds: float = 60.0
    dead_letter_after: int = 10
    """Receives of one message; the receive after that moves it to the dead letters instead."""
    in_flight_max: int = IN_FLIGHT_MAX

    def __post_init__(self) -> None:
        if self.visibility_seconds <= 0 or self.dead_letter_after < 1 or self.in_flight_max < 1:
            raise SettingsError("the local queue's limits must be positive", rules=self)


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A message that was received too often."""

    message: Message
    message_id: str
    sequence_number: str
    receive_count: int
    sent_at_ms: int
    died_at: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class LockedGroup:
    """A group that gives nothing out because some of its messages are in flight."""

    group_id: str
    in_flight: int
    waiting: int
    oldest_sent_at_ms: int
    locked_until: float
    """Seconds since the epoch; earlier if all in-flight messages are acknowledged or released."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """A receipt handle in parts: which queue, which message, which of its receives."""

    queue: str
    seq: int
    receive_count: int

    def __str__(self) -> str:
        return f"{self.queue}.{self.seq}.{self.receive_count}"

    @classmethod
    def parse(cls, text: str) -> Receipt | None:
        """From text, or None if it is no receipt of a local queue."""
        queue, _, rest = text.partition(".")
        seq, _, count = rest.partition(".")
        return cls(queue, int(seq), int(count)) if seq.isdecimal() and count.isdecimal() else None


class Refusal(StrEnum):
    """Why a receipt was refused; the message, if it still lives, will come again."""

    UNKNOWN = "unknown handle"
    EXPIRED = "expired handle"


def sequence_number(seq: int) -> str:
    """As SQS shows it: 20 decimal digits."""
    return f"{seq:020d}"


def refuse_unsendable(messages: Sequence[Message]) -> None:
    """Raise ValueError, naming the message's place and the rule, for what SQS would refuse."""
    for place, message in enumerate(messages):
        if rule := broken_rule(message.body, message.group_id, message.dedup_id):
            raise ValueError(f"message {place} cannot be sent: {rule}")


def long_poll(
    take: Callable[[], list[Delivery]], *, clock: Clock, wait_seconds: float, is_closed: Callable[[], bool]
) -> list[Delivery]:
    """Repeat `take` until it gives something, `wait_seconds` have passed, or the queue is closed."""
    deadline = clock.now() + wait_seconds
    while not is_closed():
        found = take()
        left = deadline - clock.now()
        if found or left <= 0:
            return found
        clock.sleep(min(POLL_SECONDS, left))
    return []
