"""The decoder of one column: placeholder, reader, fitter, in this order."""

from __future__ import annotations

import uuid
from base64 import b64encode
from collections.abc import Callable
from hashlib import md5
from typing import Final

from kds_cdc_dagster.core.catalogue import Column, Source
from kds_cdc_dagster.core.values.encoding import Encoding, encoding_of
from kds_cdc_dagster.core.values.logical import LogicalType
from kds_cdc_dagster.core.values.reader import reader
from kds_cdc_dagster.core.values.target import (
    NUL,
    UUID,
    TargetType,
    Undecodable,
    fitter,
    integer_range,
    json_text,
    target_type,
)

Decoder = Callable[[object], object]

OFFLOADED = "__debezium:s3:ref:v1:"
"""Prefix of a reference that Debezium's S3 post-processor leaves instead of a large value."""


class _Sentinel:
    def __repr__(self) -> str:
        return "UNAVAILABLE"


UNAVAILABLE: Final = _Sentinel()
"""The column is not in this change (TOAST and kin): the last known value stays."""


class Unavailable:
    """Recognises the placeholder of values the connector did not get, in every form it takes.

    Source: Debezium's UnchangedToastedPlaceholder. The check comes before any decoding: for a json
    column the placeholder is not valid JSON.
    """

    def __init__(self, placeholder: str, encoding: Encoding) -> None:
        raw = bytes.fromhex(placeholder[4:]) if placeholder.startswith("hex:") else placeholder.encode()
        self.text = raw.decode("utf-8", "replace")
        coded = b64encode(raw).decode()
        self.texts = frozenset({self.text} | ({coded, raw.hex()} if encoding.kind in {"bytes", "bits"} else set()))
        named = str(uuid.UUID(bytes=md5(raw, usedforsecurity=False).digest(), version=3))  # Java's nameUUIDFromBytes
        self._lists = ([self.text], [coded], [named], list(raw))
        self._map = {self.text: self.text}
        self._map_text = f'{{"{self.text}":"{self.text}"}}'
        self._length = len(self._map_text)

    def parts_of_lists(self) -> tuple[bytes, ...]:
        """One of these stands in `json_lines` of any values among which `matches` takes a list or a mapping."""
        *texts, numbers = self._lists
        # 95 may come as 95.0 or 9.5E+1, and true is 1.
        first = f"[{str(numbers[0])[0]}" if numbers and int(numbers[0]) > 1 else "["
        return tuple(part.encode() for part in (*map(json_text, texts), json_text(self._map), first))

    def matches(self, value: object) -> bool:
        """Whether `value` stands for "not in this change"."""
        if isinstance(value, str):
            return value in self.texts or (
                0 <= len(value) - self._length <= 4 and value.replace(" ", "") == self._map_text
            )
        if isinstance(value, list):
            return value in self._lists
        return isinstance(value, dict) and value == self._map


def compile_decoder(column: Column, source: Source, logical: LogicalType | None = None) -> Decoder:
    """The function from a column's JSON value to the canonical value of its target type.

    JSON numbers with a fraction must come as Decimal (or float, for double columns). The function
    returns None, UNAVAILABLE, or int, float, Decimal (of the target's scale), bool, str, bytes, date,
    time, datetime (aware UTC for timestamptz, naive for timestamp); json is JSON text, uuid lower-case
    text. It raises Undecodable, naming column and rule, never the value. Raises ValueError at once when
    the column's type does not exist.
    """
    encoding, target = encoding_of(column, source, logical), target_type(column.type)
    read, fit = reader(encoding, source), fitter(target)
    unavailable = Unavailable(source.unavailable_value_placeholder, encoding)
    name, kind, is_unavailable = column.name, encoding.kind, unavailable.matches

    def decode(value: object) -> object:
        if value is None:
            return None
        if isinstance(value, str | list | dict) and is_unavailable(value):
            return UNAVAILABLE
        try:
            return _decoded(value, read, fit)
        except Undecodable as error:
            raise type(error)(error.rule, name) from None
        except (ValueError, TypeError, KeyError, ArithmeticError):
            raise Undecodable(f"not a {kind} value", name) from None

    return _shortened(decode, encoding, target, unavailable)


def _decoded(value: object, read: Decoder, fit: Decoder) -> object:
    if isinstance(value, str) and value.startswith(OFFLOADED):
        raise Undecodable("the connector moved the value to an object store")
    found = read(value)
    return None if found is None else fit(found)


def _shortened(decode: Decoder, encoding: Encoding, target: TargetType, unavailable: Unavailable) -> Decoder:
    """`decode` with a short cut for values that are their own canonical form, by far the most."""
    if encoding.kind == "integer" and target.kind in {"smallint", "integer", "bigint"}:
        low, high = integer_range(target.kind)
        return lambda value: value if type(value) is int and low <= value <= high else decode(value)
    if encoding.kind == "text" and target.kind == "uuid":
        return lambda value: value if type(value) is str and UUID.match(value) else decode(value)
    if encoding.kind == "text" and target.kind in {"varchar", "text"}:
        return _shortened_text(decode, target.size, unavailable.text)
    return decode


def _shortened_text(decode: Decoder, size: int | None, placeholder: str) -> Decoder:
    characters = (1 << 31 if size is None else size) // 4  # UTF-8 takes at most four bytes for each

    def decode_text(value: object) -> object:
        if type(value) is not str or len(value) > characters or NUL in value:
            return decode(value)
        return decode(value) if value == placeholder or value.startswith(OFFLOADED) else value

    return decode_text
