"""Workers of the simulation: the real intake, ticker and release on stepped ports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from unittest import mock

from kds_cdc_dagster.errors import StateNotReady, TransientError
from kds_cdc_dagster.intake import claim, count_log
from kds_cdc_dagster.intake.collect import DirectCollector, RoundLimits
from kds_cdc_dagster.intake.engine import GivenUp, Intake, IntakePolicy, Ports
from kds_cdc_dagster.intake.release import park_stream, release_stream
from kds_cdc_dagster.intake.tenure import Incumbent
from kds_cdc_dagster.intake.tick import Ticker
from kds_cdc_dagster.journal import checkpoint
from kds_cdc_dagster.journal.claims import Heartbeat
from kds_cdc_dagster_tests.simulation.baton import Actor
from kds_cdc_dagster_tests.simulation.ports import SteppedInbox, SteppedState, SteppedStore, Steps
from kds_cdc_dagster_tests.simulation.site import DEAD_AFTER_SECONDS, VISIBILITY_SECONDS, Site
from kds_cdc_dagster_tests.simulation.traffic import WireParser

LIMITS = RoundLimits(records_max=20, bytes_max=1 << 20, linger_seconds=0.2)


def ticker_of(site: Site, worker: str, steps: Steps) -> Ticker:
    """A worker's ticker on stepped ports. Now and then it takes a living worker for dead."""

    def is_gone(heartbeat: Heartbeat, now: float) -> bool:
        return heartbeat.is_abandoned or now - heartbeat.seen_at > DEAD_AFTER_SECONDS or steps.strikes("adopt")

    ports = Ports(SteppedInbox(steps), SteppedState(steps), SteppedStore(steps), site.clock)
    incumbent = Incumbent(worker=worker, host="host", process_id=1, heartbeat_seconds=5.0)
    policy = IntakePolicy(incumbent, site.plan.batch, VISIBILITY_SECONDS, safety_seconds=5.0)
    parser = WireParser(site.plan.receives_max)
    intake = Intake(ports, policy, parser=parser, catalogue=site.plan.catalogue, is_gone=is_gone)
    return Ticker(intake, DirectCollector(ports.inbox, ports.clock, LIMITS))


def worker_body(site: Site, actor: Actor) -> None:
    """Tick for ever, now and then as an operator who holds and releases streams."""
    steps = Steps(site, actor)
    ticker = ticker_of(site, actor.name.split(".")[0], steps)
    while True:
        if site.rng.random() < 0.1:
            _operate(site, steps, ticker.intake)
        is_draining = site.rng.random() < 0.3
        if site.plan.has_checkpoints and site.rng.random() < 0.3:
            _write_checkpoint(ticker.intake, steps)
        report = ticker.tick(budget_seconds=2.0, wait_seconds=0.0, is_draining=is_draining)
        steps.pause(report.line())
        if site.rng.random() < 0.05:
            _close(ticker)


def _operate(site: Site, steps: Steps, intake: Intake) -> None:
    try:
        if steps.strikes("operator"):
            sent = (
                site.rng.choice(
                    list(site.sent.values()),
                )
                if site.sent
                else None
            )
            if sent is not None:
                park_stream(intake, sent.wire.source, sent.wire.stream, "by hand")
        for record in list(site.state.streams(held_only=True))[:1]:
            release_stream(intake, record.source, record.stream)
    except (GivenUp, TransientError, StateNotReady) as error:
        steps.pause(f"operator failed: {error}")


def _write_checkpoint(intake: Intake, steps: Steps) -> None:
    try:
        checkpoint.write(intake.ports.store)
    except TransientError as error:
        steps.pause(f"checkpoint failed: {error}")


def _close(ticker: Ticker) -> None:
    """A clean end of a worker; the same thread goes on as its successor."""
    try:
        ticker.close()
    except (TransientError, StateNotReady):
        ticker.intake.abandon()


@contextmanager
def counted_tokens() -> Iterator[None]:
    """Random parts of names become counters, so that a seed repeats exactly. Small histories have checkpoints, too."""
    numbers = count()

    def token(_: int = 0) -> str:
        return f"{next(numbers):08x}"

    with (
        mock.patch.object(claim.secrets, "token_hex", token),
        mock.patch.object(count_log.secrets, "token_hex", token),
        mock.patch.object(checkpoint, "EVERY_BATCHES", 2),
    ):
        yield
