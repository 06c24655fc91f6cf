"""Logical types: what the wrapper's schema says about a column, where a message carries one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec


class LogicalType(NamedTuple):
    """A field of a Kafka Connect schema."""

    type: str
    """int8 … int64, float32, float64, boolean, string, bytes, array, struct, map."""
    name: str = ""
    """Logical name such as io.debezium.time.MicroTimestamp; empty if plain."""
    scale: int | None = None


def logical_types(schema: bytes) -> dict[str, LogicalType]:
    """Column -> logical type, from the raw JSON of a wrapper's schema; empty if it has none.

    Reads the `after` (or `before`) struct of an envelope, or the fields of a flattened row.
    """
    fields = _fields(msgspec.json.decode(schema))
    images = {name: field for name, field in fields.items() if name in {"after", "before"}}
    row = images.get("after") or images.get("before")
    if row is not None and row.get("type") == "struct":
        fields = _fields(row)
    return {name: _logical(field) for name, field in fields.items()}


def _fields(schema: object) -> dict[str, Mapping[str, Any]]:
    found: Iterable[object] = schema.get("fields") or () if isinstance(schema, dict) else ()
    return {field["field"]: field for field in found if isinstance(field, dict) and "field" in field}


def _logical(field: Mapping[str, Any]) -> LogicalType:
    scale = (field.get("parameters") or {}).get("scale")
    return LogicalType(str(field.get("type")), field.get("name") or "", None if scale is None else int(scale))
