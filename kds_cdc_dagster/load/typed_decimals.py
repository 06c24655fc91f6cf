"""Decimals in bulk: columns of base64 or of whole numbers to Arrow, in 64-bit arithmetic where the numbers fit.

Same contract as `typed_bulk`: None, or an error, where the decoder must look at every value.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kds_cdc_dagster.core.values.reader import UNSCALED_MAX

Numbers = Sequence[int | None]
_Int64 = npt.NDArray[np.int64]

_SHIFT_MAX = 38
_DIGITS_MAX = 18
"""All numbers of so many digits fit 64 bits."""
_TEXT_MAX = 12
"""Characters of nine bytes: with padding at most eight."""
_PAD = ord("=")
_SEXTETS = np.full(256, 255, np.uint8)
_SEXTETS[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = range(64)


def base64_decimals(texts: Sequence[str | None], shift: int, arrow: pa.DataType) -> pa.Array | None:
    """Base64 of unscaled numbers, times ten to the `shift`. Raises ValueError on what is not base64."""
    array = pa.array(texts, pa.string())
    if array.null_count == len(array):
        return pa.nulls(len(array), arrow)
    numbers = _unscaled_of(array)
    if numbers is not None and (found := _shifted(numbers, shift, array, arrow)) is not None:
        return found
    factor = 10**shift
    return _decimals([None if text is None else _unscaled(text) * factor for text in texts], arrow)


def scaled_decimals(values: Sequence[Mapping[str, Any] | None], arrow: pa.DataType) -> pa.Array | None:
    """Objects that name their own scale."""
    present = list(filter(None, values))
    scales = list(map(itemgetter("scale"), present))
    if set(map(type, scales)) != {int}:
        return None
    shift = arrow.scale - scales[0]
    if len(set(scales)) == 1 and 0 <= shift <= _SHIFT_MAX:
        texts = map(itemgetter("value"), present) if len(present) == len(values) else map(_value, values)
        return base64_decimals(list(texts), shift, arrow)
    return _decimals([None if value is None else _rescaled(value, arrow.scale) for value in values], arrow)


def whole_decimals(values: Numbers, shift: int, arrow: pa.DataType) -> pa.Array | None:
    """Whole numbers times ten to the `shift`."""
    try:
        array = pa.array(values, pa.int64())
    except OverflowError:
        array = None
    if array is not None and (found := _shifted(_zeroed(array), shift, array, arrow)) is not None:
        return found
    factor = 10**shift
    return _decimals([None if value is None else value * factor for value in values], arrow)


def _value(value: Mapping[str, Any] | None) -> Any:
    return None if value is None else value["value"]


def _unscaled(text: str) -> int:
    raw = a2b_base64(text, strict_mode=True)
    if not raw or len(text) > UNSCALED_MAX:
        raise ValueError("empty, or too long")
    return int.from_bytes(raw, "big", signed=True)


def _rescaled(value: Mapping[str, Any], scale: int) -> int:
    shift = scale - value["scale"]
    if not 0 <= shift <= scale + _SHIFT_MAX:
        raise ValueError("finer than the target, or coarser than any number that fits")
    number: int = _unscaled(value["value"]) * 10**shift
    return number


def _unscaled_of(texts: pa.Array) -> _Int64 | None:
    """Numbers of base64 texts of up to eight bytes; zero for null. None where one is longer, or not base64."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1)
    lengths = np.diff(offsets)
    characters = np.frombuffer(texts.buffers()[2], np.uint8)
    numbers = np.zeros(len(texts), np.int64)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        if length == 0 and len(rows) == texts.null_count:
            continue
        if length % 4 or not 0 < length <= _TEXT_MAX:
            return None
        found = _of_one_length(characters[offsets[rows, None] + np.arange(length, dtype=np.int32)])
        if found is None:
            return None
        numbers[rows] = found
    return numbers


def _of_one_length(characters: npt.NDArray[np.uint8]) -> _Int64 | None:
    """Numbers of a matrix of base64 characters, one text a row: big-endian, cut where the padding begins."""
    last, pads = characters[:, -1] == _PAD, characters[:, -2] == _PAD
    sextets = _SEXTETS[characters]
    sextets[last, -1] = 0
    sextets[last & pads, -2] = 0  # a pad that no pad follows stays what it is: not base64
    if sextets.max() > 63 or (characters.shape[1] == _TEXT_MAX and not last.all()):
        return None
    triples = np.zeros((len(characters), characters.shape[1] // 4), np.int64)
    for place in range(4):
        triples = triples << 6 | sextets[:, place::4]
    triples[:, 0] -= triples[:, 0] >> 23 << 24  # the sign
    unused = (last * 8 + pads * 8).astype(np.int64)
    numbers: _Int64 = triples[:, 0] if triples.shape[1] > 1 else triples[:, 0] >> unused
    for group in range(1, triples.shape[1]):
        cut = unused if group == triples.shape[1] - 1 else np.int64(0)
        numbers = numbers << (24 - cut) | triples[:, group] >> cut
    return numbers


def _zeroed(array: pa.Array) -> _Int64:
    numbers: _Int64 = (array.fill_null(0) if array.null_count else array).to_numpy()
    return numbers


def _shifted(numbers: _Int64, shift: int, like: pa.Array, arrow: pa.DataType) -> pa.Array | None:
    """Decimals of numbers that stay within 64 bits; null where `like` is. None where they do not, or do not fit."""
    if not len(numbers) or shift > _DIGITS_MAX:
        return None
    factor = 10**shift
    limit = min(10**arrow.precision, 1 << 63)
    if int(numbers.max()) * factor >= limit or int(numbers.min()) * factor <= -limit:
        return None
    words = np.empty((len(numbers), 2), np.int64)
    np.multiply(numbers, factor, out=words[:, 0])
    np.right_shift(words[:, 0], 63, out=words[:, 1])
    validity = like.buffers()[0] if like.null_count else None
    return pa.Array.from_buffers(arrow, len(numbers), [validity, pa.py_buffer(words)])


def _decimals(numbers: Numbers, arrow: pa.DataType) -> pa.Array | None:
    """Decimals from unscaled numbers: their 16 bytes are Arrow's own form, no Decimal is made."""
    limit = 10**arrow.precision
    present = [0 if number is None else number for number in numbers]
    if present and (max(present) >= limit or min(present) <= -limit):
        return None
    raw = b"".join([number.to_bytes(16, "little", signed=True) for number in present])
    mask = np.array([number is not None for number in numbers], dtype=bool)
    validity = None if mask.all() else pa.py_buffer(np.packbits(mask, bitorder="little").tobytes())
    return pa.Array.from_buffers(arrow, len(present), [validity, pa.py_buffer(raw)])
