"""Random values of a declared type, as Python values that a driver would give: the oracle's own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

from kds_cdc_dagster_tests.synthetic.mode import Mode
from kds_cdc_dagster_tests.synthetic.tables import LARGE, Column

LARGE_SIZE = 300
"""Characters from which a value counts as stored out of line (2,000 bytes in a real server)."""
DOUBLE_DIGITS = 15
"""Decimal digits that survive decimal.handling.mode=double."""
_TEXTS = (
    "",
    " ",
    "Grill ✨",
    "寿司",
    'say "hi", \\ back',
    "line\nbreak\ttab",
    "null",
    "Pho bò 🍜",
    "0",
    "NaN",
    "x" * 30,
)
_FIRST, _LAST = datetime(1955, 3, 1, tzinfo=UTC), datetime(2049, 12, 31, tzinfo=UTC)
_KNOWN = (
    "1970-01-01",
    "1969-12-31T23:59:59.999999",
    "2000-02-29",
    "2026-11-02T00:00:00.000001",
    "1958-06-01T12:00:00.5",
)


def value(dice: Random, column: Column, mode: Mode) -> Any:
    """A value of the column; NULL now and then where it may be."""
    if column.is_nullable and dice.random() < 0.15:
        return None
    if column.name in LARGE and dice.random() < 0.4:
        return _large(dice, column)
    return _DRAWN[column.type](dice, column, mode)


def is_large(value: object) -> bool:
    """Whether PostgreSQL would store it out of line."""
    return isinstance(value, str | dict | list) and len(str(value)) > LARGE_SIZE


def _large(dice: Random, column: Column) -> Any:
    text = f"{dice.choice(_TEXTS)}{dice.randrange(10**6)} " * 160
    if column.type == "text[]":
        return [text, None]
    return {"note": text, "n": dice.randrange(9)} if column.type in {"json", "jsonb"} else text


def _integer(bits: int) -> Callable[[Random, Column, Mode], int]:
    edge = 1 << bits - 1
    return lambda dice, _c, _m: dice.choice((0, 1, -1, edge - 1, -edge, dice.randrange(-edge, edge)))


def _decimal(dice: Random, column: Column, mode: Mode) -> Decimal:
    digits, scale = column.arguments or (38, dice.choice((0, 1, 2, 5, 10)))
    digits = min(digits, 28 + scale if not column.arguments else digits)
    if mode.decimals == "double":
        digits = min(digits, DOUBLE_DIGITS)
    largest = 10**digits - 1
    unscaled = dice.choice((0, 1, -1, largest, -largest, dice.randint(-largest, largest), dice.randint(-9999, 9999)))
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _double(dice: Random, _c: Column, _m: Mode) -> float:
    return dice.choice((0.0, -1.5, 1e-7, 1.0e21, dice.uniform(-1e3, 1e3), dice.random() * 1e12))


def moment(dice: Random) -> datetime:
    """An instant in UTC with microseconds, also before 1970 and at midnight."""
    if dice.random() < 0.3:
        return datetime.fromisoformat(dice.choice(_KNOWN)).replace(tzinfo=UTC)
    span = (_LAST - _FIRST) // timedelta(microseconds=1)
    return _FIRST + timedelta(microseconds=dice.randrange(span))


def _zoned(dice: Random, column: Column, _m: Mode) -> datetime:
    return _cut(moment(dice), column.arguments[0] if column.arguments else 6)


def _timestamp(dice: Random, column: Column, mode: Mode) -> datetime:
    return _cut(moment(dice), _digits(column, mode)).replace(tzinfo=None)


def _digits(column: Column, mode: Mode) -> int:
    """Digits of a second that reach the event."""
    declared = column.arguments[0] if column.arguments else 0 if mode.is_binlog else 6
    return min(declared, 3) if mode.times == "connect" else declared


def _cut(found: datetime, digits: int) -> datetime:
    step = 10 ** (6 - digits)
    return found.replace(microsecond=found.microsecond // step * step)


def _time(dice: Random, column: Column, mode: Mode) -> time:
    found = _cut(moment(dice), _digits(column, mode)).time()
    return dice.choice((time(), time(23, 59, 59, 999_000), found))


def _text(dice: Random, _c: Column, _m: Mode) -> str:
    return dice.choice(_TEXTS)


def _json(dice: Random, _c: Column, _m: Mode) -> object:
    return dice.choice(({}, [], {"b": 1, "a": None, "ü": ["x", 2.5]}, [{"qty": 2, "name": 'extra "cheese"'}]))


def _list(dice: Random, _c: Column, _m: Mode) -> list[str | None]:
    found: list[list[str | None]] = [[], ["nuts"], ["soy", None, 'q"uote'], [""]]
    return dice.choice(found)


def _interval(dice: Random, _c: Column, _m: Mode) -> timedelta:
    return timedelta(microseconds=dice.choice((0, 1, 239_000_000, dice.randrange(10**12), -dice.randrange(10**9))))


def _date(dice: Random, _c: Column, _m: Mode) -> date:
    return moment(dice).date()


def _flag(dice: Random, _c: Column, _m: Mode) -> bool:
    return dice.random() < 0.5


def _uuid(dice: Random, _c: Column, _m: Mode) -> str:
    return str(UUID(int=dice.getrandbits(128), version=4))


def _bytes(dice: Random, _c: Column, _m: Mode) -> bytes:
    return dice.choice((b"", b"\x00", b"\xfb\xff\xfe>?", dice.randbytes(6)))


def _key(dice: Random, _c: Column, _m: Mode) -> int:
    return dice.randrange(1, 1 << 63)


_DRAWN: dict[str, Callable[[Random, Column, Mode], Any]] = {
    "int2": _integer(16),
    "smallint": _integer(16),
    "int4": _integer(32),
    "int": _integer(32),
    "int8": _integer(64),
    "bigint": _integer(64),
    "bigint unsigned": _key,
    "numeric": _decimal,
    "decimal": _decimal,
    "float8": _double,
    "double": _double,
    "bool": _flag,
    "tinyint": _flag,
    "bit": _flag,
    "timestamptz": _zoned,
    "timestamp": _timestamp,
    "datetime": _timestamp,
    "date": _date,
    "time": _time,
    "interval": _interval,
    "text": _text,
    "longtext": _text,
    "varchar": _text,
    "enum": _text,
    "json": _json,
    "jsonb": _json,
    "text[]": _list,
    "uuid": _uuid,
    "char": _uuid,
    "bytea": _bytes,
    "varbinary": _bytes,
}
