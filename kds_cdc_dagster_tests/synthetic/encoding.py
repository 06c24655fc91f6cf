"""Values as Debezium's JSON converter writes them, by declared type and modes of the connector.

Sources: JdbcValueConverters, TemporalPrecisionMode, PostgresValueConverter, BinlogValueConverters, and the
recorded captures.
"""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from kds_cdc_dagster_tests.synthetic.mode import Mode
from kds_cdc_dagster_tests.synthetic.tables import Column

PLACEHOLDER = "__debezium_unavailable_value"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
TICKS = {"connect": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
"""Ticks a second of the modes that do not look at the declared precision."""
DEFAULTED = {"is_deleted", "is_rush", "updated_at"}
"""Columns with a DEFAULT: an absent one is filled with it, not with the type's zero."""


def encoded(column: Column, value: Any, mode: Mode) -> Any:
    """The JSON value of a column; None stays null."""
    return None if value is None else _ENCODED[column.type](column, value, mode)


def placeholder(column: Column) -> Any:
    """What stands for an unchanged value that PostgreSQL stores out of line."""
    return [PLACEHOLDER] if column.type == "text[]" else PLACEHOLDER


def filler(column: Column, mode: Mode) -> Any:
    """What PostgreSQL's connector invents for a column that the old row's key image lacks."""
    if column.is_nullable:
        return None
    if column.type == "timestamptz":
        return "1970-01-01T00:00:00.000000Z" if column.name in DEFAULTED else "1970-01-01T00:00:00Z"
    if column.type in {"text", "varchar", "uuid"}:
        return ""
    zeros: dict[str, Any] = {"bool": False, "numeric": Decimal(0), "date": date(1970, 1, 1)}
    return encoded(column, zeros.get(column.type, 0), mode)


def _same(_c: Column, value: Any, _m: Mode) -> Any:
    return value


def _decimal(column: Column, value: Decimal, mode: Mode) -> Any:
    if mode.decimals == "string":
        return str(value)  # BigDecimal.toString and Python agree, exponents too
    if mode.decimals == "double":
        return float(value)
    sign, digits, exponent = value.as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    if column.arguments:
        return two_complement(unscaled)
    return {"scale": -int(exponent), "value": two_complement(unscaled)}


def two_complement(number: int) -> str:
    """Base64 of Java's BigInteger.toByteArray: the fewest big-endian bytes that keep the sign."""
    size = ((number if number >= 0 else ~number).bit_length() + 8) // 8
    return b64encode(number.to_bytes(size, "big", signed=True)).decode()


def _unsigned(_c: Column, value: int, mode: Mode) -> Any:
    return two_complement(value) if mode.unsigned == "precise" else value


def _flag(column: Column, value: bool, _m: Mode) -> Any:  # noqa: FBT001 - a value
    return int(value) if column.type == "tinyint" else value


def _timestamp(column: Column, value: datetime, mode: Mode) -> Any:
    moment = value.replace(tzinfo=UTC)
    if column.type == "timestamp" and mode.is_binlog:
        return _zoned(column, moment, mode)
    if mode.times == "isostring":
        return iso(moment.date()) + "T" + _iso_time(moment.time()) + "Z"
    return (moment - _EPOCH) // _MICRO * ticks(column, mode) // 1_000_000


def ticks(column: Column, mode: Mode) -> int:
    """Ticks a second of a time or zone-less timestamp."""
    digits = column.arguments[0] if column.arguments else 0 if mode.is_binlog else 6
    if column.type == "time" and mode.times == "adaptive_time_microseconds":
        digits = 6
    return TICKS.get(mode.times) or (1_000 if digits <= 3 else 1_000_000)


def _zoned(column: Column, value: datetime, _m: Mode) -> str:
    digits = column.arguments[0] if column.arguments else 6
    fraction = f".{value.microsecond:06d}"[: digits + 1] if digits else ""
    return f"{iso(value.date())}T{value:%H:%M:%S}{fraction}Z"


def iso(day: date) -> str:
    """Date text; strftime does not pad years."""
    return day.isoformat()


def _iso_time(value: time) -> str:
    """As many digits as needed, none if zero: Java's ISO_LOCAL_TIME."""
    fraction = f".{value.microsecond:06d}".rstrip("0") if value.microsecond else ""
    return f"{value:%H:%M:%S}{fraction}"


def _date(_c: Column, value: date, mode: Mode) -> Any:
    return f"{iso(value)}Z" if mode.times == "isostring" else value.toordinal() - _EPOCH.toordinal()


def _time(column: Column, value: time, mode: Mode) -> Any:
    if mode.times == "isostring":
        return _iso_time(value) + "Z"
    since_midnight = datetime.combine(_EPOCH, value, UTC) - _EPOCH
    return since_midnight // _MICRO * ticks(column, mode) // 1_000_000


def _interval(_c: Column, value: timedelta, mode: Mode) -> Any:
    micros = value // _MICRO
    if mode.intervals == "numeric":
        return micros
    sign, (seconds, fraction) = "-" if micros < 0 else "", divmod(abs(micros), 1_000_000)
    tail = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"P0Y0M0DT0H0M{sign}{seconds}{tail}S"


def _json(_c: Column, value: object, mode: Mode) -> str:
    """PostgreSQL's jsonb has blanks behind its separators; a binlog's JSON is written anew without them."""
    return msgspec.json.encode(value).decode() if mode.is_binlog else json.dumps(value, ensure_ascii=False)


def _list(_c: Column, value: list[str | None], mode: Mode) -> Any:
    return value if mode.connector == "postgresql" else json.dumps(value)


def _bytes(_c: Column, value: bytes, mode: Mode) -> str:
    if mode.binaries == "hex":
        return value.hex()
    return (urlsafe_b64encode if mode.binaries == "base64-url-safe" else b64encode)(value).decode()


_INTEGERS = ("int2", "smallint", "int4", "int", "int8", "bigint")
_SAME = (*_INTEGERS, "float8", "double", "bool", "bit", "text", "longtext", "varchar", "enum", "uuid", "char")
_ENCODED: dict[str, Callable[[Column, Any, Mode], Any]] = {
    **dict.fromkeys(_SAME, _same),
    "bigint unsigned": _unsigned,
    "numeric": _decimal,
    "decimal": _decimal,
    "tinyint": _flag,
    "timestamptz": _zoned,
    "timestamp": _timestamp,
    "datetime": _timestamp,
    "date": _date,
    "time": _time,
    "interval": _interval,
    "json": _json,
    "jsonb": _json,
    "text[]": _list,
    "bytea": _bytes,
    "varbinary": _bytes,
}
