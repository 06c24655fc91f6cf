"""Receivers in threads, ahead of the one committer: a bounded buffer between the queue and the rounds.

What waits here is in flight and locks its groups, so the buffer is small, is filled only while somebody
collects, and gives back what grew old in it.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kds_cdc_dagster.core.backoff import Backoff
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.errors import TransientError
from kds_cdc_dagster.intake.collect import RECEIVE_MAX, RoundLimits
from kds_cdc_dagster.ports import Inbox

QUICK_SECONDS = 0.05
"""An empty answer sooner than this, or than half the wait, was no long poll: a pause must follow."""
PAUSES = Backoff(first_seconds=0.05, longest_seconds=5.0)
"""Of a receiver, after failures and after empty answers that came too quickly (in-flight cap)."""


@dataclass(frozen=True, slots=True)
class PumpPolicy:
    """Bounds of a pump."""

    receivers: int = 8
    wait_seconds: float = 20.0
    """Long poll of each receive; also what stopping may have to wait for."""
    records_max: int = 1000
    """Buffered and being received, counting ten for each receive under way."""
    bytes_max: int = 4 << 20
    """No receive starts while more is buffered; those under way may add ten bodies each."""
    age_max_seconds: float = 20.0
    """Older deliveries are given back instead of handed out. Below visibility minus safety window."""
    wanted_seconds: float = 2.0
    """How long after a collect receives still start: between ticks the queue is left alone."""
    stop_seconds: float = 35.0
    """How long stopping waits for polls to end."""
    backoff: Backoff = PAUSES


@dataclass(frozen=True, slots=True)
class _Received:
    deliveries: list[Delivery]
    size_bytes: int
    at: float


class ReceivePump:
    """A Collector whose receives run in `policy.receivers` threads. Starts at the first collect.

    A TransientError of a receiver is raised by one collect, then forgotten; the receiver goes on after a
    pause. Any other error ends the pump: every later collect raises it.
    """

    def __init__(
        self, inbox: Inbox, limits: RoundLimits, policy: PumpPolicy, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._inbox = inbox
        self._limits = limits
        self._policy = policy
        self._now = now
        self._changed = threading.Condition()
        self._buffer: deque[_Received] = deque()
        self._buffered_bytes = 0
        self._records = 0
        self._aged: list[str] = []
        self._error: Exception | None = None
        self._wanted_until = float("-inf")
        self._is_stopping = False
        self._is_stopped = False
        self._threads: list[threading.Thread] = []

    # --- the committer's side -------------------------------------------------------------------

    def collect(self, wait_seconds: float) -> list[Delivery]:
        """Deliveries of one round. Lingers only while full receives show that more is waiting."""
        with self._changed:
            self._start()
            self._wanted_until = float("inf")
            self._changed.notify_all()
            try:
                deliveries = self._round(wait_seconds)
            finally:
                self._wanted_until = self._now() + self._policy.wanted_seconds
                aged, self._aged = self._aged, []
        if aged:
            self._inbox.release(aged)
        return deliveries

    def stop(self) -> list[Delivery]:
        """Let polls end (bounded) and start no more; returns what is left, to take in or to release.

        A poll that outlasts `stop_seconds` gives back what it brings by itself.
        """
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        deadline = time.monotonic() + self._policy.stop_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            self._is_stopped = True
            left = [delivery for received in self._buffer for delivery in received.deliveries]
            self._buffer.clear()
        return left

    def close(self) -> None:
        """Stop, and make visible again what was not handed out."""
        self._release(self.stop())

    def _round(self, wait_seconds: float) -> list[Delivery]:
        last = self._next(wait_seconds)
        if not last and self._error is not None:
            error = self._error
            if isinstance(error, TransientError):
                self._error = None
            raise error
        deliveries = list(last)
        size_bytes = sum(len(one.body) for one in last)
        linger_until = time.monotonic() + self._limits.linger_seconds
        while len(last) >= RECEIVE_MAX and len(deliveries) < self._limits.records_max:
            if size_bytes >= self._limits.bytes_max:
                break
            last = self._next(linger_until - time.monotonic(), is_first=False)
            deliveries += last
            size_bytes += sum(len(one.body) for one in last)
        return deliveries

    def _next(self, wait_seconds: float, *, is_first: bool = True) -> list[Delivery]:
        """The oldest receive that is not too old; empty after the wait or, if first, when there is an error."""
        deadline = time.monotonic() + wait_seconds
        while True:
            while self._buffer:
                received = self._buffer.popleft()
                self._records -= len(received.deliveries)
                self._buffered_bytes -= received.size_bytes
                self._changed.notify_all()
                if self._now() - received.at <= self._policy.age_max_seconds:
                    return received.deliveries
                self._aged += [delivery.receipt for delivery in received.deliveries]
            left_seconds = deadline - time.monotonic()
            if left_seconds <= 0 or self._is_stopping or (is_first and self._error):
                return []
            self._changed.wait(left_seconds)

    # --- the receivers' side --------------------------------------------------------------------

    def _start(self) -> None:
        if self._threads or self._is_stopping:
            return
        for number in range(self._policy.receivers):
            # Daemons: a second signal to end must not wait for a poll.
            thread = threading.Thread(target=self._receive, name=f"receiver-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _receive(self) -> None:
        idle = 0
        while self._may_poll():
            started = time.monotonic()
            deliveries: Sequence[Delivery] = ()
            error: Exception | None = None
            try:
                deliveries = self._inbox.receive(max_messages=RECEIVE_MAX, wait_seconds=self._policy.wait_seconds)
            except Exception as caught:  # noqa: BLE001  (the committer raises it)
                error = caught
            self._arrived(list(deliveries), error)
            is_quick = time.monotonic() - started < max(self._policy.wait_seconds / 2, QUICK_SECONDS)
            idle = idle + 1 if error or (is_quick and not deliveries) else 0
            if idle:
                self._pause(idle)

    def _may_poll(self) -> bool:
        """Wait until a receive is wanted and there is room for it; False: end."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or (self._is_wanted() and self._has_room()))
            self._records += RECEIVE_MAX
            return not self._is_stopping

    def _is_wanted(self) -> bool:
        return self._now() < self._wanted_until

    def _has_room(self) -> bool:
        is_small = self._buffered_bytes < self._policy.bytes_max
        return is_small and self._records + RECEIVE_MAX <= self._policy.records_max

    def _arrived(self, deliveries: list[Delivery], error: Exception | None) -> None:
        with self._changed:
            self._records += len(deliveries) - RECEIVE_MAX
            if error is not None:
                self._note(error)
            is_late = self._is_stopped
            if deliveries and not is_late:
                size_bytes = sum(len(delivery.body) for delivery in deliveries)
                self._buffer.append(_Received(deliveries, size_bytes, self._now()))
                self._buffered_bytes += size_bytes
            self._changed.notify_all()
        if is_late:
            self._release(deliveries)

    def _note(self, error: Exception) -> None:
        """Keep the first error until it was raised; one that does not pass takes its place and stays."""
        if self._error is None or not isinstance(error, TransientError):
            self._error = error
        if not isinstance(error, TransientError):
            self._is_stopping = True

    def _pause(self, idle: int) -> None:
        seconds = self._policy.backoff.pause_seconds(idle, random.random())  # noqa: S311  (spreads load)
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping, seconds)

    def _release(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            self._inbox.release([delivery.receipt for delivery in deliveries])
