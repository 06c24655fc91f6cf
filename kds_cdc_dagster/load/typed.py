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

__all__ = ["Typed", "typed", "typed_schema"]


def _no_limit(_: str) -> None:
    return None


def typed(records: pa.Table, entity: Entity, catalogue: Catalogue, *, bytes_max: BytesMax = _no_limit) -> Typed:
    """Type the accepted records (`journal.segment.SCHEMA`) of one entity, in their order.

    Bodies that cannot be read and values that do not fit are refused, each with its reason; the others
    are not held up. Raises KeyError for a source that the catalogue does not have.
    """
    found = Findings()
    tables = [part.table(records, found) for part in _Parts(entity, catalogue, bytes_max).of(records, found)]
    table = pa.concat_tables(tables) if tables else typed_schema(entity).empty_table()
    if len(tables) > 1:
        table = table.sort_by("_record")
    return Typed(table, sorted(found.refused, key=itemgetter(0)), found.drift)


PORTION = 1_000
"""Records that are rows at once, before they are columns."""
_Record = tuple[int, str, bytes]
"""Index, operation, body."""


class _Parts:
    """Gathers records by source and wrapper schema."""

    def __init__(self, entity: Entity, catalogue: Catalogue, bytes_max: BytesMax) -> None:
        self._entity = entity
        self._catalogue = catalogue
        self._bytes_max = bytes_max
        self._parts: dict[tuple[str, bytes | None], Part] = {}

    def of(self, records: pa.Table, found: Findings) -> list[Part]:
        """The parts; records without a row image are refused."""
        ops, bodies = records["op"].to_pylist(), records["body"].to_pylist()
        for source, mine in _by_source(records):
            for start in range(0, len(mine), PORTION):
                portion = mine[start : start + PORTION]
                about = [(record, ops[record], bodies[record]) for record in portion]
                self._add_portion(source, about, found)
        return [part for part in self._parts.values() if len(part)]

    def _add_portion(self, source: str, about: Sequence[_Record], found: Findings) -> None:
        part, start = self._part(source, None), 0
        records, ops, bodies = zip(*about, strict=True)
        rows = part.rules.whole_images(ops, bodies)
        for place in [place for place, row in enumerate(rows) if row is None]:
            part.add_whole(records[start:place], rows[start:place])
            start = place + 1
            if not self._add(source, about[place]):
                found.refused.append((records[place], Reason.UNDECODABLE_VALUE, "no row image in the body"))
        part.add_whole(records[start:], rows[start:])
        part.turn()

    def _add(self, source: str, about: _Record) -> bool:
        record, op, body = about
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
