"""The DuckDB file between transactions: one process at a time has it open, and gives it up when asked or idle.

Opening and closing (which writes a checkpoint) cost more than a small transaction: of a batch of 10,000 changes
more than a third. So the file stays open for `LINGER_SECONDS` after a transaction, unless somebody waits for it:
who waits holds a shared lock on `<file>.waiting`, who has the file open an exclusive one on `<file>.lock`. The
operating system gives both back when a process dies.
"""

from __future__ import annotations

import fcntl
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import duckdb

from kds_cdc_dagster.errors import WarehouseBusy

LINGER_SECONDS = 1.0
"""Longer than the work between two transactions of a batch, shorter than a person's patience with a lock."""
ROW_GROUP_ROWS = 61_440
"""Half of DuckDB's own size. A checkpoint writes a table's last row group anew, and a merge reads all of it to find a
few keys: with the usual size a load took a quarter longer by the time that tables had filled their first one."""
_NAME = "kds_warehouse"
"""Of the file while it is open; nothing in it is stored under this name."""
_POLL_SECONDS = 0.01
_WATCH_SECONDS = 0.05
"""How often an idle holder looks whether somebody waits."""


class DuckdbFile:
    """One database file; threads of this process take turns."""

    def __init__(self, path: Path, config: dict[str, Any], *, wait_seconds: float) -> None:
        self._path = path
        self._config = {**config, "temp_directory": f"{path}.tmp"}
        self._wait_seconds = wait_seconds
        self._turn = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._gate: IO[str] | None = None
        self._used_at = 0.0
        path.parent.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def opened(self, lock: str) -> Iterator[duckdb.DuckDBPyConnection]:
        """The open file, for one transaction. Raises WarehouseBusy. After an error it is closed: that rolls back."""
        until = time.monotonic() + self._wait_seconds
        if not self._turn.acquire(timeout=self._wait_seconds):
            raise WarehouseBusy("the DuckDB file stays in use in this process", lock=lock)
        try:
            connection = self._connection or self._open(until, lock)
            try:
                yield connection
            except BaseException:
                self._give_up()
                raise
            self._used_at = time.monotonic()
            if self._is_awaited():
                self._give_up()
                time.sleep(2 * _POLL_SECONDS)  # who waits looks that often: our next transaction comes after his
        finally:
            self._turn.release()

    def close(self) -> None:
        """Give the file up, if it is open and idle."""
        with self._turn:
            self._give_up()

    def _open(self, until: float, lock: str) -> duckdb.DuckDBPyConnection:
        with self._side_file("waiting") as waiting:
            fcntl.flock(waiting, fcntl.LOCK_SH)
            gate = self._side_file("lock")
            try:
                _acquire(gate, until, lock)
                connection = self._connected(until, lock)
            except BaseException:
                gate.close()
                raise
        self._connection, self._gate = connection, gate
        # No daemon: Python would end it in the middle of a checkpoint.
        threading.Thread(target=self._watch, args=(connection,), name="duckdb-file").start()
        connection.execute("SET enable_progress_bar = false")  # it would draw into a run's log
        return connection

    def _connected(self, until: float, lock: str) -> duckdb.DuckDBPyConnection:
        """A reader outside this package (the DuckDB shell, a notebook) may have the file open."""
        while True:
            try:
                return self._attached()
            except duckdb.IOException as error:
                if "lock" not in str(error) or time.monotonic() >= until:
                    raise WarehouseBusy(
                        "the DuckDB file cannot be opened", lock=lock, cause=first_line(error)
                    ) from error
            time.sleep(_POLL_SECONDS)

    def _attached(self) -> duckdb.DuckDBPyConnection:
        """Only who attaches a file may name the size of its row groups."""
        connection = duckdb.connect(config=self._config)
        try:
            path = str(self._path).replace("'", "''")
            connection.execute(f"ATTACH '{path}' AS {_NAME} (ROW_GROUP_SIZE {ROW_GROUP_ROWS})")
            connection.execute(f"USE {_NAME}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_awaited(self) -> bool:
        try:
            with self._side_file("waiting") as waiting:
                fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:  # the folder is gone: nobody waits, and there is nothing to keep open
            return True
        return False

    def _watch(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Give the file up once it is idle, awaited, or the process ends."""
        while self._connection is connection:
            time.sleep(_WATCH_SECONDS)
            if not self._turn.acquire(blocking=False):
                continue
            try:
                is_idle = time.monotonic() - self._used_at >= LINGER_SECONDS
                if self._connection is connection and (is_idle or self._is_awaited() or _is_ending()):
                    self._give_up()
            finally:
                self._turn.release()

    def _give_up(self) -> None:
        connection, gate = self._connection, self._gate
        self._connection = self._gate = None
        if connection is not None:
            connection.close()
        if gate is not None:
            gate.close()

    def _side_file(self, name: str) -> IO[str]:
        return self._path.with_name(f"{self._path.name}.{name}").open("w")


def _is_ending() -> bool:
    return not threading.main_thread().is_alive()


def _acquire(gate: IO[str], until: float, lock: str) -> None:
    while True:
        try:
            fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise WarehouseBusy("the DuckDB file stays locked", lock=lock) from None
            time.sleep(_POLL_SECONDS)
        else:
            return


def first_line(error: Exception) -> str:
    """The message's kind and first line; quoted values, which may be row data, are cut out."""
    return re.sub(r"""(['"]).*?\1""", "…", str(error).partition("\n")[0])
