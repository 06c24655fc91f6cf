"""What the warehouse has: tables, columns and their types, in one form for every warehouse.

Types are compared as the catalogue's kinds with their sizes, whatever a warehouse calls them. A widening keeps
every value: only those are made by altering a column; anything else is for a person (`kds-cdc doctor`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from kds_cdc_dagster.load.layout import Schemas
from kds_cdc_dagster.ports import Transaction


class Type(NamedTuple):
    """A column's kind, and its size: bytes of a varchar, digits of a decimal. None: the warehouse has no limit."""

    kind: str
    size: int | None = None
    scale: int = 0

    def __str__(self) -> str:
        if self.size is None:
            return self.kind
        return f"{self.kind}({self.size},{self.scale})" if self.kind == "decimal" else f"{self.kind}({self.size})"


Tables = Mapping[str, Mapping[str, Type]]
"""Qualified table or view -> column -> type."""

_WHOLE = {"smallint": 5, "integer": 10, "bigint": 19}
"""Digits that hold every number of the type."""
_NAMES = {
    "smallint": ("int2",),
    "integer": ("int", "int4"),
    "bigint": ("int8",),
    "double": ("double precision", "float8"),
    "decimal": ("numeric",),
    "boolean": ("bool",),
    "varchar": ("character varying", "text", "character"),
    "time": ("time without time zone",),
    "timestamp": ("timestamp without time zone",),
    "timestamptz": ("timestamp with time zone",),
    "json": ("super", "jsonb"),
    "binary": ("varbyte", "binary varying", "bytea", "blob"),
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names}
_SIZED = re.compile(r"^([a-z0-9 ]+?)(?:\((\d+)(?:,\s*(\d+))?\))?$")
_WITH_SIZE = {"varchar", "decimal"}


def type_of(text: str) -> Type:
    """A warehouse's word for a type, as `Dialect.column_type` writes it."""
    match = _SIZED.match(text.lower().strip())
    if match is None:
        return Type(text.lower())
    kind = _KINDS.get(match[1], match[1])
    if kind not in _WITH_SIZE or not match[2]:
        return Type(kind)
    return Type(kind, int(match[2]), int(match[3] or 0))


def is_wider(new: Type, old: Type) -> bool:
    """Whether `new` holds every value of `old` and more."""
    if new.kind == old.kind == "varchar":
        return old.size is not None and (new.size is None or new.size > old.size)
    if new.kind == "decimal" and new.size is not None:
        whole = new.size - new.scale
        if old.kind == "decimal" and old.size is not None:
            return new != old and whole >= old.size - old.scale and new.scale >= old.scale
        return old.kind in _WHOLE and whole >= _WHOLE[old.kind]
    return new.kind in _WHOLE and old.kind in _WHOLE and _WHOLE[new.kind] > _WHOLE[old.kind]


def is_fit(present: Type, wanted: Type) -> bool:
    """Whether a column of type `present` holds every value of type `wanted`."""
    is_same = present.kind == wanted.kind and None in {present.size, wanted.size}
    return is_same or present == wanted or is_wider(present, wanted)


def present_tables(tx: Transaction, schemas: Schemas) -> Tables:
    """Tables and views of the schemas. Redshift lists no columns of a late-binding view: it has none here."""
    names = (schemas.staging, schemas.curated, schemas.ops)
    tables = tx.rows(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN (?, ?, ?)", names
    )
    found: dict[str, dict[str, Type]] = {f"{schema}.{table}": {} for schema, table in tables}
    query = (
        "SELECT table_schema, table_name, column_name, data_type, character_maximum_length, numeric_precision, "
        "numeric_scale FROM information_schema.columns WHERE table_schema IN (?, ?, ?) "
        "ORDER BY table_schema, table_name, ordinal_position"
    )
    for schema, table, column, text, length, precision, scale in tx.rows(query, names):
        kind = type_of(str(text)).kind
        size = {"varchar": length, "decimal": precision}.get(kind)
        known = Type(kind) if size is None else Type(kind, int(size), int(scale or 0) if kind == "decimal" else 0)
        found.setdefault(f"{schema}.{table}", {})[column] = known
    return found
