"""DuckDB as the warehouse: the contract, and one process at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kds_cdc_dagster.adapters.duckdb_warehouse import DuckdbWarehouse
from kds_cdc_dagster.adapters.object_store import open_memory
from kds_cdc_dagster.errors import WarehouseBusy
from kds_cdc_dagster.ports import ObjectStore
from kds_cdc_dagster_tests.contracts.warehouse_suite import WarehouseSuite


@pytest.fixture
def store() -> ObjectStore:
    """An object store of its own."""
    return open_memory("kds")


@pytest.fixture
def warehouse(tmp_path: Path, store: ObjectStore) -> DuckdbWarehouse:
    """A new file in a new folder."""
    return DuckdbWarehouse(tmp_path / "new folder" / "warehouse.duckdb", store)


class TestDuckdb(WarehouseSuite):
    def test_json_and_bytes(self, warehouse: DuckdbWarehouse, store: ObjectStore) -> None:
        """JSON is queryable as such, and binary is the bytes that came in."""
        self.test_every_type_survives(warehouse, store, is_held=True)
        query = "SELECT tree->>'$.a[2]', octets FROM suite_types WHERE id IS NOT NULL"
        assert warehouse.run(lambda tx: tx.rows(query)) == [("x", b"\x00\xff")]


def test_busy(tmp_path: Path) -> None:
    """While another process has the file, waiting is bounded and ends in WarehouseBusy, naming the lock."""
    path = tmp_path / "warehouse.duckdb"
    code = f"import duckdb; kept = duckdb.connect({str(path)!r}); print('open', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        impatient = DuckdbWarehouse(path, open_memory("kds"), wait_seconds=0.05)
        with pytest.raises(WarehouseBusy, match="lock=merge"):
            impatient.run(lambda tx: tx.rows("SELECT 1"), lock="merge")
        other.communicate(b"\n")
    assert impatient.run(lambda tx: tx.rows("SELECT 1")) == [(1,)]


def test_waits_for_the_other(tmp_path: Path) -> None:
    """A second process' transaction waits for the first one and then sees what it wrote."""
    path = tmp_path / "warehouse.duckdb"
    code = (
        "import sys, time; from pathlib import Path\n"
        "from kds_cdc_dagster.adapters.duckdb_warehouse import DuckdbWarehouse\n"
        "def body(tx):\n"
        "    tx.execute('CREATE TABLE t (n INT)'); print('open', flush=True); time.sleep(0.3)\n"
        "    tx.execute('INSERT INTO t VALUES (1)')\n"
        f"DuckdbWarehouse(Path({str(path)!r}), None).run(body)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        found = DuckdbWarehouse(path, open_memory("kds")).run(lambda tx: tx.rows("SELECT n FROM t"))
        assert other.wait(10) == 0
    assert found == [(1,)]
