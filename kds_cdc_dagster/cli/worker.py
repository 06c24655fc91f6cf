"""`kds-cdc worker`: the intake as a plain long-running process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from types import FrameType

import click

from kds_cdc_dagster.wiring import Pipeline, pipeline

TURN_SECONDS = 2.0
"""Budget of one tick: how often readiness and dead logs are looked at."""
PAUSE_AFTER_FAILURE_SECONDS = 2.0


@click.command()
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes side by side.")
@click.option("--quiet", is_flag=True, help="Print nothing for idle ticks.")
def worker(workers: int, quiet: bool) -> None:
    """Drain the queue until stopped (SIGTERM or Ctrl-C ends cleanly).

    Sealed batches wait in the outbox until a Dagster sensor, or `kds-cdc run`, loads them.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _n, _f: _stop(stop, _n, _f))
    children = [_spawn(quiet=quiet) for _ in range(workers - 1)]
    parts = pipeline()
    try:
        drain(parts, stop, quiet=quiet)
    finally:
        for child in children:
            child.terminate()
        parts.close()
        for child in children:
            child.wait()


def _stop(stop: threading.Event, number: int, frame: FrameType | None) -> None:
    """First signal: finish the round and end. A second one ends at once."""
    del frame
    if stop.is_set():
        sys.exit(128 + number)
    stop.set()


def _spawn(*, quiet: bool) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "kds_cdc_dagster.cli", "worker", *(["--quiet"] if quiet else [])]
    return subprocess.Popen(command)  # noqa: S603 - our own module


def drain(parts: Pipeline, stop: threading.Event, *, quiet: bool = False) -> None:
    """Tick until `stop` is set."""
    ticker = parts.ticker("worker")
    wait = min(parts.settings.wait_seconds, TURN_SECONDS)
    while not stop.is_set():
        report = ticker.tick(budget_seconds=TURN_SECONDS, wait_seconds=wait)
        if report.failure or report.rounds or report.sealed or not quiet:
            click.echo(report.line())
        if report.failure:
            stop.wait(PAUSE_AFTER_FAILURE_SECONDS)
