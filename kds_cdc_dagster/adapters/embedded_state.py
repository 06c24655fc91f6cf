"""State store in one SQLite file: no server, safe for several processes and threads.

Each call is one IMMEDIATE transaction that reads the rows it needs by key, runs the reference
(`core.decide`) and writes its effect: the cost does not depend on how many streams were ever seen.

A killed process loses nothing (WAL). A power cut may take back the last transactions, which
`synchronous=NORMAL` has not yet forced to disk: a file last opened under another boot of the machine
therefore counts as a lost life and is rebuilt. Where the boot cannot be told, every commit is forced.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kds_cdc_dagster.adapters.embedded_rows import (
    SCHEMA,
    Batch,
    find_stream,
    find_streams,
    prune,
    put_markers,
    put_streams,
    record_of,
)
from kds_cdc_dagster.adapters.life_ids import LEASE_SECONDS, is_leased, next_life
from kds_cdc_dagster.adapters.marker_window import MarkerWindow
from kds_cdc_dagster.adapters.stream_records import held_record, loaded_record, settled_record, unheld_record
from kds_cdc_dagster.core.decide import DecideCall, DecideReply, SettleCall
from kds_cdc_dagster.errors import StateNotReady, StateUnavailable
from kds_cdc_dagster.ports import Clock, Marker, StreamRecord
from kds_cdc_dagster.processes import is_running

_WAIT_SECONDS = 10.0
"""How long a call waits for another process's transaction; each takes milliseconds."""
_PRUNED_MAX = 20_000
"""Dead markers removed in one call at most, so that no call stalls a round (some 50 ms)."""


