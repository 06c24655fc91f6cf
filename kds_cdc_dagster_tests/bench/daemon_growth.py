"""What a sensor tick and a run cost when 10² … 10⁵ batches were made before, up to 10⁴ of them alive in Dagster.

The past is made by copying the traces of one real run: its rows in Dagster's run, event and partition tables (for
as many batches as may have live keys), and its manifest and done record (for all).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dagster as dg
import msgspec

from kds_cdc_dagster.definitions import definitions
from kds_cdc_dagster.defs import names
from kds_cdc_dagster.defs.driver import Driver
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.traffic.simulate import Traffic
from kds_cdc_dagster_tests.bench.daemon import STORES, opened_site
from kds_cdc_dagster_tests.bench.measure import RUNS, Figure, Span, span
from kds_cdc_dagster_tests.defs.site import Site

MADE = (100, 1_000, 10_000, 100_000)
CHANGES = 1_000
GROWTH_MAX = 1.2
OLD_CLAIM = "20260101T000000-old-{:08d}"
BATCHES_PER_CLAIM = 1_000
_COPIED_EVENTS = ("ASSET_MATERIALIZATION", "ASSET_CHECK_EVALUATION", "ASSET_MATERIALIZATION_PLANNED")
"""What Dagster looks into when it runs an asset; the other events are read by their run alone."""


def growth(*, quick: bool) -> Iterator[Figure]:
    """A tick and a run of 1,000 changes, with 10² … 10⁵ batches made before (`--quick`: 10³); 10⁴ keys at most."""
    with opened_site() as site, site.instance() as instance:
        traffic = Traffic(1, STORES)
        driver = Driver(site.parts, instance, definitions())
        site.parts.is_draining = True
        _spans(site, driver, traffic)  # imports, tables
        run = instance.get_runs(limit=1)[0]
        like = site.manifest(run.tags[names.TAG_BATCH])
        least: dict[str, float] = {}
        made = 0
        for target in MADE[: 2 if quick else len(MADE)]:
            _make(site, run, like, range(made, target))
            made = target
            measured = [_spans(site, driver, traffic) for _ in range(RUNS)]
            for name, spans in zip(("tick", "run"), zip(*measured, strict=True), strict=True):
                yield _cost(name, made, spans, least)


def _cost(name: str, made: int, spans: tuple[Span, ...], least: dict[str, float]) -> Figure:
    cheapest = min(spans, key=lambda one: one.cpu_seconds)
    cost = cheapest.cpu_seconds * 1e3
    times = cost / least.setdefault(name, cost)
    note = f"wall {cheapest.seconds * 1e3:.0f} ms; {times:.2f} × that after {MADE[0]}"
    return Figure(f"{name}, {made:,} batches made", cost, "ms CPU", at_most=least[name] * GROWTH_MAX, note=note)


def _spans(site: Site, driver: Driver, traffic: Traffic) -> tuple[Span, Span]:
    site.send(traffic.take(CHANGES))
    with span() as ticking:
        requests = driver.tick()
    with span() as running:
        outcomes = list(driver.execute(requests))
    assert [outcome.is_success for outcome in outcomes] == [True], outcomes
    return ticking, running


def _make(site: Site, run: dg.DagsterRun, like: Manifest, numbers: range) -> None:
    alive = range(numbers.start, min(numbers.stop, site.parts.settings.partition_keys_max))
    for number in numbers:
        _sealed(site, like, number)
    home = site.parts.settings.dagster_home
    with closing(sqlite3.connect(home / "event_log.db")) as db, db:
        _numbered(db, alive)
        _copied_events(db, run.run_id, like.batch)
    with closing(sqlite3.connect(home / "history" / "runs.db")) as db, db:
        _numbered(db, alive)
        _copied_runs(db, run.run_id, like.batch)


def _sealed(site: Site, like: Manifest, number: int) -> None:
    """A loaded batch of a claim that is gone; its files are written past the store, which would wait for the disk."""
    first = SegmentId(OLD_CLAIM.format(number // BATCHES_PER_CLAIM), number % BATCHES_PER_CLAIM + 1)
    batch = keys.batch_id(first)
    old = msgspec.structs.replace(like, batch=batch, claim=first.claim, first_slot=first.slot, last_slot=first.slot)
    for key, body in ((keys.manifest(batch), msgspec.json.encode(old)), (keys.done(batch), b"{}")):
        path = _root(site) / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)


def _root(site: Site) -> Path:
    return site.parts.settings.home / "store" / site.parts.settings.pipeline


def _numbered(db: sqlite3.Connection, numbers: range) -> None:
    db.execute("CREATE TEMP TABLE made (n INTEGER, batch TEXT)")
    rows = [
        (n, keys.batch_id(SegmentId(OLD_CLAIM.format(n // BATCHES_PER_CLAIM), n % BATCHES_PER_CLAIM + 1)))
        for n in numbers
    ]
    db.executemany("INSERT INTO made VALUES (?, ?)", rows)


def _copied_events(db: sqlite3.Connection, run_id: str, batch: str) -> None:
    kinds = ", ".join(f"'{kind}'" for kind in _COPIED_EVENTS)
    changed = {"run_id": "'old-' || m.n", "partition": "m.batch", "event": f"replace(t.event, '{batch}', m.batch)"}
    _copy(db, "event_logs", changed, f"t.run_id = '{run_id}' AND t.dagster_event_type IN ({kinds})")
    changed = {"run_id": "'old-' || m.n", "partition": "m.batch"}
    _copy(db, "asset_check_executions", changed, f"t.run_id = '{run_id}'")
    _copy(db, "dynamic_partitions", {"partition": "m.batch"}, f"t.partition = '{batch}'")


def _copied_runs(db: sqlite3.Connection, run_id: str, batch: str) -> None:
    body = f"replace(replace(t.run_body, '{run_id}', 'old-' || m.n), '{batch}', m.batch)"
    changed = {"run_id": "'old-' || m.n", "run_body": body, "partition": "m.batch"}
    _copy(db, "runs", changed, f"t.run_id = '{run_id}'")
    changed = {"run_id": "'old-' || m.n", "value": f"replace(t.value, '{batch}', m.batch)"}
    _copy(db, "run_tags", changed, f"t.run_id = '{run_id}'")


def _copy(db: sqlite3.Connection, table: str, changed: dict[str, str], where: str) -> None:
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] != "id"]
    values = ", ".join(changed.get(name, f"t.{name}") for name in columns)
    listed = ", ".join(columns)
    db.execute(
        f"INSERT INTO {table} ({listed}) SELECT {values} FROM {table} t, made m WHERE {where} ORDER BY m.n, t.id"
    )
