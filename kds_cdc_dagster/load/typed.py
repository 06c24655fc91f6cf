"""Typed rows: recorded changes of one entity as an Arrow table with the entity's columns.

A column that a change does not know (a delete's values, an unchanged large column, a column its table does
not have yet) is null and named in `_missing`: the fold and the merge keep the last known value there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from kds_cdc_dagster.core.catalogue import Catalogue, Entity
from kds_cdc_dagster.core.change import Reason
from kds_cdc_dagster.load.typed_images import read_image
from kds_cdc_dagster.load.typed_part import Part
from kds_cdc_dagster.load.typed_result import Findings, Typed, typed_schema
from kds_cdc_dagster.load.typed_rules import BytesMax, rules
from kds_cdc_dagster.processes import without_collection

__all__ = ["Typed", "typed", "typed_schema"]

PORTION = 10_000
"""Records typed at once: memory never holds the values of more."""


def _no_limit(_: str) -> None:
    return None


@without_collection()
def typed(records: pa.Table, entity: Entity, catalogue: Catalogue, *, bytes_max: BytesMax = _no_limit) -> Typed:
    """Type the accepted records (`journal.segment.SCHEMA`) of one entity, in their order.

    Bodies that cannot be read and values that do not fit are refused, each with its reason; the others
    are not held up. Raises KeyError for a source that the catalogue does not have.
    """
    found = Findings()
    tables = [
        _Parts(entity, catalogue, bytes_max).table(records.slice(first, PORTION), first, found)
        for first in range(0, records.num_rows, PORTION)
    ]
    return Typed(pa.concat_tables([typed_schema(entity).empty_table(), *tables]), found.refused, found.drift)


class _Parts:
    """Gathers a portion's records by source and wrapper schema."""

    def __init__(self, entity: Entity, catalogue: Catalogue, bytes_max: BytesMax) -> None:
        self._entity = entity
        self._catalogue = catalogue
        self._bytes_max = bytes_max
        self._parts: dict[tuple[str, bytes | None], Part] = {}

    def table(self, records: pa.Table, first: int, found: Findings) -> pa.Table:
        """The typed rows; the first record is number `first` of all."""
        mine = Findings()
        tables = [part.table(records, mine) for part in self._gathered(records, mine)]
        refused = sorted(mine.refused, key=itemgetter(0))
        found.refused.extend((first + record, reason, detail) for record, reason, detail in refused)
        found.drift.update(mine.drift)
        table = pa.concat_tables(tables) if tables else typed_schema(self._entity).empty_table()
        if len(tables) > 1:
            table = table.sort_by("_record")
        numbers = pc.add(table["_record"], pa.scalar(first, pa.int32()))
        return table.set_column(table.num_columns - 1, "_record", numbers)

    def _gathered(self, records: pa.Table, found: Findings) -> list[Part]:
        """The parts; records without a row image are refused."""
        ops, bodies = records["op"].to_pylist(), records["body"].to_pylist()
        for source, mine in _by_source(records):
            part, start = self._part(source, None), 0
            mine_ops = [ops[record] for record in mine]
            rows = part.rules.whole_images(mine_ops, [bodies[record] for record in mine])
            for place, record in [(place, mine[place]) for place, row in enumerate(rows) if row is None]:
                part.add_whole(mine[start:place], mine_ops[start:place], rows[start:place])
                start = place + 1
                if not self._add(record, source, ops[record], bodies[record]):
                    found.refused.append((record, Reason.UNDECODABLE_VALUE, "no row image in the body"))
            part.add_whole(mine[start:], mine_ops[start:], rows[start:])
        return [part for part in self._parts.values() if len(part)]

    def _add(self, record: int, source: str, op: str, body: bytes) -> bool:
        image = read_image(body, op)
        if image is None:
            return False
        self._part(source, image.schema).add(record, op, image.row)
        return True

    def _part(self, source: str, schema: bytes | None) -> Part:
        found = self._parts.get((source, schema))
        if found is None:
            found = Part(rules(self._entity, self._catalogue.source_by_id[source], schema, self._bytes_max))
            self._parts[source, schema] = found
        return found


def _by_source(records: pa.Table) -> Iterator[tuple[str, Sequence[int]]]:
    """Each source and its records; a batch has one, or two."""
    sources = records["source"]
    names = sources.unique().to_pylist()
    for name in names:
        yield name, range(len(sources)) if len(names) == 1 else pc.indices_nonzero(pc.equal(sources, name)).to_pylist()
