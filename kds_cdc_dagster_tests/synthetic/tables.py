"""The four packaged tables as their sources declare them."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import yaml

from kds_cdc_dagster.catalogue import packaged_text

_NULLABLE = {
    "station": {"config"},
    "kitchen_ticket": {
        "order_number",
        "channel",
        "guest_count",
        "total",
        "tax",
        "promised_at",
        "fire_time",
        "notes",
        "allergens",
    },
    "kitchen_ticket_item": {"unit_price", "prep_seconds", "modifiers", "recipe"},
    "bump_event": {"item_id", "duration", "raw"},
}
LARGE = frozenset({"config", "notes", "allergens", "modifiers", "recipe"})
"""Columns that may hold values which PostgreSQL stores out of line."""


class Column(NamedTuple):
    """A column: name, declared type without its arguments, the arguments, and whether it may be NULL."""

    name: str
    type: str
    arguments: tuple[int, ...]
    is_nullable: bool


class Table(NamedTuple):
    """A table of schema or database `kds`."""

    name: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]


@cache
def tables(connector: str) -> dict[str, Table]:
    """Tables by name; MariaDB declares as MySQL does."""
    wanted = "postgresql" if connector == "postgresql" else "mysql"
    found = {}
    for entity in yaml.safe_load(packaged_text())["entities"]:
        name = entity["name"]
        columns = tuple(_column(name, column, wanted) for column in entity["columns"])
        found[name] = Table(name, tuple(entity["primary_key"]), columns)
    return found


def _column(table: str, column: dict[str, object], connector: str) -> Column:
    declared = column.get("source_type", column["type"])
    text = str(declared[connector] if isinstance(declared, dict) else declared)
    kind, _, rest = text.partition("(")
    inside, _, tail = rest.partition(")")
    arguments = tuple(int(number) for number in inside.split(",")) if inside else ()
    return Column(str(column["name"]), kind + tail, arguments, column["name"] in _NULLABLE[table])
