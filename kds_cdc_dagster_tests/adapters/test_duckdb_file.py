"""The DuckDB file between transactions."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kds_cdc_dagster.adapters import duckdb_file
from kds_cdc_dagster.adapters.duckdb_file import DuckdbFile

CONFIG: dict[str, Any] = {"threads": 1}
OTHER = "import sys, duckdb; duckdb.connect(sys.argv[1]).execute('SELECT 1'); print('read')"


def opened_elsewhere(path: Path) -> bool:
    """Whether another process can open the file now."""
    found = subprocess.run([sys.executable, "-c", OTHER, str(path)], capture_output=True, check=False)
    return found.stdout == b"read\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a database will be."""
    return tmp_path / "warehouse.duckdb"


def test_stays_open_between_transactions_then_lets_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions that follow each other share one connection; an idle file is free for everybody."""
    monkeypatch.setattr(duckdb_file, "LINGER_SECONDS", 0.3)
    file = DuckdbFile(path, CONFIG, wait_seconds=5.0)
    with file.opened("a") as first:
        first.execute("CREATE TABLE t AS SELECT 1 AS n")
    with file.opened("b") as second:
        assert second is first
    deadline = time.monotonic() + 20
    while not opened_elsewhere(path):
        assert time.monotonic() < deadline


def test_who_waits_gets_it_between_two_transactions(path: Path) -> None:
    """A busy loader does not keep others out, although it never pauses."""
    busy, other = DuckdbFile(path, CONFIG, wait_seconds=20.0), DuckdbFile(path, CONFIG, wait_seconds=20.0)
    turns: list[str] = []

    def look() -> None:
        with other.opened("status"):
            turns.append("other")
        other.close()

    with busy.opened("load"):
        waiting = threading.Thread(target=look)
        waiting.start()
        time.sleep(0.1)
    deadline = time.monotonic() + 20
    while "other" not in turns and time.monotonic() < deadline:
        with busy.opened("load"):
            turns.append("busy")
    waiting.join()
    busy.close()
    assert turns.index("other") <= 2


def test_an_error_rolls_back(path: Path) -> None:
    """What a failed transaction did is gone, also for the next transaction of the same process."""
    file = DuckdbFile(path, CONFIG, wait_seconds=5.0)

    def failing() -> None:
        with file.opened("a") as connection:
            connection.execute("BEGIN; CREATE TABLE t AS SELECT 1 AS n")
            connection.execute("SELECT * FROM missing")

    with pytest.raises(duckdb.CatalogException):
        failing()
    with file.opened("b") as connection:
        assert connection.execute("SHOW TABLES").fetchall() == []
    file.close()


def test_a_process_that_ends_does_not_wait(path: Path) -> None:
    """Without a close, the end of the process takes no second, and the file is whole."""
    code = (
        "import sys; from pathlib import Path\n"
        "from kds_cdc_dagster.adapters.duckdb_file import DuckdbFile\n"
        "with DuckdbFile(Path(sys.argv[1]), {}, wait_seconds=5.0).opened('a') as c:\n"
        "    c.execute('CREATE TABLE t AS SELECT 7 AS n')\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 0
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("SELECT n FROM t").fetchall() == [(7,)]


@pytest.mark.parametrize("name", ["warehouse.duckdb", "a b's.v2.duckdb", "memory.duckdb"])
def test_a_file_of_any_name_and_row_group_size_is_read_and_filled(tmp_path: Path, name: str) -> None:
    """Tables that a plain connection made go on with smaller row groups, and a plain connection reads all of it."""
    path, rows = tmp_path / name, duckdb_file.ROW_GROUP_ROWS
    with duckdb.connect(str(path)) as plain:
        plain.execute(f"CREATE TABLE t AS SELECT n FROM range({2 * rows}) r(n)")
    file = DuckdbFile(path, CONFIG, wait_seconds=5.0)
    with file.opened("a") as ours:
        ours.execute(f"INSERT INTO t SELECT n FROM range({2 * rows}, {4 * rows}) r(n)")
        ours.execute("DELETE FROM t WHERE n % 2 = 0")
        ours.execute("CREATE SCHEMA s")
        ours.execute("CREATE VIEW s.v AS SELECT * FROM main.t")
    file.close()
    with duckdb.connect(str(path)) as plain:
        assert plain.execute("SELECT COUNT(*), SUM(n) FROM s.v").fetchall() == [(2 * rows, 4 * rows**2)]
        groups = "SELECT row_group_id, MAX(start + count) FROM pragma_storage_info('t') GROUP BY ALL"
        assert max(size for group, size in plain.execute(groups).fetchall() if group > 0) <= rows
