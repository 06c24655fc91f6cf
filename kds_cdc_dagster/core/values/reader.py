"""Readers: a JSON value in one encoding to a decoded Python value, before it is fitted to its target.

Zone-less times are read as they stand, zoned ones as instants; digits below a microsecond are cut, the
same way in every path. JSON's own type tells ISO text from a count of ticks, so both are always read.
"""

from __future__ import annotations

import re
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial

from kds_cdc_dagster.core.catalogue import Source
from kds_cdc_dagster.core.values.encoding import Encoding
from kds_cdc_dagster.core.values.target import Undecodable

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 zone-less on purpose: zone-less values are read as they stand
EPOCH_DAY = EPOCH.toordinal()
UNSIGNED_RANGE = 1 << 64
UNSCALED_MAX = 1024
"""Characters of a base64 decimal, far above any target: making digits of more would take too long."""
_INFINITE_SECONDS = 9_223_372_036_000
"""PostgreSQL's infinite timestamps lie just beyond this, at about ±292,278 years."""
_INFINITE_DAYS = 2_147_000_000
_SPECIAL = {
    "NAN": "NaN",
    "NaN": "NaN",
    "POSITIVE_INFINITY": "Infinity",
    "NEGATIVE_INFINITY": "-Infinity",
    "Infinity": "Infinity",
    "-Infinity": "-Infinity",
}
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?", re.ASCII)
_ISO_INTERVAL = re.compile(
    r"^P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?)(\d+)(?:\.(\d+))?S)?)?$"
)
_DAYS_A_MONTH = Decimal("30.4375")
"""Debezium's own average (365.25 / 12), so that both interval modes agree."""


class Infinite(Exception):
    """PostgreSQL's infinity in a date or timestamp."""


def reader(encoding: Encoding, source: Source) -> Callable[[object], object]:
    """The function that reads `encoding`. It raises Undecodable, or a ValueError or TypeError for a
    value of another shape.
    """
    read = partial(_READERS[encoding.kind], encoding)
    if encoding.kind not in {"date", "timestamp", "zoned"}:
        return read
    return partial(_unless_infinite, read, is_null=source.infinity == "null")


def _unless_infinite(read: Callable[[object], object], value: object, *, is_null: bool) -> object:
    try:
        return read(value)
    except Infinite:
        if is_null:
            return None
        raise Undecodable("infinity") from None


def _integer(_: Encoding, value: object) -> object:
    if isinstance(value, int | Decimal):
        return value
    raise Undecodable("not a JSON number")


def _unsigned(_: Encoding, value: object) -> object:
    """BIGINT UNSIGNED: `long` mode wraps above 2^63 - 1; the precise mode's base64 is read as well."""
    if isinstance(value, int):
        return value + UNSIGNED_RANGE if value < 0 else value
    return unscaled(value)


def _float(_: Encoding, value: object) -> object:
    if isinstance(value, int | float | Decimal):
        return value
    if isinstance(value, str) and value in _SPECIAL:
        return float(_SPECIAL[value])
    raise Undecodable("not a JSON number")


def _decimal(encoding: Encoding, value: object) -> object:
    if isinstance(value, str):
        return _decimal_text(encoding, value)
    if isinstance(value, dict):
        return _shifted(Decimal(unscaled(value["value"])), _ticks(value["scale"]))
    if isinstance(value, bool) or encoding.mode == "string":
        raise Undecodable(f"not a decimal of mode {encoding.mode}")
    return _float(encoding, value)


def _decimal_text(encoding: Encoding, text: str) -> Decimal:
    if encoding.mode == "precise":
        if encoding.scale is None:
            raise Undecodable("a base64 decimal without a declared scale")
        return _shifted(Decimal(unscaled(text)), encoding.scale)
    if encoding.mode == "double" and text not in _SPECIAL:
        raise Undecodable("not a JSON number")
    if text not in _SPECIAL and not _NUMBER.fullmatch(text):
        raise Undecodable("not a decimal number")
    return Decimal(_SPECIAL.get(text, text))


