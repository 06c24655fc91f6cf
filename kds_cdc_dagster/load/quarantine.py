"""Quarantine in the warehouse: one row per refused delivery, however often it is redelivered or replayed.

The key is a hash of (stream, identity, content hash), or of the body's bytes where there is no identity.
Original bytes stay in the journal, at (`segment`, `segment_row`).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256

import pyarrow as pa

from kds_cdc_dagster.core.change import Outcome
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.load import landing
from kds_cdc_dagster.load.artifact import put_artifact
from kds_cdc_dagster.load.batch import Batch
from kds_cdc_dagster.load.layout import OPS, Schemas, listed
from kds_cdc_dagster.ports import LoadArtifact, ObjectStore, Transaction, Warehouse

SCOPE = "_quarantine"
"""Stands for an entity in keys and in the staged table; entity names begin with a letter."""

_COLUMNS = OPS["quarantine"]
_BODY_BYTES_MAX = 65_000
"""What is shown of a body; a warehouse's text ends at 65,535 bytes."""
_ARROW = {"text": pa.string(), "bigint": pa.int64(), "timestamptz": pa.timestamp("us", "UTC")}
_SCHEMA = pa.schema([(name, _ARROW.get(declared, pa.string())) for name, declared in _COLUMNS])


@dataclass(frozen=True, slots=True)
class SetAside:
    """Quarantine rows in an artifact, ready to be inserted in a transaction."""

    artifact: LoadArtifact

    def insert(self, tx: Transaction, schemas: Schemas) -> int:
        """Insert the rows whose key is new; returns how many were."""
        table = schemas.op("quarantine")
        landed = landing.land(tx, _COLUMNS, self.artifact)
        new = f"LEFT JOIN {table} known ON known.key = {landed}.key WHERE known.key IS NULL"
        ((count,),) = tx.rows(f"SELECT COUNT(*) FROM {landed} {new}")
        names = listed(name for name, _ in _COLUMNS)
        values = ", ".join(tx.dialect.landed(f"{landed}.{name}", declared) for name, declared in _COLUMNS)
        tx.execute(f"INSERT INTO {table} ({names}) SELECT {values} FROM {landed} {new}")
        self._reopen(tx, table, landed)
        tx.unland(landed)
        return int(count)

    @staticmethod
    def _reopen(tx: Transaction, table: str, landed: str) -> None:
        """A delivery that came again, by a redrive or a release, and is refused again is open again.

        A batch loaded again reopens nothing.
        """
        types = dict(_COLUMNS)
        moved = (
            "batch_id",
            "outcome",
            "reason",
            "detail",
            "segment",
            "segment_row",
            "message_id",
            "sequence_number",
            "received_at",
        )
        sets = ", ".join(f"{name} = n.{name}" for name in moved)
        fresh = ", ".join(f"{tx.dialect.landed(name, types[name])} AS {name}" for name in ("key", *moved))
        bare = table.rpartition(".")[2]
        tx.execute(
            f"UPDATE {table} SET status = 'open', {sets} FROM (SELECT {fresh} FROM {landed}) n "
            f"WHERE n.key = {bare}.key AND ({bare}.status = 'requeued' OR {bare}.outcome = 'parked') "
            f"AND n.received_at > {bare}.received_at"
        )


def quarantine_batch(warehouse: Warehouse, store: ObjectStore, batch: Batch, schemas: Schemas) -> int:
    """Make rows of the batch's rejected and parked deliveries; returns how many are new. Repeatable."""
    rows = batch.set_aside()
    name = batch.manifest.batch
    if not rows.num_rows:
        return 0
    found = SetAside(_put(store, name, SCOPE, (_row(name, record) for record in rows.to_pylist())))

    def body(tx: Transaction) -> int:
        count = found.insert(tx, schemas)
        landing.record(tx, schemas, SCOPE, landing.StagedRows(found.artifact, rows.num_rows), batch=name)
        return count

    return warehouse.run(body, lock=schemas.op("quarantine"))


def put_refused(
    store: ObjectStore, entity: str, batch: str, records: pa.Table, refused: Sequence[tuple[int, str, str]]
) -> SetAside | None:
    """Accepted changes that could not be typed: (row of `records`, reason, detail)."""
    if not refused:
        return None
    found = records.take([index for index, _, _ in refused]).to_pylist()
    rows = (
        _row(batch, {**record, "outcome": Outcome.REJECTED.value, "reason": reason, "detail": detail})
        for record, (_, reason, detail) in zip(found, refused, strict=True)
    )
    return SetAside(_put(store, batch, entity, rows, folder="refused/"))


def _put(
    store: ObjectStore, batch: str, entity: str, rows: Iterable[Mapping[str, object]], folder: str = ""
) -> LoadArtifact:
    unique = {str(row["key"]): dict(row) for row in rows}
    table = pa.Table.from_pylist(list(unique.values()), schema=_SCHEMA)
    return put_artifact(store, keys.load(entity, batch) + folder, table, _COLUMNS)


def _row(batch: str, record: Mapping[str, object]) -> Mapping[str, object]:
    body = record["body"]
    content = body if isinstance(body, bytes) else b""
    same_names = {name: record[name] for name, _ in _COLUMNS if name in record}
    return {
        **same_names,
        **dict(_text(content)),
        "key": _key(record, content),
        "batch_id": batch,
        "received_at": datetime.fromtimestamp(int(str(record["received_at_ms"])) / 1000, UTC),
        "body_bytes": len(content),
        "status": "open",
    }


def _key(record: Mapping[str, object], body: bytes) -> str:
    if not record["identity"]:
        return sha256(body).hexdigest()
    return sha256("\n".join(str(record[name]) for name in ("stream", "identity", "content_hash")).encode()).hexdigest()


def _text(body: bytes) -> Iterator[tuple[str, str]]:
    """NUL has no place in a warehouse's text: such bodies are shown in base64, as unreadable ones are."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = "\0"
    is_text = "\0" not in text
    shown = body if is_text else b64encode(body)
    yield "body_encoding", "utf-8" if is_text else "base64"
    yield "body", shown[:_BODY_BYTES_MAX].decode(errors="ignore")
