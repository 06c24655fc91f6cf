"""Landing: COPY into a temp table, counted, and the record of what a batch has staged."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from kds_cdc_dagster.errors import InvariantBroken
from kds_cdc_dagster.load.layout import Columns, Schemas
from kds_cdc_dagster.ports import LoadArtifact, Transaction

_LANDING = "kds_landing"


def land(tx: Transaction, columns: Columns, artifact: LoadArtifact) -> str:
    """COPY the artifact into a new temp table and prove the count. Returns the table's name."""
    tx.execute(f"DROP TABLE IF EXISTS {_LANDING}")
    listed_columns = ", ".join(f"{name} {tx.dialect.landing_type(declared)}" for name, declared in columns)
    tx.execute(f"CREATE TEMP TABLE {_LANDING} ({listed_columns})")
    tx.copy(_LANDING, artifact)
    ((found,),) = tx.rows(f"SELECT COUNT(*) FROM {_LANDING}")
    if found != artifact.rows:
        raise InvariantBroken(
            "COPY loaded another number of rows than the artifact holds",
            key=artifact.key,
            rows=artifact.rows,
            loaded=found,
        )
    return _LANDING


def landed(tx: Transaction, columns: Columns) -> str:
    """Select list that turns landing columns into permanent ones."""
    return ", ".join(tx.dialect.landed(name, declared) for name, declared in columns)


def staged_checksum(tx: Transaction, schemas: Schemas, entity: str, batch: str) -> str | None:
    """Checksum of the artifact whose rows of the batch are staged."""
    query = f"SELECT checksum FROM {schemas.op('staged')} WHERE entity = ? AND batch_id = ?"
    found = tx.rows(query, (entity, batch))
    return str(found[0][0]) if found else None


def record(tx: Transaction, schemas: Schemas, entity: str, artifact: LoadArtifact, *, batch: str, refused: int) -> None:
    """Remember that the artifact's rows are staged, instead of any earlier one's."""
    table = schemas.op("staged")
    tx.execute(f"DELETE FROM {table} WHERE entity = ? AND batch_id = ?", (entity, batch))
    tx.execute(
        f"INSERT INTO {table} (entity, batch_id, checksum, rows_staged, rows_refused, staged_at) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (entity, batch, artifact.sha256, artifact.rows, refused, datetime.fromtimestamp(time.time(), UTC)),
    )
