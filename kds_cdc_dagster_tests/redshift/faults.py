"""Faults to order: fail, cut off, delay or hold the n-th statement that matches a pattern."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import Literal

from kds_cdc_dagster_tests.redshift.wire import ServerError

When = Literal["before", "midway", "after"]
"""Before the statement runs; midway in an UNLOAD (files, no manifest) or COPY; after it ran, reply withheld."""

SERIALIZABLE = ServerError(
    "XX000", "1023", "Serializable isolation violation on table - 108263, transactions forming the cycle are: 8, 9"
)
CONFLICT = ServerError("XX000", "could not complete because of conflict with concurrent transaction")
RELATION_GONE = ServerError("XX000", "could not open relation with OID 108263")
CANCELLED = ServerError("57014", "Query (4711) cancelled on user's request")
S3_SLOW_DOWN = ServerError(
    "XX000", "S3ServiceException:Please reduce your request rate.,Status 503,Error SlowDown,Rid STANDIN0,CanRetry 1"
)


@dataclass
class Gate:
    """A held statement: `reached` is set when it arrives, it runs once `release` is."""

    reached: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


@dataclass
class Fault:
    """What to do with which executions of which statements."""

    pattern: re.Pattern[str]
    nth: int = 1
    times: int = 1
    when: When = "before"
    error: ServerError | None = None
    is_drop: bool = False
    delay_seconds: float = 0.0
    gate: Gate | None = None

    def is_due(self, sql: str) -> bool:
        """Counts an execution; whether this one is hit."""
        if not self.pattern.search(sql):
            return False
        self.nth -= 1
        if self.nth > 0 or self.times == 0:
            return False
        self.times -= 1
        return True


class Faults:
    """Orders of a test, looked up by every session. Patterns match case-insensitively, from the start with `^`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders: list[Fault] = []

    def fail(
        self, pattern: str, error: ServerError = SERIALIZABLE, *, when: When = "before", nth: int = 1, times: int = 1
    ) -> None:
        """Answer with `error`; `times` -1 for ever."""
        self._add(Fault(_compiled(pattern), nth, times, when, error=error))

    def drop(self, pattern: str, *, when: When = "before", nth: int = 1, times: int = 1) -> None:
        """Reset the connection; an open transaction is lost."""
        self._add(Fault(_compiled(pattern), nth, times, when, is_drop=True))

    def delay(self, pattern: str, seconds: float, *, nth: int = 1, times: int = 1) -> None:
        """Let the statement wait before it runs."""
        self._add(Fault(_compiled(pattern), nth, times, delay_seconds=seconds))

    def hold(self, pattern: str, *, nth: int = 1) -> Gate:
        """Hold the statement until the test releases it."""
        gate = Gate()
        self._add(Fault(_compiled(pattern), nth, gate=gate))
        return gate

    def clear(self) -> None:
        """Forget all orders and let held statements go."""
        with self._lock:
            orders, self._orders = self._orders, []
        for order in orders:
            if order.gate:
                order.gate.release.set()

    def due(self, sql: str) -> list[Fault]:
        """Orders that hit this execution."""
        with self._lock:
            return [order for order in self._orders if order.is_due(sql)]

    def _add(self, order: Fault) -> None:
        with self._lock:
            self._orders.append(order)


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)
