"""One column of many rows: JSON values to an Arrow array, in bulk where the values allow it.

The scalar decoder (`core.values`) is the rule. A bulk path only takes values it converts to the very same
result, checked by type, and leaves everything else, value by value, to the decoder; a property test holds
the two equal.
"""

from __future__ import annotations

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
        self._is_json = target.kind == "json"
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
        except (pa.ArrowException, msgspec.MsgspecError, ValueError, TypeError, LookupError, ArithmeticError):
            array = None
        return self._one_by_one(values, range(len(values))) if array is None else ColumnResult(array)

    def _read_text(self, values: Values) -> ColumnResult:
        """Text as it stands; the decoder sees only what is suspicious: placeholders, NUL, excess length."""
        texts = self._json_texts(values) if self._is_json else values
        array = pa.array(texts, pa.string())
        nul = pc.match_substring(array, r"\u0000" if self._is_json else "\0")
        odd = pc.or_(pc.starts_with(array, _SUSPICIOUS), pc.match_substring(array, self._unavailable.text))
        odd = pc.or_(odd, nul)
        if self._bytes_max is not None:
            odd = pc.or_(odd, pc.greater(pc.binary_length(array), self._bytes_max))
        rows = pc.indices_nonzero(pc.fill_null(odd, fill_value=False)).to_pylist()
        result = self._one_by_one(values, rows, texts) if rows else ColumnResult(array)
        result.nul_replaced = pc.sum(nul).as_py() or 0
        return result

    def _json_texts(self, values: Values) -> Values:
        """Lists and objects as compact text, texts checked. Raises MsgspecError on what is not JSON."""
        return [value if value is None else self._json_text(value) for value in values]

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
