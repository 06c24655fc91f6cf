"""Create schemas, tables and views from the catalogue, and add columns that the catalogue gained.

Runs before a load, never inside its transaction: on Redshift DDL and DML of one table conflict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.load.layout import OPS, Columns, Layout, Schemas, listed, staged_columns
from kds_cdc_dagster.ports import Transaction, Warehouse

Tables = Mapping[str, Mapping[str, str]]
"""Qualified table or view -> column -> type, as the warehouse has it."""


def ensure_schema(warehouse: Warehouse, catalogue: Catalogue, schemas: Schemas) -> int:
    """Make the warehouse fit the catalogue; returns how many statements that took (0: it did).

    Only ever adds. A column whose declared type changed keeps its type in the warehouse.
    """
    layouts = [Layout.of(catalogue, target.name, schemas) for target in catalogue.targets]

    def body(tx: Transaction) -> int:
        statements = list(_statements(tx, catalogue, layouts, schemas))
        for statement in statements:
            tx.execute(statement)
        return len(statements)

    return warehouse.run(body, lock="schema")


def _statements(tx: Transaction, catalogue: Catalogue, layouts: list[Layout], schemas: Schemas) -> Iterator[str]:
    present = _present(tx, schemas)
    for schema in (schemas.staging, schemas.curated, schemas.ops):
        if not any(table.startswith(f"{schema}.") for table in present):
            yield f"CREATE SCHEMA IF NOT EXISTS {schema}"
    for name, columns in OPS.items():
        yield from _table(tx, present, schemas.op(name), columns)
    for entity in catalogue.entities:
        columns = (*staged_columns(entity), ("_batch_id", "varchar(160)"))
        yield from _table(tx, present, f"{schemas.staging}.{entity.name}", columns, spread_by=entity.primary_key[0])
    for layout in layouts:
        yield from _target(tx, present, layout)


def _target(tx: Transaction, present: Tables, layout: Layout) -> Iterator[str]:
    spread_by = layout.entity.primary_key[0]
    changes = list(_table(tx, present, layout.rows, layout.row_columns, spread_by=spread_by))
    yield from changes
    yield from _table(tx, present, layout.past, layout.row_columns, spread_by=spread_by)
    yield from _table(tx, present, layout.moves, layout.move_columns)
    # Redshift lists no columns of a late-binding view: nothing known is taken as unchanged.
    if changes or layout.view not in present or list(present[layout.view] or layout.columns) != layout.columns:
        select = f"SELECT {listed(layout.columns)} FROM {layout.rows} WHERE NOT _is_deleted"
        yield tx.dialect.create_view(layout.view, select)


def _table(tx: Transaction, present: Tables, table: str, columns: Columns, *, spread_by: str = "") -> Iterator[str]:
    if table not in present:
        yield tx.dialect.create_table(table, columns, spread_by=spread_by)
        return
    for name, declared in columns:
        if name not in present[table]:
            yield f"ALTER TABLE {table} ADD COLUMN {name} {tx.dialect.column_type(declared)}"


def _present(tx: Transaction, schemas: Schemas) -> Tables:
    names = (schemas.staging, schemas.curated, schemas.ops)
    tables = tx.rows(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN (?, ?, ?)", names
    )
    found: dict[str, dict[str, str]] = {f"{schema}.{table}": {} for schema, table in tables}
    query = (
        "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns "
        "WHERE table_schema IN (?, ?, ?) ORDER BY table_schema, table_name, ordinal_position"
    )
    for schema, table, column, kind in tx.rows(query, names):
        found.setdefault(f"{schema}.{table}", {})[column] = kind
    return found
