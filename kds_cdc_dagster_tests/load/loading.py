"""Loading made-up changes into a warehouse, batch by batch, and reading the outcome back."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from kds_cdc_dagster.adapters.duckdb_warehouse import DuckdbWarehouse
from kds_cdc_dagster.adapters.object_store import open_memory
from kds_cdc_dagster.load.layout import Layout, Schemas
from kds_cdc_dagster.load.merge import MergeReport, merge
from kds_cdc_dagster.load.schema import ensure_schema
from kds_cdc_dagster.load.staging import Staged, Stager
from kds_cdc_dagster.load.typed import Typed
from kds_cdc_dagster.ports import ObjectStore, Warehouse
from kds_cdc_dagster_tests.load.source import CATALOGUE, DISH, Emitted, typed_table

SCHEMAS = Schemas()
LAYOUT = Layout.of(CATALOGUE, "dish", SCHEMAS)


class Loading:
    """A warehouse with the dish target, loaded step by step."""

    def __init__(self, warehouse: Warehouse, store: ObjectStore, layout: Layout = LAYOUT) -> None:
        self.warehouse = warehouse
        self.store = store
        self.layout = layout
        self._stager = Stager(warehouse, store, CATALOGUE, layout.schemas)
        ensure_schema(warehouse, CATALOGUE, layout.schemas)

    @classmethod
    @contextmanager
    def on_duckdb(cls) -> Iterator[Loading]:
        """On a new DuckDB file."""
        store = open_memory("kds")
        with tempfile.TemporaryDirectory() as folder:
            warehouse = DuckdbWarehouse(Path(folder) / "warehouse.duckdb", store, threads=1)
            yield cls(warehouse, store)
            warehouse.close()

    def stage(self, batch: str, changes: list[Emitted]) -> Staged:
        """Stage changes as one batch."""
        return self._stager.stage_typed(DISH, batch, pa.table({}), Typed(typed_table(changes)))

    def merge(self, batch: str, *, code_version: str = "1") -> MergeReport:
        """Merge a staged batch."""
        return merge(self.warehouse, self.layout, batch, code_version=code_version)

    def load(self, batch: str, changes: list[Emitted]) -> MergeReport:
        """Stage and merge."""
        self.stage(batch, changes)
        return self.merge(batch)

    def run_out(self, batches: list[list[Emitted]]) -> None:
        """Load batches one after the other."""
        for number, changes in enumerate(batches):
            self.load(f"batch-{number}", changes)

    def view(self) -> dict[int, dict[str, Any]]:
        """What consumers see, by key. Fails if a key stands twice."""
        found = self.rows(f"SELECT dish_id, account_id, title, recipe, photo FROM {self.layout.view}")
        keys = [row[0] for row in found]
        assert len(keys) == len(set(keys)), f"keys twice: {sorted(keys)}"
        return {row[0]: dict(zip(("account_id", "title", "recipe", "photo"), row[1:], strict=True)) for row in found}

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query."""
        return self.warehouse.run(lambda tx: tx.rows(sql))

    def execute(self, sql: str) -> None:
        """Run a statement."""
        self.warehouse.run(lambda tx: tx.execute(sql))
