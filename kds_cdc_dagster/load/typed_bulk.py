"""Bulk conversions: whole columns of JSON values to Arrow, for the encodings that make up most traffic.

Each takes only values it converts exactly as the scalar decoder would. It answers None, or raises any
error of Arrow or of base64, when it met something else: then the decoder looks at every value.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kds_cdc_dagster.core.values import Encoding, TargetType, Unavailable

Values = Sequence[Any]
Bulk = Callable[[Values], pa.Array | None]

_UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_DAYS = (-719_162, 2_932_896)
"""0001-01-01 and 9999-12-31 in days since 1970."""
_MICROS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)


def _kinds(values: Values) -> set[type]:
    return set(map(type, values)) - {type(None)}


_SCALES_MAX = 38


def bulk(encoding: Encoding, target: TargetType, arrow: pa.DataType, unavailable: Unavailable) -> Bulk:  # noqa: PLR0911 a table of cases
    """The bulk conversion of one encoding to one target; one that answers None where there is none."""
    kind = encoding.kind
    match target.kind:
        case "smallint" | "integer" | "bigint" if kind == "integer":
            return lambda values: pa.array(values, arrow) if _kinds(values) <= {int} else None
        case "decimal":
            return _bulk_decimal(encoding, target, arrow)
        case "double" if kind == "float":
            return lambda values: _doubles(values) if _kinds(values) <= {Decimal, int, float} else None
        case "boolean" if kind in {"boolean", "integer"}:
            return _booleans
        case "uuid" if kind == "text":
            return _uuids
        case "date" if kind == "date":
            return lambda values: _counted(values, _DAYS, pa.int32(), arrow)
        case "timestamptz" | "timestamp" if kind in {"zoned", "timestamp"}:
            return lambda values: _moments(values, encoding, arrow)
        case "time" if kind == "time":
            return lambda values: _ticks(values, encoding.unit, (0, 86_400_000_000 - 1), arrow)
        case "binary" if kind == "bytes" and encoding.mode in {"bytes", "base64"}:
            return lambda values: _binaries(values) if unavailable.texts.isdisjoint(values) else None
        case _:
            return lambda _: None


def _doubles(values: Values) -> pa.Array | None:
    array = pa.array([None if value is None else float(value) for value in values], pa.float64())
    return None if pc.any(pc.is_inf(array)).as_py() else array


def _booleans(values: Values) -> pa.Array | None:
    kinds = _kinds(values)
    if kinds <= {bool}:
        return pa.array(values, pa.bool_())
    return _counted(values, (0, 1), pa.int8(), pa.bool_()) if kinds == {int} else None


def _uuids(values: Values) -> pa.Array | None:
    lower = pc.utf8_lower(pa.array(values, pa.string()))
    return lower if pc.all(pc.match_substring_regex(lower, _UUID)).as_py() is not False else None


def _binaries(values: Values) -> pa.Array:
    return pa.array([None if value is None else a2b_base64(value, strict_mode=True) for value in values], pa.binary())


def _counted(values: Values, limits: tuple[int, int], whole: pa.DataType, arrow: pa.DataType) -> pa.Array | None:
    """Whole numbers within limits, cast to a type of the same numbers."""
    if not _kinds(values) <= {int}:
        return None
    array = pa.array(values, whole)
    return array.cast(arrow) if _is_within(array, limits) else None


def _is_within(array: pa.Array, limits: tuple[int, int]) -> bool:
    bounds = pc.min_max(array).as_py()
    return bounds["min"] is None or (limits[0] <= bounds["min"] and bounds["max"] <= limits[1])


def _moments(values: Values, encoding: Encoding, arrow: pa.DataType) -> pa.Array | None:
    """Counts of ticks, or ISO texts with a zone of at most six digits; others raise or are left alone."""
    kinds = _kinds(values)
    if kinds == {str}:
        return pa.array(values, pa.string()).cast(pa.timestamp("us", "UTC")).cast(arrow)
    return _ticks(values, encoding.unit, _MICROS, arrow) if kinds <= {int} else None


def _ticks(values: Values, unit: int, limits: tuple[int, int], arrow: pa.DataType) -> pa.Array | None:
    """Ticks to microseconds; nanoseconds are cut downwards, so negative ones are left to the decoder."""
    if not _kinds(values) <= {int}:
        return None
    array = pa.array(values, pa.int64())
    if unit > 1_000_000:
        array = pc.divide(array, unit // 1_000_000) if _is_within(array, (0, 1 << 63)) else None
    elif unit < 1_000_000:
        array = pc.multiply_checked(array, 1_000_000 // unit)
    return array.cast(arrow) if array is not None and _is_within(array, limits) else None


def _bulk_decimal(encoding: Encoding, target: TargetType, arrow: pa.DataType) -> Bulk:
    scale = target.scale
    if encoding.kind in {"integer", "unsigned", "interval"} and target.size is not None:
        ticks = {1: 0, 1_000_000: 6, 1_000_000_000: 9}[encoding.unit] if encoding.kind == "interval" else 0
        is_signed = encoding.kind != "unsigned"
        return lambda values: _whole_decimals(values, scale - ticks, arrow, is_signed=is_signed)
    if encoding.kind != "decimal":
        return lambda _: None
    if encoding.mode == "precise":
        return lambda values: _precise_decimals(values, encoding.scale, arrow)
    if encoding.mode == "string":
        return lambda values: pa.array(values, pa.string()).cast(arrow)
    return lambda values: pa.array(values, arrow) if _kinds(values) <= {Decimal, int} else None


def _whole_decimals(values: Values, shift: int, arrow: pa.DataType, *, is_signed: bool) -> pa.Array | None:
    if shift < 0 or not _kinds(values) <= {int} or not (is_signed or all(v is None or v >= 0 for v in values)):
        return None
    factor = 10**shift
    return _decimals([None if value is None else value * factor for value in values], arrow)


def _precise_decimals(values: Values, scale: int | None, arrow: pa.DataType) -> pa.Array | None:
    """Base64 of the unscaled number, or an object that names its own scale."""
    kinds = _kinds(values)
    if kinds <= {str} and scale is not None and scale <= arrow.scale:
        factor = 10 ** (arrow.scale - scale)
        return _decimals([None if value is None else _unscaled(value) * factor for value in values], arrow)
    if kinds == {dict}:
        return _decimals([None if value is None else _rescaled(value, arrow.scale) for value in values], arrow)
    return None


def _unscaled(text: str) -> int:
    raw = a2b_base64(text, strict_mode=True)
    if not raw:
        raise ValueError("empty")
    return int.from_bytes(raw, "big", signed=True)


def _rescaled(value: Mapping[str, Any], scale: int) -> int:
    shift = scale - value["scale"]
    if type(shift) is not int or not 0 <= shift <= scale + _SCALES_MAX:
        raise ValueError("finer than the target, or coarser than any number that fits")
    number: int = _unscaled(value["value"]) * 10**shift
    return number


def _decimals(numbers: Sequence[int | None], arrow: pa.DataType) -> pa.Array | None:
    """Decimals from unscaled numbers: their 16 bytes are Arrow's own form, no Decimal is made."""
    limit = 10**arrow.precision
    present = [0 if number is None else number for number in numbers]
    if present and (max(present) >= limit or min(present) <= -limit):
        return None
    raw = b"".join([number.to_bytes(16, "little", signed=True) for number in present])
    mask = np.array([number is not None for number in numbers], dtype=bool)
    validity = None if mask.all() else pa.py_buffer(np.packbits(mask, bitorder="little").tobytes())
    return pa.Array.from_buffers(arrow, len(present), [validity, pa.py_buffer(raw)])
