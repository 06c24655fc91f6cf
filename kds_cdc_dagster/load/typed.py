"""Typed rows: recorded changes of one entity as an Arrow table with the entity's columns.

A column that a change does not know (a delete's values, an unchanged large column, a column its table does
not have yet) is null and named in `_missing`: the fold and the merge keep the last known value there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kds_cdc_dagster.core.catalogue import Catalogue, Entity, Source
from kds_cdc_dagster.core.change import Op, Reason
from kds_cdc_dagster.core.contracts.tables import FOLDED, folded
from kds_cdc_dagster.core.values import logical_types
from kds_cdc_dagster.load import drift
from kds_cdc_dagster.load.typed_columns import ColumnReader, ColumnResult, arrow_type
from kds_cdc_dagster.load.typed_images import WholeImages, read_image
from kds_cdc_dagster.load.typed_shapes import Shape, Shapes

_JSON = msgspec.json.Encoder(decimal_format="number", order="deterministic")
_INSTANT = pa.timestamp("us", "UTC")
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
    ("_occurred_at", _INSTANT),
    ("_sent_at", _INSTANT),
    ("_record", pa.int32()),  # index into the records
)

_WHOLE_OPS = frozenset({Op.CREATE.value, Op.UPDATE.value, Op.READ.value})
_Missing = dict[int, set[str]]
_Refused = dict[int, tuple[Reason, str]]
Refusal = tuple[int, Reason, str]
"""(index into the records, reason, detail that names column and rule)."""


@dataclass(frozen=True, slots=True)
class Typed:
    """Typed rows, the records that could not become rows, and what drifted."""

    table: pa.Table
    refused: list[Refusal] = field(default_factory=list)
    drift: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(new_column | dropped_column | widened | incompatible | nul_replaced | extra_too_long, column) -> rows."""


def typed_schema(entity: Entity) -> pa.Schema:
    """Schema of the typed rows of `entity`: its columns, then ours (which start with an underscore)."""
    return pa.schema([*((column.name, arrow_type(column.type)) for column in entity.columns), *_META])


BytesMax = Callable[[str], int | None]
"""Declared type -> longest value in bytes (`ports.Dialect.bytes_max`)."""


def _no_limit(_: str) -> None:
    return None


def typed(records: pa.Table, entity: Entity, catalogue: Catalogue, *, bytes_max: BytesMax = _no_limit) -> Typed:
    """Type the accepted records (`journal.segment.SCHEMA`) of one entity, in their order.

    Bodies that cannot be read and values that do not fit are refused, each with its reason; the others
    are not held up. Raises KeyError for a source that the catalogue does not have.
    """
    result = Typed(typed_schema(entity).empty_table())
    parts = [part.table(result) for part in _parts(records, (entity, catalogue, bytes_max), result)]
    if not parts:
        return result
    table = pa.concat_tables(parts)
    if len(parts) > 1:
        table = table.sort_by("_record")
    return Typed(table, sorted(result.refused, key=lambda refusal: refusal[0]), result.drift)


def _parts(records: pa.Table, rules: tuple[Entity, Catalogue, BytesMax], result: Typed) -> list[_Part]:
    """Rows by source and wrapper schema: what decides how a column is read."""
    entity, catalogue, bytes_max = rules
    parts: dict[tuple[str, bytes | None], _Part] = {}
    sources, ops, bodies = (records.column(name).to_pylist() for name in ("source", "op", "body"))
    whole = WholeImages([column.name for column in entity.columns])
    for record, (source, op, body) in enumerate(zip(sources, ops, bodies, strict=True)):
        part = parts.get((source, None))
        if part is not None and part.is_whole(op) and (values := whole.read(body)) is not None:
            part.add_whole(record, values)
            continue
        image = read_image(body, op)
        if image is None:
            result.refused.append((record, Reason.UNDECODABLE_VALUE, "no row image in the body"))
            continue
        key = (source, image.schema)
        part = parts.get(key)
        if part is None:
            part = parts[key] = _Part(
                records, entity, catalogue.source_by_id[source], schema=image.schema, bytes_max=bytes_max
            )
        part.add(record, op, image.row)
    return list(parts.values())


