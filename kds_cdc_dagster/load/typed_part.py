"""Parts: rows of one source under one wrapper schema, which decides how each column is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kds_cdc_dagster.core.change import Op, Reason
from kds_cdc_dagster.core.contracts.tables import folded
from kds_cdc_dagster.load import drift
from kds_cdc_dagster.load.batch import plain
from kds_cdc_dagster.load.typed_columns import ColumnResult
from kds_cdc_dagster.load.typed_result import INSTANT, Findings
from kds_cdc_dagster.load.typed_rules import Rules
from kds_cdc_dagster.load.typed_shapes import Shape

_JSON = msgspec.json.Encoder(decimal_format="number", order="deterministic")
_Missing = dict[int, set[str]]
_Refused = dict[int, tuple[Reason, str]]
_PLAIN = ("op", "row_order", "row_position", "identity", "content_hash", "company", "tenant")
_TIMES = ("occurred_at_ms", "sent_at_ms")
_TAKEN = ("source", "schema_name", "table_name", *_PLAIN, *_TIMES)


class Part:
    """Rows of one source under one schema, gathered in the order of the records."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._indices: list[int] = []
        self._rows: list[tuple[Any, ...]] = []
        self._shapes: list[Shape] = []
        self._extras: dict[int, dict[str, Any]] = {}
        """Record -> what is known beside the entity's columns."""

    def __len__(self) -> int:
        return len(self._rows)

    def add_whole(self, records: Sequence[int], ops: Sequence[str], rows: Sequence[Any]) -> None:
        """Add records whose images have the entity's columns, no more and no less, or are of deletes."""
        self._indices += records
        self._rows += rows
        whole, of_delete = self.rules.whole, self.rules.shapes.of_delete
        self._shapes += [of_delete if op == Op.DELETE else whole for op in ops]

    def add(self, record: int, op: str, row: Mapping[str, Any]) -> None:
        """Add a record's row. Of a delete's image only the key is real."""
        source, shapes = self.rules.source, self.rules.shapes
        row = folded(row, source)
        if op == Op.TRUNCATE:
            shape = shapes.of_truncate
        elif op == Op.DELETE:
            shape = shapes.of_delete
        else:
            shape = shapes.of(tuple(row))
        if shape.extra and source.on.new_column == "evolve":
            self._extras[record] = {name: row[name] for name in shape.extra}
        self._indices.append(record)
        self._rows.append(shape.pick(row))
        self._shapes.append(shape)

    def table(self, records: pa.Table, found: Findings) -> pa.Table:
        """The part's typed rows; refusals and drift go to `found`."""
        missing: _Missing = {}
        shapes = Counter(self._shapes)
        refused: _Refused = {}
        if any(shape.refusal for shape in shapes):
            refused = {r: (Reason.SCHEMA_DRIFT, shape.refusal) for r, shape in enumerate(self._shapes) if shape.refusal}
        arrays = [
            self._array(name, reader.read(values), (missing, refused), found)
            for values, (name, reader) in zip(zip(*self._rows, strict=True), self.rules.readers.items(), strict=True)
        ]
        _count_drift(shapes, found)
        table = pa.table([*arrays, *self._meta(records, missing, found)], schema=self.rules.schema)
        if not refused:
            return table
        found.refused.extend((self._indices[row], *why) for row, why in refused.items())
        return table.filter(pa.array([row not in refused for row in range(len(self._rows))]))

    def _array(self, name: str, read: ColumnResult, about: tuple[_Missing, _Refused], found: Findings) -> pa.Array:
        """The column's array; what it does not know or refuses is noted."""
        missing, refused = about
        rules = self.rules
        for row in read.unavailable:
            missing.setdefault(row, set()).add(name)
        for row, error in read.refused:
            kind = drift.kind_of(error)
            found.drift[kind, name] += name not in rules.widened
            if name in rules.key or drift.is_refused(rules.source, kind):
                refused.setdefault(row, (Reason.UNDECODABLE_VALUE, str(error)))
            else:
                missing.setdefault(row, set()).add(name)
                if kind == "incompatible" and rules.source.on.incompatible == "evolve":
                    self._extras.setdefault(self._indices[row], {})[name] = self._rows[row][rules.names.index(name)]
        if read.nul_replaced:
            found.drift["nul_replaced", name] += read.nul_replaced
        return read.array

    def _meta(self, records: pa.Table, missing: _Missing, found: Findings) -> list[pa.Array]:
        taken = _taken(plain(records.select(_TAKEN)), self._indices)
        schema, table = taken["schema_name"], taken["table_name"]
        relation = pc.if_else(pc.equal(schema, ""), table, pc.binary_join_element_wise(schema, table, "."))
        return [
            taken["source"],
            relation,
            *(taken[name] for name in _PLAIN),
            self._missing(missing),
            self._extra_texts(found),
            *(taken[name].cast(pa.timestamp("ms", "UTC")).cast(INSTANT) for name in _TIMES),
            pa.array(self._indices, pa.int32()),
        ]

    def _missing(self, more: _Missing) -> pa.Array:
        text_of = {shape: _listed(shape.missing) for shape in set(self._shapes)}
        texts = list(map(text_of.__getitem__, self._shapes))
        for row, names in more.items():
            texts[row] = _listed(self.rules.shapes.in_order(names.union(self._shapes[row].missing)))
        return pa.array(texts, pa.string())

    def _extra_texts(self, found: Findings) -> pa.Array:
        if not self._extras:
            return pa.nulls(len(self._rows), pa.string())
        extras = [self._extras.get(record) for record in self._indices]
        texts = [None if extra is None else self._extra_text(extra, found) for extra in extras]
        return pa.array(texts, pa.string())

    def _extra_text(self, extra: dict[str, Any], found: Findings) -> str | None:
        """JSON of what the catalogue has no column for; left out, and counted, where the warehouse cannot take it."""
        text = _JSON.encode(extra)
        limit = self.rules.extra_bytes_max
        if limit is not None and len(text) > limit:
            found.drift.update({("extra_too_long", name): 1 for name in extra})
            return None
        return text.decode()


def _count_drift(shapes: Mapping[Shape, int], found: Findings) -> None:
    for shape, rows in shapes.items():
        found.drift.update({("dropped_column", name): rows for name in shape.dropped})
        found.drift.update({("widened", name): rows for name in shape.widened})
        found.drift.update({("new_column", name): rows for name in shape.extra})


def _taken(records: pa.Table, indices: Sequence[int]) -> pa.Table:
    """Those rows, which rise; nearly always all of them."""
    return records if len(indices) == records.num_rows else records.take(pa.array(indices, pa.int64()))


def _listed(names: Sequence[str]) -> str:
    return f",{','.join(names)}," if names else ""
