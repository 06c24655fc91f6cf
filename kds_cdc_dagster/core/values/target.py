"""Target types: what a warehouse column can hold, and the refusal of everything else.

A *fitter* takes a decoded value (int, float, Decimal, bool, str, bytes, date, datetime, time,
timedelta, list, dict) and returns the canonical value of the target type. It never rounds a decimal,
never cuts a text and never wraps a number: what does not fit is Undecodable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache, partial
from math import inf, isinf
from typing import NamedTuple

import msgspec

NUL = "\0"
REPLACEMENT = "\ufffd"
"""What a NUL becomes: no warehouse text can hold it, and cutting there would lose the rest."""

_EXACT = Context(prec=200, traps=[Inexact, InvalidOperation])
_WHOLE_MAX = 1 << 64
"""Beyond every integer type. Checked before a number is written out: 1e999999999 would take all memory."""
_PLACES_MAX = 200
_DIGITS = {"smallint": 16, "integer": 32, "bigint": 64}
_TYPE = re.compile(r"^(\w+)(?:\((\d+)(?:,\s*(\d+))?\))?$")
UUID = re.compile(r"^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
"""A uuid in canonical form."""
_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_JSON = msgspec.json.Encoder(decimal_format="number")
_JSON_SYNTAX = msgspec.json.Decoder(msgspec.Raw)


class Undecodable(ValueError):
    """A value that its column cannot hold or its encoding does not explain. Never carries the value."""

    def __init__(self, rule: str, column: str = "") -> None:
        self.rule = rule
        self.column = column
        super().__init__(f"column {column}: {rule}" if column else rule)


class Oversize(Undecodable):
    """A value of the right kind that is too big for its column: the source's column is wider."""


class TargetType(NamedTuple):
    """A warehouse type: its kind, its length in bytes or digits, its scale."""

    kind: str
    size: int | None = None
    scale: int = 0


@lru_cache(maxsize=1024)
def target_type(text: str) -> TargetType:
    """Parse a catalogue type such as `decimal(12,2)`. Raises ValueError when there is no such type."""
    match = _TYPE.match(text.strip())
    kind = match.group(1) if match else ""
    if match is None or kind not in _FITTERS:
        raise ValueError(f"no such target type: {text}")
    size = int(match.group(2)) if match.group(2) else None
    scale = int(match.group(3) or 0)
    if kind == "decimal" and (size is None or not 0 < size <= 38 or scale > size):
        raise ValueError(f"decimal needs (digits up to 38, scale within them): {text}")
    if kind == "varchar" and not size:
        raise ValueError(f"varchar needs a length in bytes: {text}")
    return TargetType(kind, size, scale)


def fitter(target: TargetType) -> Callable[[object], object]:
    """The function that brings a decoded value into `target`. It raises Undecodable."""
    return partial(_FITTERS[target.kind], target)


def without_nul(text: str) -> str:
    """`text` with every NUL replaced; the journal keeps the original."""
    return text.replace(NUL, REPLACEMENT) if NUL in text else text


def json_text(value: object) -> str:
    """Compact JSON text of a decoded value, numbers exact."""
    return _JSON.encode(value).decode()


def json_lines(values: Sequence[object]) -> bytes:
    """`json_text` of each value in UTF-8, each followed by a line feed, which stands nowhere else."""
    return _JSON.encode_lines(values)


def integer_range(kind: str) -> tuple[int, int]:
    """Lowest and highest number of a whole-number type."""
    bits = _DIGITS[kind] - 1
    return -(1 << bits), (1 << bits) - 1


def _integer(target: TargetType, value: object) -> int:
    number = _whole(value)
    low, high = integer_range(target.kind)
    if not low <= number <= high:
        raise Oversize(f"number does not fit {target.kind}")
    return number


def _whole(value: object) -> int:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float | Decimal) and -_WHOLE_MAX < value < _WHOLE_MAX and value == (number := int(value)):
        return number
    raise Undecodable("not a whole number")


def _double(_: TargetType, value: object) -> float:
    if not isinstance(value, int | float | Decimal):
        raise Undecodable("not a number")
    number = float(value)
    if isinf(number) and value not in {inf, -inf}:
        raise Oversize("number is beyond a double")
    return number


def _decimal(target: TargetType, value: object) -> Decimal:
    number = _exact(value)
    if not number.is_finite():
        raise Undecodable("not a finite number")
    try:
        fitted = _EXACT.quantize(number, Decimal((0, (1,), -target.scale)))
    except (Inexact, InvalidOperation):
        raise Oversize(f"digits beyond scale {target.scale} would be lost") from None
    if fitted and fitted.adjusted() + 1 + target.scale > (target.size or 0):
        raise Oversize(f"number needs more than {target.size} digits")
    return fitted or fitted.copy_abs()  # no negative zero


def _exact(value: object) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int):
        return Decimal(int(value))
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, timedelta):
        micros = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
        return _EXACT.scaleb(Decimal(micros), -6)
    raise Undecodable("not a number")


def _boolean(_: TargetType, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value in {0, 1}:
        return value == 1
    raise Undecodable("neither true nor false")


def _text(target: TargetType, value: object) -> str:
    text = without_nul(_as_text(value))
    if target.size is not None and len(text) * 4 > target.size and len(text.encode()) > target.size:
        raise Oversize(f"text is longer than {target.size} bytes")
    return text


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) < _PLACES_MAX:
        return f"{value:f}"
    if isinstance(value, int | float | Decimal):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, list | dict):
        return json_text(value)
    raise Undecodable("not a text")


def _date(_: TargetType, value: object) -> date:
    if isinstance(value, datetime):
        if value.time() != time():
            raise Undecodable("the time of day would be lost")
        return value.date()
    if isinstance(value, date):
        return value
    raise Undecodable("not a date")


def _time(_: TargetType, value: object) -> time:
    if isinstance(value, time):
        return value
    if isinstance(value, timedelta) and timedelta() <= value < timedelta(days=1):
        return (datetime(1970, 1, 1, tzinfo=UTC) + value).time()
    raise Undecodable("not a time of day")


def _timestamp(_: TargetType, value: object) -> datetime:
    if isinstance(value, datetime):
        return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, date):
        return datetime.combine(value, time())
    raise Undecodable("not a timestamp")


def _timestamptz(target: TargetType, value: object) -> datetime:
    return _timestamp(target, value).replace(tzinfo=UTC)


def _json(_: TargetType, value: object) -> str:
    """The JSON text as sent; a list or object compact. An escaped NUL counts as a NUL."""
    if not isinstance(value, str):
        return _fit_json_text(json_text(value))
    try:
        _JSON_SYNTAX.decode(value)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        raise Undecodable("not JSON") from None
    return _fit_json_text(value)


def _fit_json_text(text: str) -> str:
    return _ESCAPED_NUL.sub(r"\1\\ufffd", text) if r"\u0000" in text else text


def _uuid(_: TargetType, value: object) -> str:
    if isinstance(value, bytes) and len(value) == 16:
        digits = value.hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    if isinstance(value, str) and UUID.match(text := value.lower()):
        return text
    raise Undecodable("not a uuid")


def _binary(_: TargetType, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    raise Undecodable("not bytes")


_FITTERS: dict[str, Callable[[TargetType, object], object]] = {
    "smallint": _integer,
    "integer": _integer,
    "bigint": _integer,
    "double": _double,
    "decimal": _decimal,
    "boolean": _boolean,
    "varchar": _text,
    "text": _text,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "json": _json,
    "uuid": _uuid,
    "binary": _binary,
}
