"""Landing: an artifact's rows within reach of a transaction, counted, and the record of what a batch has staged."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from kds_cdc_dagster.load.layout import Columns, Schemas
from kds_cdc_dagster.ports import LoadArtifact, Transaction

_LANDING = "kds_landing"


def land(tx: Transaction, columns: Columns, artifact: LoadArtifact) -> str:
    """Land the artifact, counted by the adapter. Returns the name of the temp table or view, for `tx.unland`."""
    tx.land(_LANDING, columns, artifact)
    return _LANDING


def landed(tx: Transaction, columns: Columns) -> str:
    """Select list that turns landing columns into permanent ones."""
    return ", ".join(tx.dialect.landed(name, declared) for name, declared in columns)


def staged_checksum(tx: Transaction, schemas: Schemas, entity: str, batch: str) -> str | None:
    """Checksum of the artifact whose rows of the batch are staged."""
    query = f"SELECT checksum FROM {schemas.op('staged')} WHERE entity = ? AND batch_id = ?"
    found = tx.rows(query, (entity, batch))
    return str(found[0][0]) if found else None


class StagedRows(NamedTuple):
    """What one batch staged of one entity."""

    artifact: LoadArtifact
    refused: int
    drift: Mapping[str, int] = {}
    """`<kind> <column>` -> rows."""


def record(
    tx: Transaction, schemas: Schemas, entity: str, staged: StagedRows, *, batch: str, is_first: bool = False
) -> None:
    """Remember that the artifact's rows are staged, instead of any earlier one's. `is_first`: there is none."""
    table = schemas.op("staged")
    drift = msgspec.json.encode(staged.drift).decode() if staged.drift else None
    at = datetime.fromtimestamp(time.time(), UTC)
    if not is_first:
        tx.execute(f"DELETE FROM {table} WHERE entity = ? AND batch_id = ?", (entity, batch))
    tx.execute(
        f"INSERT INTO {table} (entity, batch_id, checksum, rows_staged, rows_refused, drift, staged_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (entity, batch, staged.artifact.sha256, staged.artifact.rows, staged.refused, drift, at),
    )
