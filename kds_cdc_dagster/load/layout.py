"""Names, columns and shared SQL fragments of the warehouse's tables. Pure text: runs nothing.

Per entity   <staging>.<entity>               typed changes, with the batch they came in
Per target   <curated>.<target>_rows          newest version per key, tombstones included
             <curated>.<target>_past          earlier lives of re-created keys (`load.moves`)
             <curated>.<target>_moves         create halves of key changes with unavailable columns
             <curated>.<target>               view: the source's columns of live rows
Shared       <ops>.load_ledger, staged, truncates, changed_tenants, export_ledger, quarantine, quarantine_actions

A row's version is held in three orders, so that any arrival order ends in the same row:
`_image_order` (newest c, u or r), `_deleted_order` (newest delete) and, for columns whose value is not the
image's own, entries `column:order` in `_kept`. `_row_order` is the greater of the first two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kds_cdc_dagster.core.catalogue import Catalogue, Entity, Target
from kds_cdc_dagster.core.position import EPOCH_DIGITS, POSITION_DIGITS, SEQUENCE_DIGITS

ORDER_DIGITS = EPOCH_DIGITS + 1 + POSITION_DIGITS + 1 + SEQUENCE_DIGITS
"""Width of a row order: epoch, phase, position, rank, sequence number."""

Columns = tuple[tuple[str, str], ...]
"""(name, declared type) in table order."""

_ORDER = f"varchar({ORDER_DIGITS})"
_POSITION = f"varchar({POSITION_DIGITS})"
_NAME, _TENANT, _BATCH = "varchar(320)", "varchar(320)", "varchar(160)"

KEY_META: Columns = (("_source", _NAME), ("_relation", _NAME))
"""With the primary key: the curated key."""
_TIMES: Columns = (("_occurred_at", "timestamptz"), ("_sent_at", "timestamptz"))
_OWNER: Columns = (("_company", _TENANT), ("_tenant", _TENANT))

STAGED_META: Columns = (
    *KEY_META,
    ("_op", "varchar(1)"),
    ("_row_order", _ORDER),
    ("_row_position", _POSITION),
    ("_identity", "varchar(64)"),
    ("_content_hash", "varchar(64)"),
    *_OWNER,
    ("_missing", "text"),
    ("_extra", "text"),
    *_TIMES,
)
"""What `load.typed` adds to an entity's columns, as far as it is loaded."""

ROW_META: Columns = (
    *KEY_META,
    ("_row_order", _ORDER),
    ("_image_order", _ORDER),
    ("_deleted_order", _ORDER),
    ("_row_position", _POSITION),
    ("_content_hash", "varchar(64)"),
    ("_is_deleted", "boolean"),
    ("_missing", "text"),
    ("_kept", "text"),
    ("_extra", "text"),
    *_OWNER,
    *_TIMES,
    ("_loaded_at", "timestamptz"),
    ("_batch_id", _BATCH),
)

_SCOPE: Columns = (("schema_name", "varchar(128)"), ("target", "varchar(128)"))
"""Curated schema and target: an isolated replay target has its own ledger."""

OPS: dict[str, Columns] = {
    "load_ledger": (
        *_SCOPE,
        ("batch_id", _BATCH),
        ("checksum", "varchar(64)"),
        ("code_version", "varchar(128)"),
        ("sequence", "bigint"),
        ("changes", "bigint"),
        ("applied", "bigint"),
        ("stale", "bigint"),
        ("deleted", "bigint"),
        ("truncated", "bigint"),
        ("duration_seconds", "double"),
        ("lag_max_seconds", "double"),
        ("lag_avg_seconds", "double"),
        ("applied_at", "timestamptz"),
    ),
    "staged": (
        ("entity", "varchar(128)"),
        ("batch_id", _BATCH),
        ("checksum", "varchar(64)"),
        *(("rows_staged", "bigint"), ("rows_refused", "bigint"), ("drift", "text")),
        ("staged_at", "timestamptz"),
    ),
    "truncates": (*_SCOPE, *KEY_META, ("_row_order", _ORDER)),
    "changed_tenants": (*_SCOPE, ("tenant", _TENANT), ("sequence", "bigint")),
    "export_ledger": (
        *_SCOPE,
        ("watermark", "bigint"),
        ("version", "varchar(64)"),
        ("rows_exported", "bigint"),
        ("exported_at", "timestamptz"),
    ),
    "quarantine": (
        ("key", "varchar(64)"),
        ("batch_id", _BATCH),
        ("outcome", "varchar(16)"),
        ("reason", "varchar(256)"),
        ("detail", "text"),
        ("source", _NAME),
        ("entity", "varchar(128)"),
        ("stream", "varchar(512)"),
        ("identity", "varchar(64)"),
        ("content_hash", "varchar(64)"),
        ("message_id", "varchar(128)"),
        ("group_id", "varchar(512)"),
        ("sequence_number", "varchar(64)"),
        ("received_at", "timestamptz"),
        ("segment", _BATCH),
        ("segment_row", "bigint"),
        ("body_bytes", "bigint"),
        ("body_encoding", "varchar(16)"),
        ("body", "text"),
        ("status", "varchar(16)"),
    ),
    "quarantine_actions": (
        *(("key", "varchar(64)"), ("reason", "varchar(256)"), ("action", "varchar(16)")),
        *(("acted_by", "varchar(128)"), ("why", "varchar(512)"), ("acted_at", "timestamptz")),
    ),
}


