"""Staging: a raw artifact becomes typed rows of `<staging>.<entity>`, once, however often it is repeated."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from kds_cdc_dagster.core.catalogue import Catalogue, Entity
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.load.artifact import put_artifact
from kds_cdc_dagster.load.landing import StagedRows, land, landed, record, staged_checksum
from kds_cdc_dagster.load.layout import Columns, Schemas, listed, staged_columns
from kds_cdc_dagster.load.quarantine import put_refused
from kds_cdc_dagster.load.raw import read_raw
from kds_cdc_dagster.load.typed import Typed, typed
from kds_cdc_dagster.ports import LoadArtifact, ObjectStore, Transaction, Warehouse


class Staged(msgspec.Struct, frozen=True):
    """What staging did with one entity of one batch."""

    entity: str
    batch: str
    checksum: str
    """Of the load artifact: the merge's ledger key, so that other typed rows are applied again."""
    rows: int
    refused: int
    drift: dict[str, int]
    """`<kind> <column>` -> rows (`load.typed.Typed.drift`)."""
    size_bytes: int
    is_repeat: bool
    """These very rows were staged before: nothing was done."""


class Stager:
    """Stages entities into one warehouse."""

    def __init__(
        self,
        warehouse: Warehouse,
        store: ObjectStore,
        catalogue: Catalogue,
        schemas: Schemas,
    ) -> None:
        self._warehouse = warehouse
        self._store = store
        self._catalogue = catalogue
        self._schemas = schemas

    def stage(self, entity: str, batch: str) -> Staged:
        """Type the raw artifact, load it, and quarantine what could not be typed.

        Raises InvariantBroken if the raw artifact or the count of loaded rows is wrong, LoadRefused.
        """
        _, records = read_raw(self._store, entity, batch)
        found = self._catalogue.entity_by_name[entity]
        rows = typed(records, found, self._catalogue, bytes_max=self._warehouse.dialect.bytes_max)
        return self.stage_typed(found, batch, records, rows)

    def stage_typed(self, entity: Entity, batch: str, records: pa.Table, rows: Typed) -> Staged:
        """Load typed rows; `records` are the raw rows that `Typed.refused` points into."""
        columns = staged_columns(entity)
        drift = {f"{kind} {column}": count for (kind, column), count in sorted(rows.drift.items()) if count}
        artifact = put_artifact(self._store, keys.load(entity.name, batch), rows.table, columns)
        refused = put_refused(self._store, entity.name, batch, records, rows.refused)

        def body(tx: Transaction) -> bool:
            if refused is not None:
                refused.insert(tx, self._schemas)
            known = staged_checksum(tx, self._schemas, entity.name, batch)
            if known == artifact.sha256:
                return False
            _replace(tx, f"{self._schemas.staging}.{entity.name}", columns, batch, artifact)
            staged = StagedRows(artifact, len(rows.refused), drift)
            record(tx, self._schemas, entity.name, staged, batch=batch, is_first=known is None)
            return True

        is_new = self._warehouse.run(body, lock=f"{self._schemas.staging}.{entity.name}")
        return Staged(
            entity=entity.name,
            batch=batch,
            checksum=artifact.sha256,
            rows=artifact.rows,
            refused=len(rows.refused),
            drift=drift,
            size_bytes=artifact.size_bytes,
            is_repeat=not is_new,
        )


def _replace(tx: Transaction, table: str, columns: Columns, batch: str, artifact: LoadArtifact) -> None:
    """Delete first: on Redshift the first touch of a table must take the exclusive lock."""
    landing = land(tx, columns, artifact)
    tx.execute(f"DELETE FROM {table} WHERE _batch_id = ?", (batch,))
    names = listed(name for name, _ in columns)
    tx.execute(f"INSERT INTO {table} ({names}, _batch_id) SELECT {landed(tx, columns)}, ? FROM {landing}", (batch,))
    tx.unland(landing)
