"""The SQLite file of the local queue: its tables, its transactions, and the steps that keep groups right.

A row of `groups` exists while the group has messages: `head` is its oldest one, `until` is 0 if it is free
and otherwise when its last in-flight message becomes visible. Both are indexed, so that finding work costs the
same however many groups are locked and however long the backlog is.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kds_cdc_dagster.adapters.local_queue import Receipt, sequence_number
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.core.fifo import BODY_BYTES_MAX
from kds_cdc_dagster.errors import TransientError

RECEIVE_BYTES_MAX = 10 * BODY_BYTES_MAX
"""A receive that has so much takes no more: as much as SQS can give at once."""

_BUSY_SECONDS = 30.0
"""How long a transaction waits for other processes' ones, which take milliseconds each."""

_CHECKPOINT_PAGES = 10_000
"""Of four kilobytes. A checkpoint waits for the disk: at SQLite's own 1,000 a drain's commits take a quarter longer."""

_CACHE_KILOBYTES = 16_000
"""The pages of one round's messages: SQLite's own 2,000 make it read and write them twice."""

_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS queue (name TEXT NOT NULL, last_seq INTEGER NOT NULL, live INTEGER NOT NULL);
INSERT INTO queue SELECT '{name}', 0, 0 WHERE NOT EXISTS (SELECT 1 FROM queue);
CREATE TABLE IF NOT EXISTS groups (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, head INTEGER NOT NULL, until REAL NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS groups_free ON groups (head) WHERE until = 0;
CREATE INDEX IF NOT EXISTS groups_locked ON groups (until) WHERE until > 0;
CREATE TABLE IF NOT EXISTS messages (
  seq INTEGER PRIMARY KEY, group_id INTEGER NOT NULL, message_id TEXT NOT NULL, dedup_id TEXT NOT NULL,
  sent_at_ms INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS messages_group ON messages (group_id);
CREATE TABLE IF NOT EXISTS flights (
  seq INTEGER PRIMARY KEY, group_id INTEGER NOT NULL, receive_count INTEGER NOT NULL,
  received_at REAL NOT NULL, until REAL NOT NULL);
CREATE INDEX IF NOT EXISTS flights_group ON flights (group_id, until);
CREATE INDEX IF NOT EXISTS flights_until ON flights (until);
CREATE TABLE IF NOT EXISTS dedup (dedup_id TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS dedup_at ON dedup (at);
CREATE TABLE IF NOT EXISTS dead (
  seq INTEGER PRIMARY KEY, group_name TEXT NOT NULL, message_id TEXT NOT NULL, dedup_id TEXT NOT NULL,
  sent_at_ms INTEGER NOT NULL, receive_count INTEGER NOT NULL, died_at REAL NOT NULL, body BLOB NOT NULL);
COMMIT;
"""
"""`flights` has a row for every message that was received at least once and still lives; a message is in flight
while its `until` lies ahead."""

IN = "IN (SELECT value FROM json_each(?))"


class Head(NamedTuple):
    """A message that may be handed out."""

    seq: int
    group_id: int
    group: str
    message_id: str
    sent_at_ms: int
    body: bytes
    receive_count: int
    """Receives so far."""

    def delivery(self, queue: str) -> Delivery:
        """Handed out once more, by the queue of this name."""
        count = self.receive_count + 1
        receipt = str(Receipt(queue, self.seq, count))
        number = sequence_number(self.seq)
        return Delivery(self.body, self.group, number, self.message_id, receipt, count, self.sent_at_ms)


class Sent(NamedTuple):
    """A message on its way into the file."""

    group: str
    message_id: str
    """Empty: a new one."""
    dedup_id: str
    sent_at_ms: int
    body: bytes


class QueueFile:
    """One connection to the file, opened on first use and again after `close`; shared by threads, one turn each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mutex = threading.RLock()
        self._open: sqlite3.Connection | None = None
        self._name = ""

    @property
    def name(self) -> str:
        """Name of this file's queue, part of its receipts: those of a deleted file mean nothing in a new one."""
        with self._mutex:
            self._connection()
            return self._name

    @contextmanager
    def turn(self, *, is_write: bool = True, is_synced: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or, after an error, nothing. Raises TransientError if the file is busy or full.

        `is_synced`: it is on the disk, and all before it, when the turn ends.
        """
        with self._mutex, self._translated():
            db = self._connection()
            if is_synced:
                db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE" if is_write else "BEGIN")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise
            finally:
                if is_synced:
                    db.execute("PRAGMA synchronous = NORMAL")

    def close(self) -> None:
        """Give the connection back."""
        with self._mutex:
            if self._open is not None:
                self._open.close()
            self._open = None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise TransientError("the local queue's file failed", path=self._path, cause=error) from error

    def _connection(self) -> sqlite3.Connection:
        if self._open is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            _use_wal(db)
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            db.execute(f"PRAGMA cache_size = -{_CACHE_KILOBYTES}")
            db.execute("PRAGMA secure_delete = OFF")  # some builds write zeros over what is deleted: pages for nothing
            db.executescript(_SCHEMA.format(name=secrets.token_hex(4)))
            (self._name,) = db.execute("SELECT name FROM queue").fetchone()
            self._open = db
        return self._open


def _use_wal(db: sqlite3.Connection) -> None:
    """Changing the mode does not wait for other processes that open the new file at the same moment: so we do."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def json_list(values: Iterable[object]) -> str:
    """Values as the argument of `IN`."""
    return json.dumps(list(values))


def has_ready(db: sqlite3.Connection, now: float) -> bool:
    """Whether some group is free at `now`."""
    free, expired = "SELECT 1 FROM groups WHERE until = 0", "SELECT 1 FROM groups WHERE until > 0 AND until <= ?"
    (found,) = db.execute(f"SELECT EXISTS ({free}) OR EXISTS ({expired})", (now,)).fetchone()
    return bool(found)


def heads(db: sqlite3.Connection, room: int) -> list[Head]:
    """Up to `room` messages of free groups, oldest head first; each group gives what it has before the next."""
    found: list[Head] = []
    left_bytes = RECEIVE_BYTES_MAX
    for group in db.execute("SELECT id, name FROM groups WHERE until = 0 ORDER BY head LIMIT ?", (room,)).fetchall():
        rows = db.execute(
            "SELECT seq, m.group_id, ?, message_id, sent_at_ms, body, coalesce(receive_count, 0)"
            " FROM messages m LEFT JOIN flights USING (seq) WHERE m.group_id = ? ORDER BY seq LIMIT ?",
            (group[1], group[0], room - len(found)),
        )
        for head in map(Head._make, rows):
            found.append(head)
            left_bytes -= len(head.body)
            if len(found) >= room or left_bytes <= 0:
                return found
    return found


def append(db: sqlite3.Connection, messages: Sequence[Sent]) -> None:
    """Write messages behind all others, with sequence numbers that were never used."""
    count = len(messages)
    queue = db.execute(
        "UPDATE queue SET last_seq = last_seq + ?, live = live + ? RETURNING name, last_seq", (count,) * 2
    )
    name, last = queue.fetchone()
    numbered = list(enumerate(messages, last - count + 1))
    first = {m.group: seq for seq, m in reversed(numbered)}
    db.executemany("INSERT INTO groups (name, head) VALUES (?, ?) ON CONFLICT DO NOTHING", first.items())
    known = db.execute(f"SELECT name, id FROM groups WHERE name {IN}", (json_list(first),))
    ids = dict(known.fetchall())
    db.executemany(
        "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)",
        [(seq, ids[m.group], m.message_id or f"{name}-{seq}", *m[2:]) for seq, m in numbered],
    )


def remove(db: sqlite3.Connection, seqs: Sequence[int], groups: Iterable[int]) -> None:
    """Delete messages of `groups` and free what they locked."""
    for table in ("messages", "flights"):
        db.execute(f"DELETE FROM {table} WHERE seq {IN}", (json_list(seqs),))
    db.execute("UPDATE queue SET live = live - ?", (len(seqs),))
    refresh(db, groups)


def refresh(db: sqlite3.Connection, groups: Iterable[int]) -> None:
    """Make head and lock of `groups` true again; a group without messages goes."""
    ids = json_list(groups)
    db.execute(
        "UPDATE groups SET head = coalesce((SELECT min(seq) FROM messages WHERE group_id = id), 0),"
        f" until = coalesce((SELECT max(until) FROM flights WHERE group_id = id), 0) WHERE id {IN}",
        (ids,),
    )
    db.execute(f"DELETE FROM groups WHERE id {IN} AND head = 0", (ids,))
