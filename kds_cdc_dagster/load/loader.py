"""The load of a batch, stage by stage: what the assets call. Each step is safe to repeat, alone or together."""

from __future__ import annotations

import threading
from hashlib import sha256

import msgspec

from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.journal import manifest as manifests
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.load import dirty
from kds_cdc_dagster.load.batch import read_batch
from kds_cdc_dagster.load.done import mark_done
from kds_cdc_dagster.load.drift import narrowed
from kds_cdc_dagster.load.export import ExportReport, export
from kds_cdc_dagster.load.layout import Layout, Schemas
from kds_cdc_dagster.load.merge import MergeReport, merge
from kds_cdc_dagster.load.quarantine import quarantine_batch
from kds_cdc_dagster.load.raw import RawArtifact, write_raw
from kds_cdc_dagster.load.released import close_released
from kds_cdc_dagster.load.schema import ensure_schema
from kds_cdc_dagster.load.staging import Staged, Stager
from kds_cdc_dagster.ports import ObjectStore, Warehouse

RULES = "1"
"""Version of the decoding and merging rules: raise it when a fix must change rows on replay."""


class Quarantined(msgspec.Struct, frozen=True):
    """What the quarantine step did with a batch."""

    batch: str
    rejected: int
    parked: int
    new_rows: int


def code_version(catalogue: Catalogue) -> str:
    """Changes with the rules and with the catalogue: equal row orders are then applied again on replay."""
    return f"{RULES}-{sha256(catalogue.model_dump_json(by_alias=True).encode()).hexdigest()[:16]}"


class Loader:
    """Loads sealed batches into one set of schemas."""

    def __init__(self, warehouse: Warehouse, store: ObjectStore, catalogue: Catalogue, schemas: Schemas) -> None:
        self._warehouse = warehouse
        self._store = store
        self._catalogue = catalogue
        self._schemas = schemas
        self._version = code_version(catalogue)
        self._is_ensured = False
        self._typed_as = catalogue
        self._lock = threading.Lock()

    def manifest(self, batch: str) -> Manifest:
        """Manifest of a batch. Raises ObjectMissing."""
        return manifests.read(self._store, batch)

    def ensure(self) -> None:
        """Make the warehouse fit the catalogue, once per process."""
        with self._lock:
            if not self._is_ensured:
                ensure_schema(self._warehouse, self._catalogue, self._schemas)
                self._typed_as = narrowed(self._warehouse, self._catalogue, self._schemas)
                self._is_ensured = True

    def raw(self, entity: str, manifest: Manifest) -> RawArtifact:
        """Write the raw artifact of one entity."""
        return write_raw(self._store, entity, read_batch(self._store, manifest))

    def stage(self, entity: str, manifest: Manifest) -> Staged:
        """Load the typed rows of one entity into staging."""
        self.ensure()
        return Stager(self._warehouse, self._store, self._typed_as, self._schemas).stage(entity, manifest.batch)

    def merge(self, target: str, manifest: Manifest) -> MergeReport:
        """Merge what is staged of the batch into a target; then see whether the batch is done."""
        self.ensure()
        layout = Layout.of(self._catalogue, target, self._schemas)
        report = merge(self._warehouse, layout, manifest.batch, code_version=self._version)
        self.mark_dirty(target, manifest.batch)
        self._mark_done(manifest)
        return report

    def mark_dirty(self, target: str, batch: str) -> None:
        """Note that the target's export is behind."""
        if self._catalogue.target_by_name[target].export is not None:
            dirty.mark(self._store, target, batch)

    def quarantine(self, manifest: Manifest) -> Quarantined:
        """Make rows of the batch's rejected and parked deliveries; then see whether the batch is done."""
        self.ensure()
        batch = read_batch(self._store, manifest)
        new_rows = quarantine_batch(self._warehouse, self._store, batch, self._schemas)
        self.close_released()
        self._mark_done(manifest)
        return Quarantined(manifest.batch, manifest.rejected, manifest.parked, new_rows)

    def close_released(self) -> None:
        """Close the quarantine rows of parked deliveries that were released. Raises WarehouseBusy."""
        self.ensure()
        close_released(self._warehouse, self._store, self._schemas)

    def export(self, target: str) -> ExportReport:
        """Export a target as it is now, if anything changed since its last export."""
        self.ensure()
        seen = dirty.marks(self._store, target)
        report = export(self._warehouse, self._store, Layout.of(self._catalogue, target, self._schemas))
        dirty.clear(self._store, seen)
        return report

    def _mark_done(self, manifest: Manifest) -> None:
        mark_done(self._warehouse, self._store, self._catalogue, self._schemas, manifest)
