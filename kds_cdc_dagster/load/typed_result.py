"""What typing gives: rows, refusals and drift; and the columns that typed rows have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from kds_cdc_dagster.core.catalogue import Entity
from kds_cdc_dagster.core.change import Reason
from kds_cdc_dagster.load.typed_columns import arrow_type

INSTANT = pa.timestamp("us", "UTC")
_META: Sequence[tuple[str, pa.DataType]] = (
    ("_source", pa.string()),
    ("_relation", pa.string()),
    ("_op", pa.string()),
    ("_row_order", pa.string()),
    ("_row_position", pa.string()),
    ("_identity", pa.string()),
    ("_content_hash", pa.string()),
    ("_company", pa.string()),
    ("_tenant", pa.string()),
    ("_missing", pa.string()),  # "" or ",a,b,": columns this change does not know
    ("_extra", pa.string()),  # JSON object of columns the catalogue does not list, or null
    ("_occurred_at", INSTANT),
    ("_sent_at", INSTANT),
    ("_record", pa.int32()),  # index into the records
)

Refusal = tuple[int, Reason, str]
"""(index into the records, reason, detail that names column and rule)."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The records that could not become rows, and what drifted."""

    refused: list[Refusal] = field(default_factory=list)
    drift: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(new_column | dropped_column | widened | incompatible | nul_replaced | extra_too_long, column) -> rows."""


@dataclass(frozen=True, slots=True)
class Typed:
    """Typed rows, and what was found on the way (see `Findings`)."""

    table: pa.Table
    refused: list[Refusal] = field(default_factory=list)
    drift: Counter[tuple[str, str]] = field(default_factory=Counter)


def typed_schema(entity: Entity) -> pa.Schema:
    """Schema of the typed rows of `entity`: its columns, then ours (which start with an underscore)."""
    return pa.schema([*((column.name, arrow_type(column.type)) for column in entity.columns), *_META])