def unscaled(value: object) -> int:
    """The integer of a base64 decimal: big-endian two's complement. Raises ValueError or TypeError."""
    if not isinstance(value, str) or not 0 < len(value) <= UNSCALED_MAX:
        raise Undecodable("not a base64 decimal")
    return int.from_bytes(b64decode(value, validate=True), "big", signed=True)


def _shifted(number: Decimal, scale: int) -> Decimal:
    sign, digits, _ = number.as_tuple()
    return Decimal((sign, digits, -scale))  # exact: scaleb would round to the context's 28 digits


def _same(_: Encoding, value: object) -> object:
    return value


def _bytes(encoding: Encoding, value: object) -> bytes:
    if not isinstance(value, str):
        raise Undecodable("not a text of bytes")
    if encoding.mode == "hex":
        return bytes.fromhex(value)
    return urlsafe_b64decode(value) if encoding.mode == "base64-url-safe" else b64decode(value, validate=True)


def _bits(_: Encoding, value: object) -> object:
    """BIT(n): little-endian bytes. A one-bit column is a boolean."""
    if isinstance(value, bool | int):
        return value
    if not isinstance(value, str):
        raise Undecodable("not a text of bits")
    return int.from_bytes(b64decode(value, validate=True), "little")


def _date(_: Encoding, value: object) -> date:
    if isinstance(value, str):
        return date.fromisoformat(_finite(value).removesuffix("Z"))
    days = _ticks(value)
    if abs(days) > _INFINITE_DAYS:
        raise Infinite
    return date.fromordinal(days + EPOCH_DAY)


def _time(encoding: Encoding, value: object) -> object:
    """Since midnight; MySQL's TIME may be negative or beyond a day, which only a decimal can hold."""
    if isinstance(value, str):
        parsed = time.fromisoformat(value)
        shift = parsed.utcoffset()
        return parsed.replace(tzinfo=None) if not shift else (datetime.combine(EPOCH, parsed) - shift).time()
    return timedelta(microseconds=_micros(value, encoding.unit))


def _timestamp(encoding: Encoding, value: object) -> datetime:
    if isinstance(value, str):
        return _zoned(encoding, value).replace(tzinfo=None)
    ticks = _ticks(value)
    if abs(ticks) // encoding.unit > _INFINITE_SECONDS:
        raise Infinite
    return EPOCH + timedelta(microseconds=_micros(ticks, encoding.unit))


def _zoned(encoding: Encoding, value: object) -> datetime:
    """An instant; a text without a zone is taken as UTC, ticks as an instant of the declared unit."""
    if not isinstance(value, str):
        return _timestamp(encoding, value).replace(tzinfo=UTC)
    parsed = datetime.fromisoformat(_finite(value))
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed


def _finite(text: str) -> str:
    if text in {"infinity", "-infinity"}:
        raise Infinite
    return text


def _micros(value: object, unit: int) -> int:
    """Microseconds of a count of ticks, cut downwards."""
    return _ticks(value) * 1_000_000 // unit


def _ticks(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise Undecodable("not a whole number of ticks")


def _interval(encoding: Encoding, value: object) -> timedelta:
    if not isinstance(value, str):
        return timedelta(microseconds=_micros(value, encoding.unit))
    match = _ISO_INTERVAL.match(value)
    if match is None:
        raise Undecodable("not an ISO interval")
    years, months, days, hours, minutes, sign, seconds, fraction = match.groups(default="")
    whole_days = (int(years or 0) * 12 + int(months or 0)) * _DAYS_A_MONTH + int(days or 0)
    second = Decimal(f"{sign}{seconds or 0}.{fraction or 0}") + int(minutes or 0) * 60 + int(hours or 0) * 3600
    return timedelta(microseconds=int((whole_days * 86_400 + second) * 1_000_000))


_READERS: dict[str, Callable[[Encoding, object], object]] = {
    "integer": _integer,
    "unsigned": _unsigned,
    "float": _float,
    "decimal": _decimal,
    "boolean": _same,
    "bits": _bits,
    "text": _same,
    "json": _same,
    "bytes": _bytes,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "zoned": _zoned,
    "interval": _interval,
}
