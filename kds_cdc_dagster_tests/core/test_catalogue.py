"""The catalogue refuses at start what no message could be sorted by."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kds_cdc_dagster.catalogue import parse_catalogue
from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.errors import CatalogueError

_TEXT = """
sources: {sources}
entities:
  - name: dish
    sources: {dish}
    primary_key: [id]
    columns: [{{name: id, type: bigint}}]
  - name: menu
    sources: {menu}
    primary_key: [id]
    columns: [{{name: id, type: bigint}}]
targets: []
"""
NORTH: dict[str, Any] = {"id": "north", "name": "sql", "connector": "sqlserver", "database": "north"}
SOUTH: dict[str, Any] = {**NORTH, "id": "south", "database": "south"}
TABLE: dict[str, Any] = {"source": "north", "schema": "dbo", "table": "dish"}


def catalogue(sources: list[dict[str, Any]], dish: dict[str, Any], menu: dict[str, Any]) -> Catalogue:
    """Two entities of the sources."""
    return parse_catalogue(_TEXT.format(sources=json.dumps(sources), dish=json.dumps([dish]), menu=json.dumps([menu])))


def test_two_databases_with_the_same_table_are_two_sources() -> None:
    """Same server name, same schema.table: told apart by the database, so neither hides the other."""
    found = catalogue([NORTH, SOUTH], TABLE, {**TABLE, "source": "south"})
    by_source = {id_: [one.entity.name for one in tables.values()] for id_, tables in found.bindings.items()}
    assert by_source == {"north": ["dish"], "south": ["menu"]}


@pytest.mark.parametrize(
    ("sources", "menu", "rule"),
    [
        ([NORTH], {**TABLE, "database": "south"}, "entities dish and menu both read dbo.dish of source north"),
        ([NORTH], TABLE, "entities dish and menu both read dbo.dish of source north"),
        ([NORTH], {**TABLE, "table": "menu", "database": "south"}, "entities read several SQL Server databases"),
        ([NORTH, {**SOUTH, "database": "north"}], {**TABLE, "source": "south"}, "2 sqlserver sources are named sql"),
        ([{**NORTH, "database": None}, SOUTH], {**TABLE, "source": "south"}, "each needs its own `database`"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(sources: list[dict[str, Any]], menu: dict[str, Any], rule: str) -> None:
    """The error names the entries and says what to write instead."""
    with pytest.raises(CatalogueError) as refused:
        catalogue(sources, TABLE, menu)
    assert rule in str(refused.value)


def test_databases_of_one_binlog_share_a_source() -> None:
    """MySQL counts positions per server, and its schema is the database."""
    source = {"name": "my", "connector": "mysql"}
    tables = ({"source": "my", "schema": schema, "table": "dish"} for schema in ("north", "south"))
    assert len(catalogue([source], *tables).bindings["my"]) == 2