class EmbeddedState:
    """`StateStore` in the SQLite file `path`. `boot` names this boot of the machine (tests only)."""

    def __init__(self, path: Path, clock: Clock, window: MarkerWindow | None = None, *, boot: str = "") -> None:
        self._path = path
        self._clock = clock
        self._window = window or MarkerWindow()
        self._boot = boot or _boot_id()
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._db_pid = 0
        self._prune_at = 0.0

    def life(self) -> str | None:
        """Id of the finished life, or None: rebuild first."""
        with self._transaction() as db:
            id_, is_finished = self._life(db)
            return id_ if is_finished else None

    def begin_life(self, *, is_yielding: bool = False) -> str | None:
        """Start a rebuild under a new life id."""
        with self._transaction() as db:
            if is_yielding and self._is_taken(db):
                return None
            self._lease(db)
            latest = db.execute("SELECT id FROM life").fetchone()
            life = next_life(latest[0] if latest else "")
            db.execute("INSERT OR REPLACE INTO life VALUES (1, ?, 0, ?)", (life, self._boot))
            return life

    def load(self, life: str, streams: Sequence[StreamRecord], markers: Sequence[Marker]) -> bool:
        """Load rebuilt state into the unfinished life; never lowers anything."""
        with self._transaction() as db:
            if self._life(db) != (life, False):
                return False
            self._lease(db)
            records = find_streams(db, ((s.source, s.stream) for s in streams))
            for rebuilt in streams:
                key = (rebuilt.source, rebuilt.stream)
                records[key] = loaded_record(records.get(key) or StreamRecord(*key), rebuilt)
            put_streams(db, records.values())
            until = self._window.committed_until(self._clock.now())
            put_markers(db, ((m.source, m.stream, m.identity, m.content_hash) for m in markers), until)
            return True

    def finish_life(self, life: str) -> bool:
        """Open the rebuilt life for decisions; False when another life has begun since."""
        with self._transaction() as db:
            is_current = self._life(db)[0] == life
            if is_current:
                db.execute("UPDATE life SET is_finished = 1")
            return is_current

    def decide(self, life: str, calls: Sequence[DecideCall]) -> list[DecideReply]:
        """`core.decide.decide` for each call, all in one transaction."""
        now = self._clock.now()
        with self._transaction() as db:
            self._check(db, life)
            self._prune(db, now)
            batch = Batch(db, calls, now)
            replies = [batch.decide(call) for call in calls]
            batch.write(self._window.pending_until(now))
            return replies

    def settle(self, life: str, calls: Sequence[SettleCall]) -> None:
        """`core.decide.settled` for each call, all in one transaction."""
        until = self._window.committed_until(self._clock.now())
        with self._transaction() as db:
            self._check(db, life)
            records = find_streams(db, ((call.source, call.stream) for call in calls))
            for call in calls:
                key = (call.source, call.stream)
                records[key] = settled_record(records.get(key) or StreamRecord(*key), call)
            put_streams(db, records.values())
            put_markers(db, ((c.source, c.stream, *marker) for c in calls for marker in c.markers), until)

    def hold(self, life: str, source: str, stream: str, reason: str) -> None:
        """Hold a stream: from now on its new changes are parked."""
        with self._transaction() as db:
            self._check(db, life)
            record = find_stream(db, source, stream) or StreamRecord(source, stream)
            put_streams(db, [held_record(record, reason)])

    def unhold(self, life: str, source: str, stream: str, hold_version: int) -> bool:
        """End a hold if nothing was parked since `hold_version`; False otherwise."""
        with self._transaction() as db:
            self._check(db, life)
            record = find_stream(db, source, stream) or StreamRecord(source, stream)
            if record.hold_version != hold_version:
                return False
            if record.hold:
                put_streams(db, [unheld_record(record)])
            return True

    def stream(self, source: str, stream: str) -> StreamRecord | None:
        """One stream's record."""
        with self._transaction() as db:
            return find_stream(db, source, stream)

    def streams(self, *, held_only: bool = False) -> Iterator[StreamRecord]:
        """All streams of the pipeline, in no order."""
        with self._transaction() as db:
            rows = db.execute("SELECT * FROM stream" + (" WHERE hold <> ''" if held_only else "")).fetchall()
        return map(record_of, rows)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = None

    def _life(self, db: sqlite3.Connection) -> tuple[str, bool]:
        """(id, is finished); of a life that another boot may have cut short, nothing."""
        row = db.execute("SELECT id, is_finished, boot FROM life").fetchone()
        return (row[0], bool(row[1])) if row and row[2] == self._boot else ("", False)

    def _is_taken(self, db: sqlite3.Connection) -> bool:
        """A life is finished, or its rebuild under way: leased, and its process still runs on this machine."""
        id_, is_finished = self._life(db)
        until, process_id = db.execute("SELECT until, process_id FROM lease").fetchone() or (0.0, 0)
        return is_finished or (bool(id_) and is_leased(until, self._clock.now()) and is_running(process_id))

    def _lease(self, db: sqlite3.Connection) -> None:
        until = self._clock.now() + LEASE_SECONDS
        db.execute("INSERT OR REPLACE INTO lease VALUES (1, ?, ?)", (until, os.getpid()))

    def _check(self, db: sqlite3.Connection, life: str) -> None:
        current = self._life(db)
        if current != (life, True):
            raise StateNotReady("the state store does not carry this life", life=life, store=current)

    def _prune(self, db: sqlite3.Connection, now: float) -> None:
        if now < self._prune_at:
            return
        if prune(db, now, _PRUNED_MAX) < _PRUNED_MAX:
            self._prune_at = now + self._window.bucket_seconds

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing. Raises StateUnavailable when the file cannot be opened, locked or written."""
        with self._lock:
            try:
                db = self._opened()
                db.execute("BEGIN IMMEDIATE")
                try:
                    yield db
                    db.execute("COMMIT")
                except BaseException:
                    with suppress(sqlite3.Error):
                        db.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise StateUnavailable(
                    "the state file cannot be used",
                    path=self._path,
                    error=error,
                    hint="free the disk or its lock; a damaged file may be deleted, it is rebuilt",
                ) from error

    def _opened(self) -> sqlite3.Connection:
        """The connection of this process: one must not be carried over a fork."""
        if self._db is None or self._db_pid != os.getpid():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self._path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {'NORMAL' if self._boot else 'FULL'}")
            db.executescript(SCHEMA)
            self._db, self._db_pid = db, os.getpid()
        return self._db


def _boot_id() -> str:
    """Names this boot of the machine; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
