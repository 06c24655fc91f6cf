"""One line under test: the sealed history, loaded stage by stage into schemas of its own; and its outcome."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from kds_cdc_dagster.journal import outbox
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.load.export import current_export
from kds_cdc_dagster.load.layout import Layout, Schemas
from kds_cdc_dagster.load.loader import Loader
from kds_cdc_dagster.ports import ObjectStore, Warehouse
from kds_cdc_dagster_tests.gate.history import history, seal
from kds_cdc_dagster_tests.load.source import CATALOGUE, SourceTable

STAGES = ("raw", "staging", "curated", "export")
Outcome = dict[str, Any]


@dataclass
class Line:
    """`warehouse` makes an adapter, as another process has one."""

    warehouse: Callable[[], Warehouse]
    store: ObjectStore
    schemas: Schemas

    def __post_init__(self) -> None:
        self.table: SourceTable = history()
        self.batches: list[Manifest] = seal(self.store, self.table)
        self._loader = self.loader()
        self._loader.ensure()

    def loader(self, warehouse: Warehouse | None = None, store: ObjectStore | None = None) -> Loader:
        """Another process's loader, or one on these adapters."""
        return Loader(warehouse or self.warehouse(), store or self.store, CATALOGUE, self.schemas)

    def run(self, stage: str, batch: Manifest, loader: Loader | None = None) -> None:
        """One stage of one batch; an export takes in what is merged."""
        loader = loader or self._loader
        match stage:
            case "raw":
                loader.raw("dish", batch)
            case "staging":
                loader.stage("dish", batch)
            case "curated":
                loader.merge("dish", batch)
            case _:
                loader.export("dish")

    def outcome(self) -> Outcome:
        """Everything that must not depend on what happened on the way."""
        warehouse, s = self.warehouse(), self.schemas
        layout = Layout.of(CATALOGUE, "dish", s)
        columns = ", ".join([*layout.columns, "_row_order", "_deleted_order", "_is_deleted", "_tenant"])
        queries = {
            "staged": f"SELECT entity, batch_id, checksum, rows_staged FROM {s.op('staged')}",
            "staging": f"SELECT _batch_id, _identity, _op, _row_order FROM {s.staging}.dish",
            "curated": f"SELECT {columns} FROM {layout.rows}",
            "ledger": f"SELECT target, batch_id, checksum FROM {s.op('load_ledger')}",
        }
        found = {
            name: sorted(warehouse.run(lambda tx, q=query: tx.rows(q)), key=repr) for name, query in queries.items()
        }
        view = warehouse.run(lambda tx: tx.rows(f"SELECT {', '.join(layout.columns)} FROM {layout.view}"))
        return {
            **found,
            "raw": [(info.key, info.size_bytes) for info in self.store.scan("raw/")],
            "done": [outbox.is_done(self.store, batch.batch) for batch in self.batches],
            "export": self._exported(),
            "consumers see the source's rows": _by_key(view)
            == {key: {"dish_id": key, **row} for key, row in self.table.rows.items()},
        }

    def _exported(self) -> dict[str, list[Any]]:
        """Rows that consumers of the export read, by tenant."""
        current = current_export(self.store, "dish")
        assert current is not None
        return {
            tenant: sorted((row for file in files for row in _rows(self.store.get(file.key))), key=repr)
            for tenant, files in sorted(current.files.items())
        }


def _rows(body: bytes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(body)).to_pylist()
    return rows


def _by_key(rows: list[tuple[Any, ...]]) -> dict[int, dict[str, Any]]:
    names = [column.name for column in CATALOGUE.entity_by_name["dish"].columns]
    return {row[0]: dict(zip(names, row, strict=True)) for row in rows}
