"""Replay: the same durable range again, from raw artifacts, into schemas of its own.

Nothing live is touched: staging, curated tables, ledger and quarantine of the replay are its own, exports do
not run. `load.compare` says how the outcome differs from live, and swaps it in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.errors import ObjectMissing, SettingsError
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.load.batch import read_batch
from kds_cdc_dagster.load.figures import control_totals
from kds_cdc_dagster.load.layout import Layout, Schemas
from kds_cdc_dagster.load.merge import MergeReport, merge
from kds_cdc_dagster.load.raw import read_raw, write_raw
from kds_cdc_dagster.load.schema import ensure_schema
from kds_cdc_dagster.load.staging import Stager
from kds_cdc_dagster.load.typed import typed
from kds_cdc_dagster.ports import Clock, ObjectStore, Warehouse

LISTED_MAX = 100
"""Gaps and streams named in a report."""


class Scope(msgspec.Struct, frozen=True):
    """What to replay. Empty fields do not restrict."""

    batches: tuple[str, ...] = ()
    received_from_ms: int | None = None
    received_to_ms: int | None = None
    """Exclusive."""
    streams: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


class Pace(msgspec.Struct, frozen=True):
    """Rate limit, so that live loads keep the warehouse."""

    changes_per_second: float = 2_000.0
    pause_seconds: float = 0.2
    """After every batch: others that wait for the warehouse get their turn."""


class Counts(msgspec.Struct):
    """What went through a replay; it closes if `is_closed`."""

    accepted: int = 0
    """Changes of the chosen targets' entities, as sealed."""
    raw_rows: int = 0
    repeats: int = 0
    other_streams: int = 0
    staged: int = 0
    refused: int = 0
    applied: int = 0
    """Rows written."""
    stale: int = 0

    @property
    def is_closed(self) -> bool:
        """Accepted = raw + repeats; raw = staged + refused + other streams."""
        is_raw_whole = self.accepted == self.raw_rows + self.repeats
        return is_raw_whole and self.raw_rows == self.staged + self.refused + self.other_streams


class ReplayReport(msgspec.Struct):
    """Source range, counts, gaps, control totals and sign-off of one replay (R5.1)."""

    replay: str
    schema_name: str
    scope: Scope
    started_at: float
    signed_off_by: str = ""
    batches: int = 0
    first_batch: str = ""
    last_batch: str = ""
    received_from_ms: int = 0
    received_to_ms: int = 0
    streams: int = 0
    counts: Counts = msgspec.field(default_factory=Counts)
    gaps: list[str] = msgspec.field(default_factory=list)
    """Batches (and entities) whose raw artifact and journal are both gone."""
    control_totals: dict[str, dict[str, dict[str, str]]] = msgspec.field(default_factory=dict)
    """Target -> replayed | live -> rows, tombstones, sums of decimal columns."""
    duration_seconds: float = 0.0
    is_reconciled: bool = False
    """Counts close and there is no gap."""


def isolated_schemas(name: str, live: Schemas) -> Schemas:
    """Schemas of a replay called `name`. Raises SettingsError if they would be live ones."""
    found = Schemas(f"{name}_staging", name, f"{name}_ops")
    if {found.staging, found.curated, found.ops} & {live.staging, live.curated, live.ops}:
        raise SettingsError("a replay needs schemas of its own", schema=name, hint="choose another name")
    return found


def replayed_targets(store: ObjectStore, name: str) -> set[str]:
    """Targets that replays called `name` have filled, by their reports."""
    reports = (msgspec.json.decode(store.get(info.key), type=ReplayReport) for info in store.scan(keys.REPLAYS))
    return {target for report in reports if report.schema_name == name for target in report.control_totals}


def chosen(manifests: Iterable[Manifest], scope: Scope) -> list[Manifest]:
    """Sealed batches in the scope, in the order of sealing."""
    return sorted((m for m in manifests if _is_chosen(m, scope)), key=lambda m: (m.sealed_at_ms, m.batch))


def _is_chosen(manifest: Manifest, scope: Scope) -> bool:
    start, end = scope.received_from_ms, scope.received_to_ms
    return (
        (not scope.batches or manifest.batch in scope.batches)
        and (start is None or manifest.last_received_ms >= start)
        and (end is None or manifest.first_received_ms < end)
        and (not scope.streams or any(lane.stream in scope.streams for lane in manifest.lanes))
        and not manifest.held
    )


