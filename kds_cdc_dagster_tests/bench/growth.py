"""Cost against what has piled up: batches made (with their objects in the store), and rows in curated."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kds_cdc_dagster.core.batch import CloseReason
from kds_cdc_dagster.intake.engine import Intake
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.ports import Transaction
from kds_cdc_dagster_tests.bench.load import STREAMS, sealed
from kds_cdc_dagster_tests.bench.measure import RUNS, Figure, Span, span
from kds_cdc_dagster_tests.bench.sites import LoadSite, check, open_intake, open_load
from kds_cdc_dagster_tests.bench.workload import Workload

OLD_CLAIM = "20260101T000000-old-{:08d}"
BATCHES_PER_CLAIM = 1_000
ROWS_ADDED = "SELECT t.* REPLACE (t.{key} + ({step} * (i + 1)) AS {key}) FROM {rows} t, range({times}) r(i)"


def batches(*, quick: bool) -> Iterator[Figure]:
    """Seal and load a batch of 1,000 when 10² … 10⁵ batches were made before: their manifests and ends are there."""
    with tempfile.TemporaryDirectory() as folder:
        site = open_intake(Path(folder), batch_records=1_000)
        load = open_load(Path(folder), site.store)
        workload = Workload(STREAMS)
        made = 0
        for target in (100, 1_000, 10_000, 100_000)[: 3 if quick else 4]:
            first = _batch(site.intake, workload, load)[2]
            for number in range(made, target):
                _add_old(load, first, number)
            load.warehouse.run(lambda tx, added=target - made: _add_ledgers(tx, added))  # type: ignore[misc]
            made = target
            spans = [_batch(site.intake, workload, load) for _ in range(RUNS)]
            yield _cost(f"seal one of 1,000, {made:,} batches made", [seal for seal, _, _ in spans])
            yield _cost(f"load one of 1,000, {made:,} batches made", [loaded for _, loaded, _ in spans])
        check(load.warehouse, workload)
        load.warehouse.close()


def _cost(name: str, spans: list[Span]) -> Figure:
    least = min(spans, key=lambda one: one.cpu_seconds)
    return Figure(name, least.cpu_seconds * 1e3, "ms CPU", note=f"wall {least.seconds * 1e3:.0f} ms")


def _batch(intake: Intake, workload: Workload, load: LoadSite) -> tuple[Span, Span, Manifest]:
    intake.round(workload.deliveries(1, 2))
    with span() as sealing:
        batch = intake.seal(CloseReason.COUNT)
        intake.ready()  # as every tick does: epochs, logs of others
    assert batch is not None
    with span() as loading:
        load.load_waiting()
    return sealing, loading, batch


def _add_old(load: LoadSite, like: Manifest, number: int) -> None:
    """A loaded batch of a claim that is gone: its manifest and its `done`; it has left the outbox."""
    claim, slot = OLD_CLAIM.format(number // BATCHES_PER_CLAIM), number % BATCHES_PER_CLAIM + 1
    batch = keys.batch_id(keys.SegmentId(claim, slot))
    old = msgspec.structs.replace(like, batch=batch, claim=claim, first_slot=slot, last_slot=slot)
    load.store.create(keys.manifest(batch), msgspec.json.encode(old))
    load.store.create(keys.done(batch), b"{}")


def _add_ledgers(tx: Transaction, added: int) -> None:
    """What the ledgers say of that many more batches: as of the ones they know, under other names."""
    for table in ("ops.load_ledger", "ops.staged"):
        tx.execute(
            f"INSERT INTO {table} SELECT t.* REPLACE (t.batch_id || '-' || i AS batch_id) FROM range({added}) r(i), "
            f"(SELECT * FROM {table} WHERE batch_id = (SELECT MIN(batch_id) FROM {table})) t"
        )


def curated(*, quick: bool) -> Iterator[Figure]:
    """Load a batch of 10,000 changes into targets of 10⁴ … 10⁷ rows."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = (10_000, 100_000, 1_000_000, 10_000_000)[: 2 if quick else 4]
        workload = Workload(STREAMS)
        made, load = sealed(Path(folder), workload, 10_000, len(sizes) + 1)
        load.load(made[0])
        for size, batch in zip(sizes, made[1:], strict=True):
            _grow(load, size)
            with span() as taken:
                load.load(batch)
            note = f"{taken.cpu_seconds / 10_000 * 1e6:.0f} µs of CPU each"
            yield Figure(f"load of 10,000, {size:,} rows in a target", 10_000 / taken.seconds, "/s", note=note)
        load.warehouse.close()


def _grow(load: LoadSite, size: int) -> None:
    """Copy what is there under other keys until the target has `size` rows."""
    rows = "curated.kitchen_ticket_rows"
    ((have, top),) = load.warehouse.run(lambda tx: tx.rows(f"SELECT COUNT(*), MAX(ticket_id) FROM {rows}"))
    if size <= have:
        return
    select = ROWS_ADDED.format(key="ticket_id", step=int(top) + 1, rows=rows, times=-(-(size - have) // have))
    load.warehouse.run(lambda tx: tx.execute(f"INSERT INTO {rows} {select} LIMIT {size - have}"))