class _Part:
    """Rows of one source under one schema."""

    def __init__(
        self, records: pa.Table, entity: Entity, source: Source, *, schema: bytes | None, bytes_max: BytesMax
    ) -> None:
        logical = {} if schema is None else folded(logical_types(schema), source)
        self._records = records
        self._entity = entity
        self._source = source
        self._readers = {
            c.name: ColumnReader(c, source, logical.get(c.name), bytes_max=bytes_max(c.type)) for c in entity.columns
        }
        self._widened = {c.name for c in entity.columns if drift.is_widened(c, source, logical.get(c.name))}
        self._extra_bytes_max = bytes_max("text")
        self._indices: list[int] = []
        self._rows: list[tuple[Any, ...]] = []
        self._extras: dict[int, dict[str, Any]] = {}
        self._shapes: list[Shape] = []
        self._names = tuple(self._readers)
        self._known = Shapes(self._names, entity.primary_key, source.on, self._widened)
        self._whole = self._known.of(self._names)
        self._is_folded = source.connector in FOLDED

    def is_whole(self, op: str) -> bool:
        """Whether a change of this kind may have an image that is taken as it stands."""
        return op in _WHOLE_OPS and not self._is_folded

    def add_whole(self, record: int, values: tuple[Any, ...]) -> None:
        """Add a record whose image has the entity's columns, no more and no less."""
        self._indices.append(record)
        self._rows.append(values)
        self._shapes.append(self._whole)

    def add(self, record: int, op: str, row: Mapping[str, Any]) -> None:
        """Add a record's row. Of a delete's image only the key is real."""
        row = folded(row, self._source)
        if op == Op.TRUNCATE:
            shape = self._known.of_truncate
        elif op == Op.DELETE:
            shape = self._known.of_delete
        else:
            shape = self._known.of(tuple(row))
        if shape.extra and self._source.on.new_column == "evolve":
            self._extras[len(self._rows)] = {name: row[name] for name in shape.extra}
        self._indices.append(record)
        self._rows.append(shape.pick(row))
        self._shapes.append(shape)

    def table(self, result: Typed) -> pa.Table:
        """The part's typed rows; refusals and drift go to `result`."""
        missing: _Missing = {}
        refused: _Refused = {
            row: (Reason.SCHEMA_DRIFT, shape.refusal) for row, shape in enumerate(self._shapes) if shape.refusal
        }
        columns = zip(self._names, zip(*self._rows, strict=True), strict=True)
        arrays = [self._array(self._readers[n].read(v), (n, missing, refused), result) for n, v in columns]
        self._count_drift(result)
        table = pa.table([*arrays, *self._meta(missing, result)], schema=typed_schema(self._entity))
        if not refused:
            return table
        result.refused.extend((self._indices[row], *why) for row, why in refused.items())
        return table.filter(pa.array([row not in refused for row in range(len(self._rows))]))

    def _array(self, read: ColumnResult, about: tuple[str, _Missing, _Refused], result: Typed) -> pa.Array:
        """The column's array; what it does not know or refuses is noted."""
        name, missing, refused = about
        for row in read.unavailable:
            missing.setdefault(row, set()).add(name)
        for row, error in read.refused:
            kind = drift.kind_of(error)
            result.drift[kind, name] += name not in self._widened
            if name in self._entity.primary_key or drift.is_refused(self._source, kind):
                refused.setdefault(row, (Reason.UNDECODABLE_VALUE, str(error)))
            else:
                missing.setdefault(row, set()).add(name)
                if kind == "incompatible" and self._source.on.incompatible == "evolve":
                    self._extras.setdefault(row, {})[name] = self._rows[row][self._names.index(name)]
        if read.nul_replaced:
            result.drift["nul_replaced", name] += read.nul_replaced
        return read.array

    def _count_drift(self, result: Typed) -> None:
        for shape, rows in Counter(self._shapes).items():
            result.drift.update({("dropped_column", name): rows for name in shape.dropped})
            result.drift.update({("widened", name): rows for name in shape.widened})
            result.drift.update({("new_column", name): rows for name in shape.extra})

    def _extra_text(self, extra: dict[str, Any], result: Typed) -> str | None:
        """JSON of what the catalogue has no column for; left out, and counted, where the warehouse cannot take it."""
        text = _JSON.encode(extra)
        if self._extra_bytes_max is not None and len(text) > self._extra_bytes_max:
            result.drift.update({("extra_too_long", name): 1 for name in extra})
            return None
        return text.decode()

    def _meta(self, missing: _Missing, result: Typed) -> list[pa.Array]:
        taken = self._records.take(pa.array(self._indices, pa.int64())).combine_chunks()
        schema, table = taken["schema_name"], taken["table_name"]
        relation = pc.if_else(pc.equal(schema, ""), table, pc.binary_join_element_wise(schema, table, "."))
        plain = ("op", "row_order", "row_position", "identity", "content_hash", "company", "tenant")
        return [
            taken["source"],
            relation,
            *(taken[name] for name in plain),
            self._missing(missing),
            self._extra_texts(result),
            *(taken[name].cast(pa.timestamp("ms", "UTC")).cast(_INSTANT) for name in ("occurred_at_ms", "sent_at_ms")),
            pa.array(self._indices, pa.int32()),
        ]

    def _extra_texts(self, result: Typed) -> pa.Array:
        texts: list[str | None] = [None] * len(self._rows)
        for row, extra in self._extras.items():
            texts[row] = self._extra_text(extra, result)
        return pa.array(texts, pa.string())

    def _missing(self, more: _Missing) -> pa.Array:
        texts = [f",{','.join(shape.missing)}," if shape.missing else "" for shape in self._shapes]
        for row, names in more.items():
            texts[row] = f",{','.join(self._known.in_order(names.union(self._shapes[row].missing)))},"
        return pa.array(texts, pa.string())
