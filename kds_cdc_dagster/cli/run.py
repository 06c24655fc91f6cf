"""`kds-cdc run`: drive the sensors and their runs in this process."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from kds_cdc_dagster.cli.children import Children
from kds_cdc_dagster.cli.counts import curated_rows, quarantine_rows
from kds_cdc_dagster.cli.waiting import Waiting
from kds_cdc_dagster.intake import offers
from kds_cdc_dagster.journal import claims, manifest, outbox
from kds_cdc_dagster.journal.logs import Tail, sealed_slot
from kds_cdc_dagster.load import dirty
from kds_cdc_dagster.wiring import Pipeline, pipeline

if TYPE_CHECKING:
    from kds_cdc_dagster.defs.driver import Driver, RunOutcome

PAUSE_SECONDS = 0.5
"""Between two looks when nothing moved: messages in flight elsewhere, a state store that is away."""

EXPORTS = "(exports)"
"""Stands for a batch in the report of a run of exports alone."""


@dataclass(slots=True)
class Summary:
    """What a run did."""

    counts: dict[str, int] = field(default_factory=dict)
    batches: list[dict[str, object]] = field(default_factory=list)
    failed_runs: list[dict[str, object]] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    """Batches that ran out of attempts, or were held at sealing."""
    failure: str = ""
    curated: dict[str, int] = field(default_factory=dict)
    quarantine: dict[str, int] = field(default_factory=dict)
    quarantined: int = 0
    """Rows that this run added to the quarantine."""
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether every sealed batch is loaded and the intake works."""
        return not self.given_up and not self.failure


@click.command()
@click.option("--until-idle", is_flag=True, help="Go on until queue, open batches and outbox are empty.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Draining processes.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable summary.")
@click.option("--timeout", type=float, default=0.0, help="With --until-idle: give up after so many seconds (0: never).")
@click.option("--strict", is_flag=True, help="Exit 1 also if this run quarantined anything.")
def run(until_idle: bool, workers: int, as_json: bool, timeout: float, strict: bool) -> None:
    """Tick the intake sensor and execute the runs it requests.

    Without --until-idle: one tick and its runs. Exit code 0 only if nothing failed; quarantined messages are
    no failure, they are reported.
    """
    parts = pipeline()
    before = sum(quarantine_rows(parts).values())
    summary = drive(parts, until_idle=until_idle, workers=workers, timeout_seconds=timeout)
    parts.close()
    summary.quarantined = sum(summary.quarantine.values()) - before
    click.echo(json.dumps(_document(summary), indent=2) if as_json else summary_text(summary))
    if not summary.is_good or (strict and summary.quarantined):
        raise SystemExit(1)


def drive(parts: Pipeline, *, until_idle: bool, workers: int = 1, timeout_seconds: float = 0.0) -> Summary:
    """Drive the sensors until idle (or once) and say what happened."""
    from kds_cdc_dagster.definitions import definitions
    from kds_cdc_dagster.defs.driver import Driver
    from kds_cdc_dagster.defs.instance import open_instance

    logging.getLogger("dagster").setLevel(logging.ERROR)
    started = time.monotonic()
    summary = Summary()
    parts.is_draining = until_idle
    with open_instance(parts.settings) as instance:
        driver = Driver(parts, instance, definitions())
        with Children(workers - 1) as children:
            _loop(parts, driver, summary, children, until_idle=until_idle, deadline=_deadline(timeout_seconds))
    _report(parts, driver, summary)
    summary.seconds = time.monotonic() - started
    return summary


def _deadline(timeout_seconds: float) -> float:
    return time.monotonic() + timeout_seconds if timeout_seconds > 0 else float("inf")


def _loop(
    parts: Pipeline, driver: Driver, summary: Summary, children: Children, *, until_idle: bool, deadline: float
) -> None:
    waiting = Waiting()
    while True:
        requests = driver.tick()
        for outcome in driver.execute(requests):
            _note(parts, summary, outcome)
        if not until_idle:
            return
        if time.monotonic() > deadline:
            summary.failure = "not idle before the timeout"
            return
        if sum(failed["batch"] == EXPORTS for failed in summary.failed_runs) >= parts.settings.run_attempts_max:
            summary.failure = "exports fail: see the failed runs"
            return
        if driver.failure or not requests:
            if not driver.failure and _queue_is_empty(parts):
                children.end()
            if is_idle(parts) and not children.are_running:
                return
            waiting.say(parts, driver.failure)
            time.sleep(PAUSE_SECONDS if not requests else 0)


