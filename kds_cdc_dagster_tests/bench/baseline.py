"""What a user would write instead: the usual in-house worker.

One pydantic model a message, one EVALSHA a message that checks duplicates and order, batches of 1,000 through
pandas into a DuckDB merge, and only then the deletes. Same decisions, same final rows. What it has not: a journal,
raw artifacts, staging, quarantine, recovery; and a stream is locked until its batch is merged.
"""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import redis
from pydantic import BaseModel

from kds_cdc_dagster.adapters.duckdb_warehouse import DuckdbWarehouse
from kds_cdc_dagster.catalogue import load_catalogue
from kds_cdc_dagster.core.catalogue import Entity
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster_tests.bench.backlog import Backlog
from kds_cdc_dagster_tests.bench.sites import check
from kds_cdc_dagster_tests.bench.workload import Workload

BATCH = 1_000
DECIDE = """
if redis.call('SET', KEYS[2], ARGV[2], 'NX', 'EX', 3600) == false then return 'duplicate' end
local last = redis.call('GET', KEYS[1])
if last and last >= ARGV[1] then return 'out_of_order' end
redis.call('SET', KEYS[1], ARGV[1])
return 'accepted'
"""


class Source(BaseModel):
    """Debezium's source block."""

    connector: str
    name: str
    db: str
    schema_: str | None = None
    table: str
    lsn: int
    ts_ms: int


class Envelope(BaseModel):
    """A change."""

    op: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    source: Source
    ts_ms: int


def run(deliveries: list[Delivery], workload: Workload, redis_url: str, folder: Path) -> float:
    """Seconds from the first receive to the last commit. Raises AssertionError if the rows are not the source's."""
    queue = Backlog()
    queue.publish([deliveries])
    client = redis.Redis.from_url(redis_url)
    decide = client.register_script(DECIDE)
    path = folder / "warehouse.duckdb"
    options = {"threads": 2, "TimeZone": "UTC", "autoinstall_known_extensions": False}
    database = duckdb.connect(str(path), config=options)
    _create(database)
    started = time.monotonic()
    while batch := _received(queue):
        accepted = [envelope for delivery in batch if (envelope := _judged(delivery, decide)) is not None]
        _merge(database, accepted)
        queue.acknowledge([delivery.receipt for delivery in batch])
    seconds = time.monotonic() - started
    queue.prove_empty()
    database.close()
    check(DuckdbWarehouse(path, None), workload)  # type: ignore[arg-type]  # reads no objects
    return seconds


def _received(queue: Backlog) -> list[Delivery]:
    found: list[Delivery] = []
    while len(found) < BATCH and (more := queue.receive(max_messages=10, wait_seconds=0.0)):
        found += more
    return found


def _judged(delivery: Delivery, decide: Callable[..., Any]) -> Envelope | None:
    envelope = Envelope.model_validate_json(delivery.body)
    source = envelope.source
    keys = [f"last:{delivery.group_id}", f"seen:{source.table}:{source.lsn}:{envelope.op}"]
    return envelope if decide(keys=keys, args=[f"{source.lsn:020d}", "1"]) == b"accepted" else None


def _create(database: duckdb.DuckDBPyConnection) -> None:
    database.execute("CREATE SCHEMA curated")
    for entity in load_catalogue(None).entities:
        columns = ", ".join(f"{c.name} {_type(c.type)}" for c in entity.columns)
        key = ", ".join(entity.primary_key)
        database.execute(f"CREATE TABLE curated.{entity.name} ({columns}, _lsn BIGINT, PRIMARY KEY ({key}))")


def _type(declared: str) -> str:
    plain = {"uuid": "VARCHAR", "text": "VARCHAR", "binary": "BLOB"}
    return "VARCHAR" if declared.startswith("varchar") else plain.get(declared, declared.upper())


def _merge(database: duckdb.DuckDBPyConnection, envelopes: list[Envelope]) -> None:
    by_table: dict[str, list[Envelope]] = {}
    for envelope in envelopes:
        by_table.setdefault(envelope.source.table, []).append(envelope)
    database.execute("BEGIN")
    for entity in load_catalogue(None).entities:
        if entity.name in by_table:
            _merge_table(database, entity, by_table[entity.name])
    database.execute("COMMIT")


def _merge_table(database: duckdb.DuckDBPyConnection, entity: Entity, envelopes: list[Envelope]) -> None:
    (key,) = entity.primary_key
    rows = [{**_decoded(entity, e), "_op": e.op, "_lsn": e.source.lsn} for e in envelopes]
    frame = pd.DataFrame(rows).sort_values("_lsn").drop_duplicates(key, keep="last")
    database.register("frame", frame)
    database.execute(f"DELETE FROM curated.{entity.name} WHERE {key} IN (SELECT {key} FROM frame)")
    columns = ", ".join([*(column.name for column in entity.columns), "_lsn"])
    database.execute(f"INSERT INTO curated.{entity.name} SELECT {columns} FROM frame WHERE _op <> 'd'")
    database.unregister("frame")


def _decoded(entity: Entity, envelope: Envelope) -> dict[str, Any]:
    image = (envelope.before if envelope.op == "d" else envelope.after) or {}
    return {c.name: None if image[c.name] is None else _value(c.type, image[c.name]) for c in entity.columns}


def _value(declared: str, value: Any) -> Any:  # noqa: PLR0911  one line a type
    if declared.startswith("decimal"):
        return _number(declared, value)
    match declared:
        case "timestamptz":
            return datetime.fromisoformat(value)
        case "timestamp":
            return datetime.fromtimestamp(value / 1e6, UTC).replace(tzinfo=None)
        case "date":
            return date(1970, 1, 1) + timedelta(days=value)
        case "time":
            return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)).time()
        case "json":
            return value if isinstance(value, str) else str(value).replace("'", '"')
        case "binary":
            return b64decode(value)
    return value


def _number(declared: str, value: Any) -> Decimal:
    scale = int(declared.rstrip(")").rsplit(",", 1)[1])
    if isinstance(value, int):  # an interval, microseconds
        return Decimal(value).scaleb(-6)
    if isinstance(value, dict):
        scale, value = value["scale"], value["value"]
    return Decimal(int.from_bytes(b64decode(value), "big", signed=True)).scaleb(-scale)
