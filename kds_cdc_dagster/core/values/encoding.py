"""Encodings: how a column's value is written in JSON, from its declared type, the connector's modes,
or the wrapper's schema.

Source of the tables: Debezium's JdbcValueConverters, TemporalPrecisionMode, PostgresValueConverter,
BinlogValueConverters and OracleValueConverters. Units come from the declared type, never from size.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kds_cdc_dagster.core.catalogue import Column, Source
from kds_cdc_dagster.core.values.logical import LogicalType
from kds_cdc_dagster.core.values.target import TargetType, target_type


class Encoding(NamedTuple):
    """How a value stands in JSON.

    `kind`: integer, unsigned, float, decimal, boolean, bits, text, json, bytes, date, time, timestamp,
    zoned, interval. `mode`: of decimals precise | string | double | natural, of bytes the binary mode.
    `unit`: ticks a second of times, timestamps and intervals.
    """

    kind: str
    mode: str = ""
    unit: int = 1_000_000
    scale: int | None = None


class Declared(NamedTuple):
    """A source's declared type, taken apart: `timestamp(3) with time zone` -> name, precision."""

    name: str
    precision: int | None
    scale: int | None


_DECLARED = re.compile(r"^([a-z_0-9 ]+?)\s*(?:\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\)\s*([a-z ]*))?(\[\])*$")
_INTEGERS = frozenset(
    ("int2", "int4", "int8", "smallint", "integer", "int", "bigint", "tinyint", "mediumint", "oid", "year", "serial")
)
_FLOATS = frozenset(
    ("float4", "float8", "real", "double", "double precision", "float", "binary_float", "binary_double")
)
_DECIMALS = frozenset(("numeric", "decimal", "dec", "fixed", "number", "money", "smallmoney"))
_BYTES = frozenset(
    ("bytea", "blob", "tinyblob", "mediumblob", "longblob", "binary", "varbinary", "raw", "image", "rowversion")
)
_TIMESTAMPS = frozenset(("timestamp", "datetime", "datetime2", "smalldatetime"))
_ZONED = frozenset(("timestamptz", "datetimeoffset"))
_PLAIN = {"bool": "boolean", "boolean": "boolean", "json": "json", "jsonb": "json", "hstore": "json", "timetz": "time"}
_MODE_UNITS = {"connect": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
_NATURAL = {
    "smallint": Encoding("integer"),
    "integer": Encoding("integer"),
    "bigint": Encoding("integer"),
    "double": Encoding("float"),
    "decimal": Encoding("decimal", "natural"),
    "boolean": Encoding("boolean"),
    "date": Encoding("date"),
    "time": Encoding("time"),
    "timestamp": Encoding("zoned"),
    "timestamptz": Encoding("zoned"),
    "json": Encoding("json"),
    "binary": Encoding("bytes", "base64"),
}
_LOGICAL = {
    "io.debezium.data.VariableScaleDecimal": Encoding("decimal", "precise"),
    "io.debezium.time.Date": Encoding("date"),
    "org.apache.kafka.connect.data.Date": Encoding("date"),
    "io.debezium.time.IsoDate": Encoding("date"),
    "io.debezium.time.Time": Encoding("time", unit=1_000),
    "org.apache.kafka.connect.data.Time": Encoding("time", unit=1_000),
    "io.debezium.time.MicroTime": Encoding("time"),
    "io.debezium.time.NanoTime": Encoding("time", unit=1_000_000_000),
    "io.debezium.time.IsoTime": Encoding("time"),
    "io.debezium.time.ZonedTime": Encoding("time"),
    "io.debezium.time.Timestamp": Encoding("timestamp", unit=1_000),
    "org.apache.kafka.connect.data.Timestamp": Encoding("timestamp", unit=1_000),
    "io.debezium.time.MicroTimestamp": Encoding("timestamp"),
    "io.debezium.time.NanoTimestamp": Encoding("timestamp", unit=1_000_000_000),
    "io.debezium.time.IsoTimestamp": Encoding("timestamp"),
    "io.debezium.time.ZonedTimestamp": Encoding("zoned"),
    "io.debezium.time.MicroDuration": Encoding("interval"),
    "io.debezium.time.NanoDuration": Encoding("interval", unit=1_000_000_000),
    "io.debezium.time.Interval": Encoding("interval"),
    "io.debezium.data.Json": Encoding("json"),
    "io.debezium.data.Bits": Encoding("bits"),
}


def encoding_of(column: Column, source: Source, logical: LogicalType | None = None) -> Encoding:
    """How `source` writes `column`; the wrapper's schema wins over the catalogue where it says more.

    Raises ValueError when the catalogue's type of the column does not exist.
    """
    target = target_type(column.type)
    if source.contract != "debezium":
        return _NATURAL.get(target.kind, Encoding("text"))
    declared = _from_declared(column.declared(source), source)
    return declared if logical is None else _from_logical(logical, declared, source, target)


def _from_logical(logical: LogicalType, declared: Encoding, source: Source, target: TargetType) -> Encoding:
    if logical.name in _LOGICAL:
        return _LOGICAL[logical.name]
    if logical.name == "org.apache.kafka.connect.data.Decimal":
        return Encoding("decimal", "precise", scale=logical.scale)
    plain = {
        # a plain int64 may still be a wrapped unsigned bigint
        "int": declared if declared.kind == "unsigned" else Encoding("integer"),
        "float": Encoding("decimal", "double") if target.kind == "decimal" else Encoding("float"),
        "string": Encoding("decimal", "string") if declared.kind == "decimal" else declared,
        "bytes": Encoding("bytes", source.binary_handling_mode),
        "boolean": Encoding("boolean"),
        "array": Encoding("json"),
        "map": Encoding("json"),
    }
    return plain.get(logical.type.rstrip("0123456789"), declared)


def declared_type(text: str) -> Declared:
    """Take a declared type apart. Words around the brackets are joined: `timestamp with time zone`."""
    match = _DECLARED.match(text.strip().lower())
    if match is None:
        return Declared(text.strip().lower(), None, None)
    name, precision, scale, tail, is_array = match.groups()
    name = "array" if is_array else f"{name} {tail or ''}".strip()
    return Declared(name, int(precision) if precision else None, int(scale) if scale else None)


def _from_declared(text: str, source: Source) -> Encoding:
    declared = declared_type(text)
    found = _numeric(declared, source) or _temporal(declared, source)
    if found is not None:
        return found
    if declared.name in _BYTES:
        return Encoding("bytes", source.binary_handling_mode)
    if declared.name in {"bit", "bit varying", "varbit"}:
        return Encoding("bits" if declared.name != "bit" or (declared.precision or 1) > 1 else "boolean")
    return Encoding("json" if declared.name == "array" else _PLAIN.get(declared.name, "text"))


def _numeric(declared: Declared, source: Source) -> Encoding | None:
    base = declared.name.split(" unsigned")[0].split(" zerofill")[0]
    decimal = Encoding("decimal", source.decimal_handling_mode)
    if base in _INTEGERS:
        if source.connector == "oracle":  # Oracle's INTEGER is a NUMBER(38)
            return decimal._replace(scale=0)
        is_wrapped = base == "bigint" and "unsigned" in declared.name
        if is_wrapped and source.bigint_unsigned_handling_mode == "precise":
            return Encoding("decimal", "precise", scale=0)
        return Encoding("unsigned" if is_wrapped else "integer")
    if base in _FLOATS:  # Oracle's FLOAT is a NUMBER as well
        return decimal if source.connector == "oracle" and base == "float" else Encoding("float")
    return decimal._replace(scale=_scale(declared, base, source)) if base in _DECIMALS else None


def _scale(declared: Declared, base: str, source: Source) -> int | None:
    """Scale of a base64 decimal; None where the value brings its own (PostgreSQL's bare numeric)."""
    if base.endswith("money"):
        return 2 if source.connector == "postgresql" else 4
    if declared.precision is not None:
        return declared.scale or 0
    return None if source.connector in {"postgresql", "oracle"} else 0


def _temporal(declared: Declared, source: Source) -> Encoding | None:
    name = declared.name.removesuffix(" without time zone")
    if name == "date":
        return Encoding("timestamp", unit=1_000) if source.connector == "oracle" else Encoding("date")
    if name.startswith("interval"):
        return Encoding("interval")
    is_instant = name == "timestamp" and source.connector in {"mysql", "mariadb"}
    if is_instant or name in _ZONED or (name.startswith("timestamp") and name.endswith("time zone")):
        return Encoding("zoned")
    if name in {"time", "time with time zone"}:
        is_binlog = source.connector in {"mysql", "mariadb"} and source.time_precision_mode.startswith("adaptive")
        return Encoding("time", unit=1_000_000 if is_binlog else _unit(name, declared.precision, source))
    if name in _TIMESTAMPS:
        return Encoding("timestamp", unit=_unit(name, declared.precision, source))
    return None


def _unit(name: str, precision: int | None, source: Source) -> int:
    """Ticks a second: fixed by the mode, or by the declared precision in the adaptive ones."""
    fixed = _MODE_UNITS.get(source.time_precision_mode)
    if fixed is not None:
        return fixed
    if precision is None:
        precision = _default_precision(name, source)
    return 1_000 if precision <= 3 else 1_000_000 if precision <= 6 else 1_000_000_000


def _default_precision(name: str, source: Source) -> int:
    if source.connector in {"mysql", "mariadb"}:
        return 0
    if source.connector == "sqlserver":
        return {"datetime": 3, "smalldatetime": 0}.get(name, 7)
    return 6
