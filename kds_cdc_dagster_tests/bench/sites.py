"""The parts that the benchmarks put together: queue in memory, real Valkey, folder store, DuckDB."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kds_cdc_dagster.adapters.duckdb_warehouse import DuckdbWarehouse
from kds_cdc_dagster.adapters.marker_window import MarkerWindow
from kds_cdc_dagster.adapters.memory_inbox import MemoryQueue
from kds_cdc_dagster.adapters.memory_state import MemoryState
from kds_cdc_dagster.adapters.object_store import open_local
from kds_cdc_dagster.adapters.redis_state import RedisState
from kds_cdc_dagster.catalogue import load_catalogue
from kds_cdc_dagster.clock import SystemClock
from kds_cdc_dagster.core.batch import BatchPolicy
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.core.contracts import Limits, Parser
from kds_cdc_dagster.demo.oracle import differences
from kds_cdc_dagster.intake.collect import DirectCollector, RoundLimits
from kds_cdc_dagster.intake.counts import ACCEPTED
from kds_cdc_dagster.intake.engine import Intake, IntakePolicy, Ports
from kds_cdc_dagster.intake.tenure import Incumbent
from kds_cdc_dagster.journal import outbox
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.load.layout import Schemas
from kds_cdc_dagster.load.loader import Loader
from kds_cdc_dagster.ports import Clock, Inbox, ObjectStore, StateStore
from kds_cdc_dagster_tests.bench.workload import Workload

DUCKDB_MEGABYTES = 1_000
"""As the embedded profile; the whole path, whose memory is measured, makes do with less."""
DUCKDB_THREADS = 1
"""Two find no work in tables of a batch, and wait for each other on two busy cores."""
VISIBILITY_SECONDS = 600.0
ROUND = RoundLimits(records_max=5_000, bytes_max=4 << 20, linger_seconds=0.25)
"""As the aws profile; in memory a round is full long before it has lingered."""


@dataclass(frozen=True, slots=True)
class IntakeSite:
    """An intake and its ports."""

    intake: Intake
    queue: MemoryQueue
    state: StateStore
    store: ObjectStore

    def drain(self, limits: RoundLimits = ROUND) -> int:
        """Turns as a tick has them until the queue is empty; returns how many changes were accepted."""
        ports = self.intake.ports
        collector = DirectCollector(ports.inbox, ports.clock, limits)
        accepted = 0
        while deliveries := collector.collect(0.0):
            accepted += self.take(deliveries)
        return accepted

    def take(self, deliveries: list[Delivery]) -> int:
        """One round, sealed when a batch is full; returns how many changes were accepted."""
        accepted = self.intake.round(deliveries).get(ACCEPTED, 0)
        self.intake.seal_if_due()
        return accepted


def open_intake(
    folder: Path,
    redis_url: str = "",
    *,
    batch_records: int = 10_000,
    inbox: Inbox | None = None,
    store: ObjectStore | None = None,
) -> IntakeSite:
    """A worker that is ready. `inbox` and `store` take the place of the queue in memory and the folder.

    Without `redis_url` its state is in memory: where only what it seals is measured.
    """
    clock: Clock = SystemClock()
    queue = MemoryQueue(clock=clock, visibility_seconds=VISIBILITY_SECONDS, in_flight_max=1 << 40)
    store = store or open_local(folder / "store", "bench")
    state: StateStore = RedisState(redis_url, "bench", clock) if redis_url else MemoryState(clock, MarkerWindow())
    catalogue = load_catalogue(None)
    policy = IntakePolicy(
        Incumbent("bench", "here", 1, 5.0),
        BatchPolicy(batch_records, 60.0, 1 << 30, batch_records),
        VISIBILITY_SECONDS,
        15.0,
    )
    intake = Intake(
        Ports(inbox or queue, state, store, clock),
        policy,
        parser=Parser(catalogue, Limits(5, 1 << 20, frozenset({"debezium"}))),
        catalogue=catalogue,
        is_gone=lambda _heartbeat, _now: False,
    )
    intake.ready()
    return IntakeSite(intake, queue, state, store)


@dataclass(frozen=True, slots=True)
class LoadSite:
    """A loader of its own warehouse file."""

    loader: Loader
    warehouse: DuckdbWarehouse
    store: ObjectStore

    def load(self, manifest: Manifest) -> None:
        """Raw, staging and curated of one batch, by the steps that the assets of a run take, one after the other.

        Two entities at once in two threads were no faster: typing and DuckDB's small statements both need the GIL.
        """
        for entity in manifest.entities:
            self.loader.raw(entity, manifest)
            self.loader.stage(entity, manifest)
            self.loader.merge(entity, manifest)  # in the packaged catalogue targets are named as their entities
        if manifest.rejected + manifest.parked:
            self.loader.quarantine(manifest)

    def load_waiting(self) -> int:
        """Load what is in the outbox; returns how many changes that were."""
        changes = 0
        for batch in list(outbox.waiting(self.store)):
            manifest = outbox.sealed(self.store, batch)
            if manifest is not None:
                self.load(manifest)
                outbox.leave(self.store, batch)
                changes += manifest.accepted
        return changes


def open_load(folder: Path, store: ObjectStore | None = None, *, duckdb_megabytes: int = DUCKDB_MEGABYTES) -> LoadSite:
    """A loader whose tables are there."""
    store = store or open_local(folder / "store", "bench")
    warehouse = DuckdbWarehouse(
        folder / "warehouse.duckdb", store, threads=DUCKDB_THREADS, memory_limit=f"{duckdb_megabytes}MB"
    )
    loader = Loader(warehouse, store, load_catalogue(None), Schemas())
    loader.ensure()
    return LoadSite(loader, warehouse, store)


def check(warehouse: DuckdbWarehouse, workload: Workload) -> None:
    """Every curated row and column is what the source has. Raises AssertionError naming the first differences."""
    catalogue = load_catalogue(None)
    for name, expected in workload.expected().items():
        entity = catalogue.entity_by_name[name]
        columns = [column.name for column in entity.columns]
        query = f"SELECT {', '.join(columns)} FROM curated.{name}"
        rows: Iterable[tuple[object, ...]] = warehouse.run(lambda tx, sql=query: tx.rows(sql))  # type: ignore[misc]
        found = (dict(zip(columns, row, strict=True)) for row in rows)
        wrong = differences(entity, expected, found)
        assert not wrong, f"{len(wrong)} differences: {wrong[:3]}"