@dataclass(slots=True)
class Replayer:
    """Replays batches into one set of isolated schemas. Repeatable: what was replayed is known there."""

    warehouse: Warehouse
    store: ObjectStore
    catalogue: Catalogue
    schemas: Schemas
    clock: Clock
    code_version: str
    scope: Scope = field(default_factory=Scope)
    on_batch: Callable[[Manifest], object] = field(default=lambda _: None)

    def run(self, report: ReplayReport, manifests: list[Manifest], pace: Pace, live: Schemas) -> ReplayReport:
        """Replay the batches in order and complete the report. Raises WarehouseBusy, LoadRefused."""
        started = self.clock.now()
        ensure_schema(self.warehouse, self.catalogue, self.schemas)
        for manifest in manifests:
            self._batch(report, manifest)
            self.on_batch(manifest)
            ahead = report.counts.raw_rows / pace.changes_per_second - (self.clock.now() - started)
            self.clock.sleep(max(pace.pause_seconds, ahead))
        _note_range(report, manifests)
        report.control_totals = {name: self._totals(name, live) for name in self._targets()}
        report.duration_seconds = round(self.clock.now() - started, 3)
        report.is_reconciled = report.counts.is_closed and not report.gaps
        return report

    def _targets(self) -> list[str]:
        return [t.name for t in self.catalogue.targets if not self.scope.targets or t.name in self.scope.targets]

    def _entities(self, manifest: Manifest) -> Iterator[str]:
        wanted = {name for target in self._targets() for name in self.catalogue.target_by_name[target].from_}
        return (name for name in manifest.entities if name in wanted)

    def _batch(self, report: ReplayReport, manifest: Manifest) -> None:
        staged = [entity for entity in self._entities(manifest) if self._stage(report, entity, manifest)]
        for target in self._targets():
            if set(self.catalogue.target_by_name[target].from_) & set(staged):
                layout = Layout.of(self.catalogue, target, self.schemas)
                done: MergeReport = merge(self.warehouse, layout, manifest.batch, code_version=self.code_version)
                report.counts.applied += done.applied
                report.counts.stale += done.stale

    def _stage(self, report: ReplayReport, entity: str, manifest: Manifest) -> bool:
        counts = report.counts
        counts.accepted += sum(found.changes for found in manifest.slices if found.entity == entity)
        try:
            artifact, records = self._raw(entity, manifest)
        except ObjectMissing:
            report.gaps = [*report.gaps, f"{manifest.batch} {entity}"][:LISTED_MAX]
            return False
        mine = self._of_streams(records)
        counts.raw_rows += records.num_rows
        counts.repeats += artifact
        counts.other_streams += records.num_rows - mine.num_rows
        found = self.catalogue.entity_by_name[entity]
        stager = Stager(self.warehouse, self.store, self.catalogue, self.schemas)
        rows = typed(mine, found, self.catalogue, bytes_max=self.warehouse.dialect.bytes_max)
        staged = stager.stage_typed(found, manifest.batch, mine, rows)
        counts.staged += staged.rows
        counts.refused += staged.refused
        return True

    def _raw(self, entity: str, manifest: Manifest) -> tuple[int, pa.Table]:
        """Repeats and rows of the raw artifact; it is written first where its batch never got that far."""
        try:
            artifact, records = read_raw(self.store, entity, manifest.batch)
        except ObjectMissing:
            write_raw(self.store, entity, read_batch(self.store, manifest))
            artifact, records = read_raw(self.store, entity, manifest.batch)
        return artifact.repeats, records

    def _of_streams(self, records: pa.Table) -> pa.Table:
        streams = self.scope.streams
        return records.filter(pc.is_in(records["stream"], pa.array(streams, pa.string()))) if streams else records

    def _totals(self, target: str, live: Schemas) -> dict[str, dict[str, str]]:
        layouts = {"replayed": self.schemas, "live": live}
        return {
            name: control_totals(self.warehouse, Layout.of(self.catalogue, target, schemas))
            for name, schemas in layouts.items()
        }


def _note_range(report: ReplayReport, manifests: list[Manifest]) -> None:
    report.batches = len(manifests)
    if manifests:
        report.first_batch, report.last_batch = manifests[0].batch, manifests[-1].batch
        report.received_from_ms = min(manifest.first_received_ms for manifest in manifests)
        report.received_to_ms = max(manifest.last_received_ms for manifest in manifests)
    report.streams = len({(lane.source, lane.stream) for manifest in manifests for lane in manifest.lanes})
