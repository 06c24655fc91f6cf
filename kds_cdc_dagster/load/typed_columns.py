"""One column of many rows: JSON values to an Arrow array, in bulk where the values allow it.

The scalar decoder (`core.values`) is the rule. A bulk path only takes values it converts to the very same
result, checked by type, and leaves everything else, value by value, to the decoder; a property test holds
the two equal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kds_cdc_dagster.core.catalogue import Column, Source
from kds_cdc_dagster.core.values import (
    UNAVAILABLE,
    LogicalType,
    Oversize,
    Unavailable,
    Undecodable,
    compile_decoder,
    encoding_of,
    json_lines,
    json_text,
    target_type,
)
from kds_cdc_dagster.load.typed_bulk import Values, bulk

_PLAIN: Mapping[str, pa.DataType] = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "varchar": pa.string(),
    "text": pa.string(),
    "json": pa.string(),
    "uuid": pa.string(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
}
_SUSPICIOUS = "__debezium"
"""Start of every text the decoder must look at: the usual placeholder, a reference to an object store."""
_JSON_SYNTAX = msgspec.json.Decoder(msgspec.Raw)
_ODD = (
    *(pa.ArrowException, msgspec.MsgspecError, RecursionError),
    *(ValueError, TypeError, LookupError, ArithmeticError),
)
"""What a bulk path raises on a value it does not take."""


@dataclass(slots=True)
class ColumnResult:
    """A converted column, with the rows it does not know and the rows it refuses."""

    array: pa.Array
    unavailable: list[int] = field(default_factory=list)
    refused: list[tuple[int, Undecodable]] = field(default_factory=list)
    nul_replaced: int = 0
    """Values in which a NUL was replaced."""


def arrow_type(text: str) -> pa.DataType:
    """Arrow type of a catalogue type."""
    target = target_type(text)
    return pa.decimal128(target.size, target.scale) if target.kind == "decimal" else _PLAIN[target.kind]


def _are_json(texts: Sequence[str]) -> bool:
    try:
        deque(map(_JSON_SYNTAX.decode, texts), maxlen=0)
    except msgspec.MsgspecError:
        return False
    return True


class ColumnReader:
    """Converts one column of one source."""

    def __init__(
        self, column: Column, source: Source, logical: LogicalType | None = None, *, bytes_max: int | None = None
    ) -> None:
        encoding = encoding_of(column, source, logical)
        target = target_type(column.type)
        self.type = arrow_type(column.type)
        self._decode = compile_decoder(column, source, logical)
        self._unavailable = Unavailable(source.unavailable_value_placeholder, encoding)
        self._bulk = bulk(encoding, target, self.type, self._unavailable)
        self._is_text = encoding.kind in {"text", "json"} and target.kind in {"varchar", "text", "json"}
        self.is_float = encoding.kind == "float" and target.kind == "double"
        self._is_json = target.kind == "json"
        self._nul = r"\u0000" if self._is_json else "\0"
        self._odd_parts = tuple(part.encode() for part in (self._nul, _SUSPICIOUS, self._unavailable.text))
        self._odd_lists = self._unavailable.parts_of_lists()
        self._bytes_max = target.size if target.kind == "varchar" else None
        self._name = column.name
        self._warehouse_bytes_max = bytes_max

    def read(self, values: Values) -> ColumnResult:
        """Convert JSON values (None: null or absent)."""
        result = self._read(values)
        limit = self._warehouse_bytes_max
        if limit is None:
            return result
        is_long = pc.fill_null(pc.greater(pc.binary_length(result.array), limit), fill_value=False)
        if rows := pc.indices_nonzero(is_long).to_pylist():
            result.array = pc.if_else(is_long, pa.scalar(None, self.type), result.array)
            error = Oversize(f"longer than {limit} bytes, the most that the warehouse takes", self._name)
            result.refused += [(row, error) for row in rows]
        return result

    def _read(self, values: Values) -> ColumnResult:
        try:
            if self._is_text:
                return self._read_text(values)
            array = self._bulk(values)
        except _ODD:
            array = None
        return self._one_by_one(values, range(len(values))) if array is None else ColumnResult(array)

    def _read_text(self, values: Values) -> ColumnResult:
        """Text as it stands; the decoder sees only what is suspicious: placeholders, NUL, excess length."""
        texts = self._json_texts(values) if self._is_json else values
        array = pa.array(texts, pa.string())
        if self._is_plain(array):
            return ColumnResult(array)
        nul = pc.match_substring(array, self._nul)
        odd = pc.or_(pc.starts_with(array, _SUSPICIOUS), pc.match_substring(array, self._unavailable.text))
        odd = pc.or_(odd, nul)
        if self._bytes_max is not None:
            odd = pc.or_(odd, pc.greater(pc.binary_length(array), self._bytes_max))
        rows = pc.indices_nonzero(pc.fill_null(odd, fill_value=False)).to_pylist()
        result = self._one_by_one(values, rows, texts) if rows else ColumnResult(array)
        result.nul_replaced = pc.sum(nul).as_py() or 0
        return result

    def _is_plain(self, texts: pa.Array) -> bool:
        """Whether no text is suspicious, by one look at all of them end to end."""
        if texts.null_count == len(texts):
            return True
        if self._bytes_max is not None and pc.max(pc.binary_length(texts)).as_py() > self._bytes_max:
            return False
        end_to_end = texts.buffers()[2].to_pybytes()
        return not any(part in end_to_end for part in self._odd_parts)

    def _json_texts(self, values: Values) -> Values:
        """Lists and objects as compact text, texts checked. Raises MsgspecError on what is not JSON."""
        kinds = set(map(type, values))
        present = [value for value in values if value is not None] if type(None) in kinds else values
        kinds.discard(type(None))
        if kinds == {str} and _are_json(present):
            return values
        if kinds and kinds <= {list, dict} and (texts := self._json_lines(present)) is not None:
            rest = iter(texts)
            return texts if present is values else [None if value is None else next(rest) for value in values]
        return [value if value is None else self._json_text(value) for value in values]

    def _json_lines(self, values: Values) -> list[str] | None:
        """Compact texts, made in one go; None where one might be the placeholder."""
        lines = json_lines(values)
        return None if any(part in lines for part in self._odd_lists) else lines.decode().split("\n")[:-1]

    def _json_text(self, value: object) -> str:
        if isinstance(value, str):
            if not value.startswith(_SUSPICIOUS) and value != self._unavailable.text:
                _JSON_SYNTAX.decode(value)
            return value
        return self._unavailable.text if self._unavailable.matches(value) else json_text(value)

    def _one_by_one(self, values: Values, rows: Sequence[int], others: Values | None = None) -> ColumnResult:
        """Decode the named rows by the rule; the others stand as they are, or as in `others`."""
        found: list[Any] = list(values if others is None else others)
        unavailable: list[int] = []
        refused: list[tuple[int, Undecodable]] = []
        for row in rows:
            try:
                value = self._decode(values[row])
            except Undecodable as error:
                value = None
                refused.append((row, error))
            if value is UNAVAILABLE:
                value = None
                unavailable.append(row)
            found[row] = value
        return ColumnResult(pa.array(found, self.type), unavailable, refused)
