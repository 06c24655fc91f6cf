"""DuckDB as the warehouse: a file that one process at a time opens (`duckdb_file`).

Callers wait for each other, so that status, sensors and runs work side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from kds_cdc_dagster.adapters.duckdb_file import DuckdbFile, first_line
from kds_cdc_dagster.errors import InvariantBroken, LoadRefused
from kds_cdc_dagster.journal.keys import part
from kds_cdc_dagster.ports import ExportFile, LoadArtifact, ObjectStore, Transaction, Warehouse

T = TypeVar("T")

_TYPES = {"uuid": "VARCHAR", "text": "VARCHAR", "binary": "BLOB"}
_LANDING = {"time": "VARCHAR", "binary": "VARCHAR", "json": "VARCHAR", "timestamptz": "TIMESTAMP"}


_PARSED_MAX = 400
"""Statements kept: those of some twenty targets, at about 10 KiB each."""


class DuckdbDialect:
    """DuckDB's words."""

    def column_type(self, declared: str) -> str:
        """VARCHAR counts nothing here: widths are checked when changes are typed."""
        return "VARCHAR" if declared.startswith("varchar") else _TYPES.get(declared, declared.upper())

    def landing_type(self, declared: str) -> str:
        """See the port."""
        return _LANDING.get(declared) or self.column_type(declared)

    def landed(self, column: str, declared: str) -> str:
        """See the port. The session's time zone is UTC, so a cast makes an instant of a UTC timestamp."""
        if declared == "binary":
            return f"unhex({column})"
        return f"CAST({column} AS {self.column_type(declared)})" if declared in _LANDING else column

    def bytes_max(self, declared: str) -> int | None:
        """See the port: no limit of its own."""
        del declared
        return None

    def widened(self, table: str, column: str, declared: str) -> str | None:
        """See the port."""
        return f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {self.column_type(declared)}"

    def create_table(self, table: str, columns: Sequence[tuple[str, str]], *, spread_by: str = "") -> str:
        """No keys: duplicates must be impossible by construction, as on Redshift."""
        del spread_by
        listed = ", ".join(f"{name} {self.column_type(declared)}" for name, declared in columns)
        return f"CREATE TABLE IF NOT EXISTS {table} ({listed})"

    def create_view(self, view: str, select: str) -> str:
        """See the port."""
        return f"CREATE OR REPLACE VIEW {view} AS {select}"


class _Parsed:
    """Parsed statements by their text: parsing is a fifth of a small statement, and merges repeat their texts."""

    def __init__(self) -> None:
        self._statements: dict[str, duckdb.Statement] = {}

    def of(self, sql: str, connection: duckdb.DuckDBPyConnection) -> duckdb.Statement:
        """The one statement of the text. The least lately used goes when there are too many."""
        found = self._statements.pop(sql, None)
        if found is None:
            (found,) = connection.extract_statements(sql)
            if len(self._statements) >= _PARSED_MAX:
                del self._statements[next(iter(self._statements))]
        self._statements[sql] = found
        return found


class _Transaction:
    def __init__(
        self, connection: duckdb.DuckDBPyConnection, store: ObjectStore, threads: int, parsed: _Parsed
    ) -> None:
        self.dialect = DuckdbDialect()
        self._parsed = parsed
        self._connection = connection
        self._store = store
        self._threads = threads

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> None:
        self._connection.execute(self._parsed.of(sql, self._connection), list(parameters))

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return list(self._connection.execute(self._parsed.of(sql, self._connection), list(parameters)).fetchall())

    def copy(self, table: str, artifact: LoadArtifact) -> None:
        self._connection.register("kds_artifact", self._rows(artifact))
        try:
            self._connection.execute(f"INSERT INTO {table} SELECT * FROM kds_artifact")
        finally:
            self._connection.unregister("kds_artifact")

    def land(self, name: str, columns: Sequence[tuple[str, str]], artifact: LoadArtifact) -> None:
        """A view of the rows in memory: a temp table of them would be written only to be read once."""
        rows = self._rows(artifact)
        if rows.schema.names != [column for column, _ in columns]:
            raise LoadRefused("the artifact has other columns than the table", key=artifact.key, table=name)
        if rows.num_rows != artifact.rows:
            raise InvariantBroken(
                "the artifact holds another number of rows than it says",
                key=artifact.key,
                rows=artifact.rows,
                loaded=rows.num_rows,
            )
        self._connection.register(name, rows)

    def unland(self, name: str) -> None:
        self._connection.unregister(name)

    def _rows(self, artifact: LoadArtifact) -> pa.Table:
        return pq.read_table(pa.BufferReader(self._store.get(artifact.key))) if artifact.held is None else artifact.held

    def unload(self, select: str, prefix: str, *, partition: str) -> list[ExportFile]:
        values = self.rows(f"SELECT DISTINCT coalesce({partition}, '') FROM ({select}) ORDER BY 1")
        room = BoundedSemaphore(self._threads)
        files: list[Future[ExportFile]] = []
        with ThreadPoolExecutor(self._threads) as pool:
            for (value,) in values:
                # Taken before the query: at most `threads` partitions are in memory at once.
                room.acquire()
                rows = self._partition(select, partition, value)
                future = pool.submit(self._put, rows, f"{prefix}{partition}={part(value)}/part-0.parquet", value)
                future.add_done_callback(lambda _: room.release())
                files.append(future)
        return [future.result() for future in files]

    def _partition(self, select: str, column: str, value: str) -> pa.Table:
        query = f"SELECT * EXCLUDE ({column}) FROM ({select}) WHERE coalesce({column}, '') = ?"
        return self._connection.sql(query, params=[value]).to_arrow_table()

    def _put(self, rows: pa.Table, key: str, value: str) -> ExportFile:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        body = sink.getvalue().to_pybytes()
        self._store.create(key, body)
        return ExportFile(value, key, rows.num_rows, len(body))


class DuckdbWarehouse:
    """A DuckDB file, or another one for isolated tests. Artifacts come from `store`."""

    def __init__(
        self,
        path: Path,
        store: ObjectStore,
        *,
        threads: int = 2,
        memory_limit: str = "1GB",
        wait_seconds: float = 120.0,
    ) -> None:
        self.dialect = DuckdbDialect()
        self._store = store
        self._threads = threads
        self._parsed = _Parsed()
        config = {
            "threads": threads,
            "memory_limit": memory_limit,
            "TimeZone": "UTC",
            "preserve_insertion_order": False,
            # A checkpoint rewrites the last row group of every table: not once or twice in each batch.
            "checkpoint_threshold": "96MB",
            # No network: everything this package needs is built in.
            "autoinstall_known_extensions": False,
        }
        self._file = DuckdbFile(path, config, wait_seconds=wait_seconds)

    def run(self, body: Callable[[Transaction], T], *, lock: str = "") -> T:
        """See the port. The file is the lock: all transactions exclude each other."""
        with self._file.opened(lock) as connection:
            connection.execute("BEGIN")
            try:
                answer = body(_Transaction(connection, self._store, self._threads, self._parsed))
                connection.execute("COMMIT")
            except (
                duckdb.DataError,
                duckdb.IntegrityError,
                duckdb.ProgrammingError,
                duckdb.NotSupportedError,
            ) as error:
                raise LoadRefused("DuckDB refused a statement", lock=lock, cause=first_line(error)) from error
            return answer

    def alter(self, statement: str) -> None:
        """See the port."""
        self.run(lambda tx: tx.execute(statement))

    def close(self) -> None:
        """Give the file up at once; otherwise that happens a moment after the last transaction."""
        self._file.close()


_: type[Warehouse] = DuckdbWarehouse
