"""Kafka Connect schemas of the wrapper form, by declared type and modes. Source: the `pg-schemas` capture."""

from __future__ import annotations

from typing import Any

from kds_cdc_dagster_tests.synthetic.encoding import ticks
from kds_cdc_dagster_tests.synthetic.mode import Mode
from kds_cdc_dagster_tests.synthetic.tables import Column, Table

Schema = dict[str, Any]

_PLAIN = {
    **dict.fromkeys(("int2", "smallint", "tinyint"), "int16"),
    **dict.fromkeys(("int4", "int"), "int32"),
    **dict.fromkeys(("int8", "bigint", "bigint unsigned"), "int64"),
    **dict.fromkeys(("float8", "double"), "double"),
    **dict.fromkeys(("bool", "bit"), "boolean"),
    "bytes": "bytes",
}
_NAMED = {"uuid": "io.debezium.data.Uuid", "json": "io.debezium.data.Json", "jsonb": "io.debezium.data.Json"}
_STRINGS = ("version", "connector", "name", "snapshot", "db", "sequence", "schema", "table", "gtid", "file")
_NUMBERS = ("ts_ms", "ts_us", "ts_ns", "txId", "lsn", "xmin", "server_id", "pos", "row", "thread")


def envelope_schema(table: Table, mode: Mode) -> Schema:
    """Schema of the table's envelope."""
    row = [_field(column, mode) for column in table.columns]
    topic = f"kdsprod.kds.{table.name}"
    images = [_struct(row, f"{topic}.Value", field=name, optional=True) for name in ("before", "after")]
    source = [{"type": "string", "optional": True, "field": name} for name in _STRINGS]
    source += [{"type": "int64", "optional": True, "field": name} for name in _NUMBERS]
    named = f"io.debezium.connector.{mode.connector}.Source"
    fields = [*images, _struct(source, named, field="source"), {"type": "string", "optional": False, "field": "op"}]
    fields += [{"type": "int64", "optional": True, "field": name} for name in ("ts_ms", "ts_us", "ts_ns")]
    return _struct(fields, f"{topic}.Envelope", version=2)


def _struct(fields: list[Schema], name: str, *, optional: bool = False, **more: Any) -> Schema:
    return {"type": "struct", "fields": fields, "optional": optional, "name": name, **more}


def _field(column: Column, mode: Mode) -> Schema:
    return {**_type(column, mode), "optional": column.is_nullable, "field": column.name}


def _type(column: Column, mode: Mode) -> Schema:
    kind = column.type
    if kind in {"numeric", "decimal"} or (kind == "bigint unsigned" and mode.unsigned == "precise"):
        return _decimal(column, mode)
    if kind in {"timestamptz", "timestamp", "datetime", "date", "time"}:
        return _temporal(column, mode)
    if kind in _NAMED:
        return {"type": "string", "name": _NAMED[kind], "version": 1}
    if kind == "text[]":
        return {"type": "array", "items": {"type": "string", "optional": True}}
    if kind == "interval":
        name = "MicroDuration" if mode.intervals == "numeric" else "Interval"
        return {"type": "int64" if mode.intervals == "numeric" else "string", "name": f"io.debezium.time.{name}"}
    if kind in {"bytea", "varbinary"} and mode.binaries == "bytes":
        kind = "bytes"
    return {"type": _PLAIN.get(kind, "string")}


def _decimal(column: Column, mode: Mode) -> Schema:
    if column.type != "bigint unsigned" and mode.decimals != "precise":
        return {"type": "string" if mode.decimals == "string" else "double"}
    if column.type == "numeric" and not column.arguments:
        return {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "version": 1}
    scale = str(column.arguments[1] if column.arguments else 0)
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": scale}}


def _temporal(column: Column, mode: Mode) -> Schema:
    if column.type == "timestamptz" or (column.type == "timestamp" and mode.is_binlog):
        return {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1}
    word = {"date": "Date", "time": "Time"}.get(column.type, "Timestamp")
    if mode.times == "isostring":
        return {"type": "string", "name": f"io.debezium.time.Iso{word}", "version": 1}
    if mode.times == "connect":
        return {"type": "int64" if word == "Timestamp" else "int32", "name": f"org.apache.kafka.connect.data.{word}"}
    if word == "Date":
        return {"type": "int32", "name": "io.debezium.time.Date", "version": 1}
    unit = {1_000: "", 1_000_000: "Micro", 1_000_000_000: "Nano"}[ticks(column, mode)]
    return {"type": "int64", "name": f"io.debezium.time.{unit}{word}", "version": 1}
