"""Through the real daemon and code server, as an operator starts them: latency under steady traffic, and a backlog.

Embedded profile in a folder of its own, default launcher, in-process executor. Traffic is `kds-cdc simulate` in a
process of its own, so that two CPUs carry publisher, queue, intake, daemon and runs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import psutil
import pytest

from kds_cdc_dagster.defs import names
from kds_cdc_dagster.intake import offers
from kds_cdc_dagster.journal import outbox
from kds_cdc_dagster.settings import Settings
from kds_cdc_dagster_tests.bench.measure import Figure, percentile
from kds_cdc_dagster_tests.defs.deployment import Deployment
from kds_cdc_dagster_tests.defs.site import Site

STORES = 200
QUIET_SECONDS = 12.0
"""Before traffic starts: the processes' own start is not measured."""
DRAIN_SECONDS_MAX = 900.0
LAGS = """
SELECT epoch(l.applied_at) - epoch(s._sent_at) FROM staging.{entity} s
JOIN ops.load_ledger l ON l.batch_id = s._batch_id AND l.target = '{entity}'
"""
"""Of every change, also of rows that later ones replaced. In the packaged catalogue targets are named as entities."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is measured: `rate` messages a second for `seconds`, or all of them before the daemon starts."""

    rate: float
    seconds: float

    @property
    def messages(self) -> int:
        """How many are sent."""
        return int(self.rate * self.seconds)


def steady_1000(*, quick: bool) -> Iterator[Figure]:
    """1,000 messages/s for five minutes (`--quick`: one) through daemon, code server and runs."""
    yield from _steady(Load(1_000, 60 if quick else 300), p95_seconds=30.0)


def steady_300(*, quick: bool) -> Iterator[Figure]:
    """300 messages/s for five minutes (`--quick`: one) through daemon, code server and runs."""
    yield from _steady(Load(300, 60 if quick else 300), p95_seconds=20.0)


def backlog(*, quick: bool) -> Iterator[Figure]:
    """A backlog of a million messages (`--quick`: 100,000) that waits when the daemon starts."""
    load = Load(100_000, 1 if quick else 10)
    with opened_site() as site, Deployment(site.parts.settings.home) as deployment:
        _publish(load, is_fast=True).wait()
        _start(deployment)
        started = time.monotonic()
        deployment.wait_until(lambda: site.parts.inbox.depth().is_empty, "the queue is empty", DRAIN_SECONDS_MAX)
        taken_in = load.messages / (time.monotonic() - started)
        deployment.wait_until(lambda: _is_through(site, load.messages), "the backlog is curated", DRAIN_SECONDS_MAX)
        seconds = time.monotonic() - started
        yield Figure("backlog taken in, start of the processes' work included", taken_in, "/s")
        yield Figure(
            "backlog curated, the same",
            load.messages / seconds,
            "/s",
            None if quick else 4_000.0,
        )
        yield _runs(site, at_most=25 * load.messages / 1_000_000 if not quick else None)
        yield _cpu(deployment, load.messages)
        _check(site, load)


def _steady(load: Load, *, p95_seconds: float) -> Iterator[Figure]:
    with opened_site() as site, Deployment(site.parts.settings.home) as deployment:
        _start(deployment)
        time.sleep(QUIET_SECONDS)
        publisher = _publish(load)
        deployment.wait_until(lambda: publisher.poll() is not None, "all is sent", 3 * load.seconds + 60)
        waiting = load.messages - _curated(site)
        deployment.wait_until(lambda: _is_through(site, load.messages), "all is curated", DRAIN_SECONDS_MAX)
        lags = _lags(site)
        name = f"{load.rate:,.0f}/s for {load.seconds:.0f} s, sent → curated"
        yield Figure(f"{name}, p50", percentile(lags, 0.5), "s")
        note = f"longest {max(lags):.1f} s"
        yield Figure(f"{name}, p95", percentile(lags, 0.95), "s", at_most=p95_seconds, note=note)
        yield Figure("not yet curated when the last was sent", waiting / load.rate, "s", note=f"{waiting:,} messages")
        yield _runs(site)
        yield _cpu(deployment, load.messages)
        _check(site, load)


@contextmanager
def opened_site() -> Iterator[Site]:
    """An embedded pipeline with the default settings, in a folder of its own; sensors on."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        age_seconds = Settings.model_fields["batch_age_seconds"].default
        site = Site(Path(folder), patch, intake="on", batch_age_seconds=age_seconds)
        yield site
        site.parts.close()


def _start(deployment: Deployment) -> None:
    deployment.start_code_server()
    deployment.start_daemon()


def _publish(load: Load, *, is_fast: bool = False) -> subprocess.Popen[bytes]:
    options = ["--rate", str(load.rate), "--seconds", str(load.seconds), "--stores", str(STORES)]
    command = [sys.executable, "-m", "kds_cdc_dagster.cli", "simulate", *options, *(["--fast"] if is_fast else [])]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def _curated(site: Site) -> int:
    try:
        ((changes,),) = site.rows("SELECT coalesce(sum(changes), 0) FROM ops.load_ledger")
    except Exception:  # noqa: BLE001  no table before the first load
        return 0
    return int(changes)


def _is_through(site: Site, messages: int) -> bool:
    """The queue and the outbox first: a look into the warehouse makes its runs wait."""
    time.sleep(0.7)
    store = site.parts.store
    assert not list(offers.failures(store)), "a batch was given up"
    is_waiting = not site.parts.inbox.depth().is_empty or not all(
        outbox.is_done(store, batch) for batch in outbox.waiting(store)
    )
    return not is_waiting and _curated(site) >= messages


def _lags(site: Site) -> list[float]:
    query = " UNION ALL ".join(LAGS.format(entity=entity.name) for entity in site.parts.catalogue.entities)
    return [float(lag) for (lag,) in site.rows(query)]


def _runs(site: Site, at_most: float | None = None) -> Figure:
    with site.instance() as instance:
        records = instance.get_run_records(filters=dg.RunsFilter(job_name=names.BATCH_JOB))
    statuses = Counter(record.dagster_run.status.value for record in records)
    took = [record.end_time - record.create_timestamp.timestamp() for record in records if record.end_time]
    note = f"{dict(statuses)}; requested → ended {percentile(took, 0.5):.1f} s (p50)"
    return Figure("runs", len(records), "", at_most=at_most, note=note)


def _cpu(deployment: Deployment, messages: int) -> Figure:
    """Of code server (runs, once ended, included) and daemon; the publisher is not."""
    found = {}
    for name, process_id in deployment.process_ids().items():
        times = psutil.Process(process_id).cpu_times()
        found[name] = times.user + times.system
        found[f"{name}'s runs"] = times.children_user + times.children_system
    note = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in found.items() if seconds >= 1)
    return Figure("CPU a message", sum(found.values()) / messages * 1e6, "µs", note=note)


def _check(site: Site, load: Load) -> None:
    """No change lost or doubled, no run failed. Raises AssertionError."""
    twice = "SELECT target, batch_id FROM ops.load_ledger GROUP BY target, batch_id HAVING count(*) > 1"
    assert site.rows(twice) == []
    assert _curated(site) == load.messages
    assert site.rows("SELECT count(*) FROM ops.quarantine") == [(0,)]
