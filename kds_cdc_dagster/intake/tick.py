"""A tick: one bounded turn of a sensor or worker, many rounds long.

Ticks of one worker never overlap: one that finds the last still running says so and returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from kds_cdc_dagster.core.batch import CloseReason
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.errors import StateNotReady, TransientError
from kds_cdc_dagster.intake import counts as names
from kds_cdc_dagster.intake.collect import Collector
from kds_cdc_dagster.intake.engine import GivenUp, Intake
from kds_cdc_dagster.journal import outbox
from kds_cdc_dagster.journal.manifest import Manifest

BACKLOG_BATCHES = 2
"""This many sealed batches waiting for a run mean backlog: the open one may grow."""
LOOK_SECONDS = 1.0
"""How old the answer to `is there backlog?` may be: a batch that grows would otherwise ask the queue every round."""
GIVEN_UP_MAX = 2
"""Rounds given up that end a tick: each costs its messages one of the receives they have before quarantine."""


@dataclass(slots=True)
class TickReport:
    """What a tick did; its canonical log line."""

    counts: dict[str, int] = field(default_factory=dict)
    rounds: int = 0
    sealed: list[Manifest] = field(default_factory=list)
    given_up: int = 0
    failure: str = ""
    """Why the tick accepted nothing (state down, rebuild elsewhere); empty if it worked."""
    is_overlap: bool = False
    is_drained: bool = False
    """The last receive was empty."""
    seconds: float = 0.0

    def line(self) -> str:
        """One line for the log: facts only, never row data."""
        counts = " ".join(f"{name}={number}" for name, number in sorted(self.counts.items()))
        sealed = ",".join(f"{m.batch}({m.close_reason}:{m.accepted})" for m in self.sealed)
        tail = f" failure={self.failure!r}" if self.failure else ""
        return f"tick rounds={self.rounds} {counts} sealed=[{sealed}] seconds={self.seconds:.2f}{tail}"


@dataclass(frozen=True, slots=True)
class _Budget:
    started: float
    seconds: float
    backlog_seconds: float
    """While the queue is deep."""


class Ticker:
    """Runs ticks of one intake, one at a time."""

    def __init__(self, intake: Intake, collector: Collector) -> None:
        self.intake = intake
        self._collector = collector
        self._mutex = threading.Lock()
        self._backlog_seen = (float("-inf"), False)
        """When it was looked at, and whether there was."""
        self._round_seconds = 0.0
        """How long this tick's last round took."""
        self.on_report: Callable[[TickReport], None] = lambda _report: None
        """Told of every finished tick."""

    def tick(
        self,
        *,
        budget_seconds: float,
        wait_seconds: float,
        is_draining: bool = False,
        again_seconds: float = 0.0,
        backlog_seconds: float = 0.0,
    ) -> TickReport:
        """Work for `budget_seconds`, or, when draining, until the queue gives nothing; then seal what is due.

        `backlog_seconds`: the budget while more messages wait than fill a batch, if that is longer.
        `again_seconds`: where only the end of a tick hands batches on, how long until the next one ends. Then a batch
        that would be due before that is sealed now, and without backlog a sealed one ends the tick: nothing waits.
        """
        report = TickReport()
        if not self._mutex.acquire(blocking=False):
            report.is_overlap = True
            return report
        try:
            self._round_seconds = 0.0
            budget = _Budget(self.intake.ports.clock.now(), budget_seconds, backlog_seconds)
            self._run(report, budget, wait_seconds, is_draining=is_draining, again_seconds=again_seconds)
        finally:
            self._mutex.release()
        self.on_report(report)
        return report

    def _run(
        self,
        report: TickReport,
        budget: _Budget,
        wait_seconds: float,
        *,
        is_draining: bool,
        again_seconds: float,
    ) -> None:
        try:
            self.intake.ready()
            while self._is_in(budget) and report.given_up < GIVEN_UP_MAX:
                self._turn(report, wait_seconds)
                if report.is_drained and is_draining:
                    self._seal(report, CloseReason.DRAIN)
                    break
                if again_seconds and report.sealed and not self._is_backlogged():
                    break
            if again_seconds and self._is_soon_due(again_seconds) and not self._is_backlogged():
                self._seal(report, CloseReason.AGE)
            self.intake.write_counts()
        except (TransientError, StateNotReady) as error:
            report.failure = str(error)
        report.seconds = self.intake.ports.clock.now() - budget.started

    def _is_in(self, budget: _Budget) -> bool:
        """Whether a turn may begin. Not one whose round would end late: the daemon's next look would be missed, too."""
        seconds = self.intake.ports.clock.now() + self._round_seconds - budget.started
        return seconds < budget.seconds or (seconds < budget.backlog_seconds and self._is_queue_deep())

    def _turn(self, report: TickReport, wait_seconds: float) -> None:
        self.intake.tenure.take()  # a worker that cannot write must not receive: messages have few receives
        self.intake.tenure.beat_if_due()
        deliveries = self._collector.collect(wait_seconds)
        report.is_drained = not deliveries
        if deliveries:
            self._take(report, deliveries)
        # Looked at only when the batch could be closed.
        is_backlogged = (self._is_full() or self._is_soon_due(0.0)) and self._is_backlogged()
        manifest = self.intake.seal_if_due(is_backlogged=is_backlogged)
        if manifest is not None:
            report.sealed.append(manifest)

    def _take(self, report: TickReport, deliveries: list[Delivery]) -> None:
        clock = self.intake.ports.clock
        started = clock.now()
        try:
            counts = self.intake.round(deliveries)
        except GivenUp as error:
            report.given_up += 1
            report.failure = str(error)
            report.counts = names.total(report.counts, {names.RECEIVED: len(deliveries), "given_up": len(deliveries)})
            if isinstance(error.__cause__, TransientError):
                raise error.__cause__ from None  # the other side is down: the tick ends, the next one looks again
            self.intake.ready()
            return
        self._round_seconds = clock.now() - started
        report.rounds += 1
        report.failure = ""
        report.counts = names.total(report.counts, counts)

    def _is_full(self) -> bool:
        batch = self.intake.batch
        return batch is not None and batch.records >= self.intake.policy.batch.records_max

    def _is_soon_due(self, seconds: float) -> bool:
        """Whether the open batch is due by its age, now or in so many seconds."""
        batch, now = self.intake.batch, self.intake.ports.clock.now()
        return batch is not None and batch.age_seconds(now) + seconds >= self.intake.policy.batch.age_seconds

    def _is_backlogged(self) -> bool:
        """Whether batches pile up in front of the load, or messages in front of the intake: more than fill a batch."""
        now = self.intake.ports.clock.now()
        if now - self._backlog_seen[0] >= LOOK_SECONDS:
            self._backlog_seen = (now, self._is_load_behind() or self._is_queue_deep())
        return self._backlog_seen[1]

    def _is_load_behind(self) -> bool:
        store = self.intake.ports.store
        waiting = (batch for batch in outbox.waiting(store) if not outbox.is_done(store, batch))
        return sum(1 for _ in zip(waiting, range(BACKLOG_BATCHES), strict=False)) >= BACKLOG_BATCHES

    def _is_queue_deep(self) -> bool:
        try:
            return self.intake.ports.inbox.depth().visible >= self.intake.policy.batch.records_max
        except TransientError:
            return False  # who cannot count messages can still receive them

    def _seal(self, report: TickReport, reason: CloseReason) -> None:
        manifest = self.intake.seal(reason)
        if manifest is not None:
            report.sealed.append(manifest)

    def close(self) -> None:
        """End cleanly: stop receiving, seal, close the log. Waits for a running tick."""
        with self._mutex:
            self._collector.close()
            self.intake.close()
