"""Collect a round: receive until it is big enough, the queue is empty, or it has lingered long enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.errors import TransientError
from kds_cdc_dagster.ports import Clock, Inbox

RECEIVE_MAX = 10
"""A FIFO queue hands out at most ten messages a receive."""


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """Bounds of one round."""

    records_max: int
    bytes_max: int
    linger_seconds: float


class Collector(Protocol):
    """Gives the deliveries of the next round."""

    def collect(self, wait_seconds: float) -> list[Delivery]:
        """Deliveries of one round; empty if nothing came within `wait_seconds`."""
        ...

    def close(self) -> None:
        """Stop receiving; release what was received and not handed out."""
        ...


class DirectCollector:
    """Receives in the caller's thread. Does not linger when few messages wait: an empty receive ends it.

    `receive_max`: messages asked for at once, where the queue may give more than SQS does.
    """

    def __init__(self, inbox: Inbox, clock: Clock, limits: RoundLimits, *, receive_max: int = RECEIVE_MAX) -> None:
        self._inbox = inbox
        self._clock = clock
        self._limits = limits
        self._receive_max = receive_max

    def collect(self, wait_seconds: float) -> list[Delivery]:
        """See `Collector`."""
        deliveries = self._inbox.receive(max_messages=self._room(0), wait_seconds=wait_seconds)
        size = sum(len(delivery.body) for delivery in deliveries)
        deadline = self._clock.now() + self._limits.linger_seconds
        while deliveries and len(deliveries) < self._limits.records_max and size < self._limits.bytes_max:
            try:
                more = self._inbox.receive(max_messages=self._room(len(deliveries)), wait_seconds=0.0)
            except TransientError:
                break  # what is here already need not wait for its visibility to end
            deliveries += more
            size += sum(len(delivery.body) for delivery in more)
            if not more or self._clock.now() >= deadline:
                break
        return deliveries

    def _room(self, received: int) -> int:
        """Messages to ask for: no more than the round takes."""
        return min(self._receive_max, self._limits.records_max - received)

    def close(self) -> None:
        """Nothing is held back."""