def _queue_is_empty(parts: Pipeline) -> bool:
    return parts.inbox.depth().is_empty


def is_idle(parts: Pipeline) -> bool:
    """Whether nothing waits anywhere: queue, open batch, logs of workers that are gone, outbox, exports."""
    ticker = parts.ticker("intake_1")
    if not _queue_is_empty(parts) or ticker.intake.batch is not None:
        return False
    if next(outbox.waiting(parts.store), None) is not None or _has_open_batch(parts):
        return False
    return not dirty.marked(parts.store, parts.catalogue)


def _has_open_batch(parts: Pipeline) -> bool:
    """Whether a worker, living or dead, has segments that are in no sealed batch. A log without any may stay open."""
    for found in claims.open_claims(parts.store):
        sealed = sealed_slot(parts.store, found.claim, found.sealed_slot)
        if Tail(parts.store, found.claim, sealed).slots:
            return True
    return False


def _note(parts: Pipeline, summary: Summary, outcome: RunOutcome) -> None:
    said = "loaded" if outcome.is_success else "FAILED"
    click.echo(f"  {said}: {outcome.batch or EXPORTS}", err=True)
    if outcome.is_success and outcome.batch:
        sealed = manifest.read(parts.store, outcome.batch)
        summary.batches.append(
            {
                "batch": outcome.batch,
                "changes": sealed.accepted,
                "closed_by": sealed.close_reason,
                "lanes": len(sealed.lanes),
            }
        )
    elif not outcome.is_success:
        summary.failed_runs.append(
            {
                "batch": outcome.batch or EXPORTS,
                "attempt": outcome.attempt,
                "steps": outcome.failed_steps,
                "error": outcome.error.splitlines()[0] if outcome.error else "",
            }
        )


def _report(parts: Pipeline, driver: Driver, summary: Summary) -> None:
    summary.counts = driver.counts
    summary.failure = summary.failure or driver.failure
    summary.given_up = [failure.batch for failure in offers.failures(parts.store)]
    summary.curated = curated_rows(parts)
    summary.quarantine = quarantine_rows(parts)


def _document(summary: Summary) -> dict[str, object]:
    return {
        "ok": summary.is_good,
        "counts": summary.counts,
        "batches": summary.batches,
        "failed_runs": summary.failed_runs,
        "batches_given_up": summary.given_up,
        "failure": summary.failure,
        "curated_rows": summary.curated,
        "quarantine": summary.quarantine,
        "quarantined_now": summary.quarantined,
        "seconds": round(summary.seconds, 2),
    }


def summary_text(summary: Summary) -> str:
    """What a run did, for people."""
    lines = ["received and decided:"]
    lines += [f"  {name:<32} {number:>8}" for name, number in sorted(summary.counts.items())]
    reasons = Counter(str(batch["closed_by"]) for batch in summary.batches)
    lines.append("batches loaded: " + (", ".join(f"{n} closed by {r}" for r, n in sorted(reasons.items())) or "none"))
    lines += ["rows in curated tables:"] + [f"  {name:<32} {n:>8}" for name, n in sorted(summary.curated.items())]
    if summary.quarantine:
        lines += ["quarantine (all time):"] + [f"  {name:<32} {n:>8}" for name, n in sorted(summary.quarantine.items())]
    if summary.quarantined:
        lines.append(
            f"ATTENTION: {summary.quarantined} new in quarantine; look at ops.quarantine, then `kds-cdc doctor`"
        )
    for failed in summary.failed_runs:
        lines.append(f"run of {failed['batch']} failed (attempt {failed['attempt']}): {failed['error']}")
    lines += [f"batch given up: {batch} (see `kds-cdc status`)" for batch in summary.given_up]
    if summary.failure:
        lines.append(f"FAILED: {summary.failure}")
    lines.append(f"done in {summary.seconds:.1f} s")
    return "\n".join(lines)
