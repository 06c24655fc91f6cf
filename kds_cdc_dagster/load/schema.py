"""Create schemas, tables and views from the catalogue, add columns that it gained, widen those that it widened.

Runs before a load, never inside its transaction: on Redshift DDL and DML of one table conflict.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.errors import LoadRefused
from kds_cdc_dagster.load.layout import OPS, Columns, Layout, Schemas, listed, staged_columns
from kds_cdc_dagster.load.present import Tables, is_fit, is_wider, present_tables, type_of
from kds_cdc_dagster.ports import Dialect, Transaction, Warehouse


def ensure_schema(warehouse: Warehouse, catalogue: Catalogue, schemas: Schemas) -> int:
    """Make the warehouse fit the catalogue; returns how many statements that took (0: it did).

    Only ever adds and widens. A column that this warehouse cannot widen, or whose declared type became another
    one, keeps its type (`load.narrowed`, `kds-cdc doctor`).
    """
    layouts = [Layout.of(catalogue, target.name, schemas) for target in catalogue.targets]

    def body(tx: Transaction) -> tuple[int, list[str]]:
        present = present_tables(tx, schemas)
        statements = list(_statements(tx, present, catalogue, layouts, schemas))
        for statement in statements:
            tx.execute(statement)
        return len(statements), list(_widenings(tx.dialect, present, wanted_columns(catalogue, schemas)))

    made, widenings = warehouse.run(body, lock="schema")
    for statement in widenings:
        # Refused: a column of a distribution or sort key, or another process was first.
        with suppress(LoadRefused):
            warehouse.alter(statement)  # Redshift: not inside a transaction block
            made += 1
    return made


def wanted_columns(catalogue: Catalogue, schemas: Schemas) -> dict[str, Columns]:
    """Qualified table -> columns, for every table that the catalogue asks for."""
    wanted = {schemas.op(name): columns for name, columns in OPS.items()}
    for entity in catalogue.entities:
        wanted[f"{schemas.staging}.{entity.name}"] = (*staged_columns(entity), ("_batch_id", "varchar(160)"))
    for target in catalogue.targets:
        layout = Layout.of(catalogue, target.name, schemas)
        wanted |= {layout.rows: layout.row_columns, layout.past: layout.row_columns, layout.moves: layout.move_columns}
    return wanted


def _widenings(dialect: Dialect, present: Tables, wanted: dict[str, Columns]) -> Iterator[str]:
    """ALTER statements for columns that the catalogue has widened since they were made."""
    for table, columns in wanted.items():
        for name, declared in columns:
            found, new = present.get(table, {}).get(name), type_of(dialect.column_type(declared))
            if found is not None and not is_fit(found, new) and is_wider(new, found):
                statement = dialect.widened(table, name, declared)
                if statement:
                    yield statement


def _statements(
    tx: Transaction, present: Tables, catalogue: Catalogue, layouts: list[Layout], schemas: Schemas
) -> Iterator[str]:
    for schema in (schemas.staging, schemas.curated, schemas.ops):
        if not any(table.startswith(f"{schema}.") for table in present):
            yield f"CREATE SCHEMA IF NOT EXISTS {schema}"
    spread = {f"{schemas.staging}.{entity.name}": entity.primary_key[0] for entity in catalogue.entities}
    for layout in layouts:
        spread |= dict.fromkeys((layout.rows, layout.past), layout.entity.primary_key[0])
    is_changed = set()
    for table, columns in wanted_columns(catalogue, schemas).items():
        for statement in _table(tx, present, table, columns, spread_by=spread.get(table, "")):
            is_changed.add(table)
            yield statement
    for layout in layouts:
        # Redshift lists no columns of a late-binding view: nothing known is taken as unchanged.
        is_same = list(present.get(layout.view) or layout.columns) == layout.columns
        if layout.rows in is_changed or layout.view not in present or not is_same:
            select = f"SELECT {listed(layout.columns)} FROM {layout.rows} WHERE NOT _is_deleted"
            yield tx.dialect.create_view(layout.view, select)


def _table(tx: Transaction, present: Tables, table: str, columns: Columns, *, spread_by: str = "") -> Iterator[str]:
    if table not in present:
        yield tx.dialect.create_table(table, columns, spread_by=spread_by)
        return
    for name, declared in columns:
        if name not in present[table]:
            yield f"ALTER TABLE {table} ADD COLUMN {name} {tx.dialect.column_type(declared)}"