@dataclass(frozen=True, slots=True)
class Schemas:
    """Schema names. Another `curated` makes an isolated replay target of every target."""

    staging: str = "staging"
    curated: str = "curated"
    ops: str = "ops"

    def op(self, table: str) -> str:
        """Qualified name of a shared table."""
        return f"{self.ops}.{table}"


@dataclass(frozen=True, slots=True)
class Layout:
    """A target's tables and columns."""

    target: Target
    entity: Entity
    schemas: Schemas

    @classmethod
    def of(cls, catalogue: Catalogue, target: str, schemas: Schemas) -> Layout:
        """The layout of a target of the catalogue."""
        found = catalogue.target_by_name[target]
        return cls(found, catalogue.target_entity(found), schemas)

    @property
    def rows(self) -> str:
        """Newest version of every key."""
        return f"{self.schemas.curated}.{self.target.name}_rows"

    @property
    def past(self) -> str:
        """Earlier lives of re-created keys."""
        return f"{self.schemas.curated}.{self.target.name}_past"

    @property
    def moves(self) -> str:
        """Create halves of key changes with unavailable columns."""
        return f"{self.schemas.curated}.{self.target.name}_moves"

    @property
    def view(self) -> str:
        """What consumers read."""
        return f"{self.schemas.curated}.{self.target.name}"

    @property
    def scope(self) -> tuple[str, str]:
        """Values of (schema_name, target) in the shared tables."""
        return (self.schemas.curated, self.target.name)

    @property
    def lock(self) -> str:
        """Merges and export records of one target exclude each other."""
        return f"{self.schemas.curated}.{self.target.name}"

    @property
    def columns(self) -> list[str]:
        """The source's columns."""
        return [column.name for column in self.entity.columns]

    @property
    def key(self) -> list[str]:
        """The curated key: source, relation, primary key."""
        return ["_source", "_relation", *self.entity.primary_key]

    @property
    def values(self) -> list[str]:
        """Columns that may be unavailable in a change."""
        return [name for name in self.columns if name not in self.entity.primary_key]

    @property
    def row_columns(self) -> Columns:
        """Columns of `rows` and `past`."""
        return (*declared(self.entity), *ROW_META)

    @property
    def move_columns(self) -> Columns:
        """Columns of `moves`: the create half, then the delete half once it is known."""
        types = dict(declared(self.entity))
        keys = [(name, types[name]) for name in self.entity.primary_key]
        olds = [(f"old_{name}", kind) for name, kind in keys]
        return (
            *KEY_META,
            *keys,
            ("_row_position", _POSITION),
            ("_row_order", _ORDER),
            *olds,
            ("old_row_order", _ORDER),
        )


def declared(entity: Entity) -> Columns:
    """The entity's own columns with their declared types."""
    return tuple((column.name, column.type) for column in entity.columns)


def staged_columns(entity: Entity) -> Columns:
    """Columns of the load artifact, in its order (COPY of Parquet maps by position)."""
    return (*declared(entity), *STAGED_META)


def literal(text: str) -> str:
    """A quoted text constant, where a statement takes no parameter."""
    return "'" + text.replace("'", "''") + "'"


def listed(names: Iterable[str], alias: str = "") -> str:
    """`a, b` or `t.a, t.b`."""
    return ", ".join(f"{alias}.{name}" if alias else name for name in names)


def same(names: Sequence[str], left: str, right: str) -> str:
    """Equality of the named columns of two tables."""
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in names)
