"""Sources: which catalogue entry a Debezium source block belongs to, and which of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kds_cdc_dagster.core.catalogue import Catalogue, Source
from kds_cdc_dagster.core.change import Reason
from kds_cdc_dagster.core.contracts.body import Refused, ShortBlock
from kds_cdc_dagster.core.contracts.tables import BoundTable

GROUPS: Mapping[str, tuple[str, ...]] = {"binlog": ("mysql", "mariadb"), "lsn-text": ("sqlserver", "db2")}
"""Connectors that a flattened row's position fields cannot tell apart."""


class Place(NamedTuple):
    """Where a table stands; the schema of MySQL and MariaDB is the database."""

    database: str
    schema: str
    table: str


def _place(block: ShortBlock, source: Source, *, is_partial: bool) -> Place:
    """Database, schema and table, all mandatory. Flattened rows take what they lack from the source."""
    default, default_schema = (source.database, source.flattened_schema) if is_partial else (None, None)
    database = block.db or default
    schema = database if source.connector in GROUPS["binlog"] else block.schema or default_schema
    for name, value in (("database", database), ("schema", schema), ("table", block.table)):
        if not isinstance(value, str) or not value:
            raise Refused(Reason.MISSING_FIELD, f"no {name} in the message", source=source.id)
    return Place(str(database), str(schema), str(block.table))


class Route(NamedTuple):
    """Where a row goes."""

    table: BoundTable
    place: Place


class Sources:
    """Finds sources by (connector, name); flattened rows may name one of them, or neither."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._routes: dict[tuple[object, ...], Route] = {}
        self._found: dict[tuple[str, str], list[Source]] = {}
        for source in catalogue.sources:
            if source.contract == "debezium":
                self._register(source)
        self._tables = {
            source_id: {place: BoundTable(binding) for place, binding in bindings.items()}
            for source_id, bindings in catalogue.bindings.items()
        }

    def _register(self, source: Source) -> None:
        connector = source.connector or ""
        groups = [group for group, members in GROUPS.items() if connector in members]
        for words in (connector, "", *groups):
            for name in (source.name, ""):
                self._found.setdefault((words, name), []).append(source)

    def route(self, block: ShortBlock, *, is_partial: bool) -> Route | None:
        """Table and place of a row; None for the connector's own signal tables. Raises Refused.

        `is_partial`: connector, name, database and schema may be missing (flattened rows).
        """
        key = (block.connector, block.name, block.db, block.schema, block.table, is_partial)
        found = self._routes.get(key)
        if found is not None:
            return found
        source = self._source(block, is_partial=is_partial)
        if block.table in source.signal_tables or f"{block.schema}.{block.table}" in source.signal_tables:
            return None
        place = _place(block, source, is_partial=is_partial)
        route = self._routes[key] = Route(self._table(source, place), place)  # bounded by the catalogue's tables
        return route

    def _source(self, block: ShortBlock, *, is_partial: bool) -> Source:
        connector, name = block.connector or "", block.name or ""
        if not is_partial and not (connector and name):
            raise Refused(Reason.MISSING_FIELD, "source.connector or source.name is missing")
        found: Sequence[Source] = self._found.get((connector, name), ())
        if len(found) > 1 and block.db:  # connectors of one name, each for a database of its own
            found = [source for source in found if source.database == block.db]
        if len(found) != 1:
            which = "several sources" if len(found) > 1 else "no source"
            raise Refused(Reason.UNKNOWN_SOURCE, f"{which} in the catalogue for connector {connector}, name {name}")
        return found[0]

    def _table(self, source: Source, place: Place) -> BoundTable:
        tables = self._tables[source.id]
        found = tables.get((place.schema, place.table)) or tables.get((place.database, place.table))
        if found is None or found.binding.database not in {None, place.database}:
            detail = f"no table {place.schema}.{place.table} of source {source.id} in the catalogue"
            raise Refused(Reason.UNKNOWN_TABLE, detail, source=source.id)
        return found

    def entity(self, source: Source, name: str) -> BoundTable:
        """The table of a mock entity. Raises Refused."""
        found = self._tables[source.id].get(("", name))
        if found is None:
            raise Refused(Reason.UNKNOWN_TABLE, f"no entity {name} of source {source.id} in the catalogue")
        return found
