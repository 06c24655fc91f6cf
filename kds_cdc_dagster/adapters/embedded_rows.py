"""Rows of the embedded state store: their tables, and how one call reads and writes them in bulk."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from kds_cdc_dagster.adapters.stream_records import decided, stream_address
from kds_cdc_dagster.core.decide import DecideCall, DecideReply, Pending
from kds_cdc_dagster.ports import StreamRecord

SCHEMA = """
CREATE TABLE IF NOT EXISTS life (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT, is_finished INTEGER, boot TEXT);
CREATE TABLE IF NOT EXISTS lease (one INTEGER PRIMARY KEY CHECK (one = 1), until REAL, process_id INTEGER);
CREATE TABLE IF NOT EXISTS stream (
  source TEXT, stream TEXT, committed TEXT, row_position TEXT, lineage TEXT, hold TEXT, hold_version INTEGER,
  parkers TEXT, message_id TEXT, sequence_number TEXT, worker TEXT, settled_at_ms INTEGER,
  PRIMARY KEY (source, stream)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS marker (
  tag INTEGER, identity TEXT, content_hash TEXT, segment TEXT, until INTEGER,
  PRIMARY KEY (tag, identity)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS marker_until ON marker (until);
"""
"""`marker`: pending in `segment`, or committed where that is empty; dead from `until` on, in seconds."""

# CROSS JOIN keeps the few wanted rows outside and the table inside, looked up by its key.
_FIND_STREAMS = """SELECT s.* FROM json_each(?) w
CROSS JOIN stream s ON s.source = w.value ->> 0 AND s.stream = w.value ->> 1"""
_FIND_MARKERS = """SELECT m.tag, m.identity, m.content_hash, m.segment FROM json_each(?) w
CROSS JOIN marker m ON m.tag = w.value ->> 0 AND m.identity = w.value ->> 1 WHERE m.until > ?"""
_PUT_STREAM = "INSERT OR REPLACE INTO stream VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_MARKER = "INSERT OR REPLACE INTO marker VALUES (?, ?, ?, ?, ?)"
_PRUNE = """DELETE FROM marker WHERE (tag, identity) IN
(SELECT tag, identity FROM marker WHERE until <= ? LIMIT ?)"""

Key = tuple[str, str]
"""(source, stream)."""


class Batch:
    """The decide calls of one transaction: rows read at once, decided in order, written at once."""

    def __init__(self, db: sqlite3.Connection, calls: Iterable[DecideCall], now: float) -> None:
        self._db = db
        calls = list(calls)
        self._records = find_streams(db, ((call.source, call.stream) for call in calls))
        self._changed: dict[Key, StreamRecord] = {}
        self._pending: dict[int, dict[str, Pending]] = {}
        self._committed: dict[int, dict[str, str]] = {}
        self._accepted: dict[tuple[int, str], Pending] = {}
        self._find_markers(calls, now)

    def _find_markers(self, calls: list[DecideCall], now: float) -> None:
        wanted = [(_tag(call.source, call.stream), c.identity) for call in calls for c in call.candidates]
        for tag, identity, content_hash, segment in self._db.execute(_FIND_MARKERS, (json.dumps(wanted), now)):
            if segment:
                self._pending.setdefault(tag, {})[identity] = Pending(content_hash, segment)
            else:
                self._committed.setdefault(tag, {})[identity] = content_hash

    def decide(self, call: DecideCall) -> DecideReply:
        """Decide one call; a later call of the same stream sees its effect."""
        key, tag = (call.source, call.stream), _tag(call.source, call.stream)
        record = self._records.get(key) or StreamRecord(*key)
        pending = self._pending.setdefault(tag, {})
        reply, effect, after = decided(record, call, pending, self._committed.get(tag, {}))
        if after is not record:
            self._records[key] = self._changed[key] = after
        pending.update(effect.pending)
        self._accepted.update(((tag, identity), mark) for identity, mark in effect.pending.items())
        return reply

    def write(self, until: int) -> None:
        """Write the effects; the new pending markers live `until` then."""
        put_streams(self._db, self._changed.values())
        rows = ((*key, mark.content_hash, mark.segment, until) for key, mark in self._accepted.items())
        self._db.executemany(_PUT_MARKER, rows)


def find_streams(db: sqlite3.Connection, keys: Iterable[Key]) -> dict[Key, StreamRecord]:
    """Records of the streams that have one."""
    rows = db.execute(_FIND_STREAMS, (json.dumps(list(keys)),))
    return {(row[0], row[1]): record_of(row) for row in rows}


def find_stream(db: sqlite3.Connection, source: str, stream: str) -> StreamRecord | None:
    """One stream's record."""
    return find_streams(db, [(source, stream)]).get((source, stream))


def put_streams(db: sqlite3.Connection, records: Iterable[StreamRecord]) -> None:
    """Write records whole."""
    db.executemany(_PUT_STREAM, (_row(record) for record in records))


def put_markers(db: sqlite3.Connection, markers: Iterable[tuple[str, str, str, str]], until: int) -> None:
    """Commit markers (source, stream, identity, content hash); pending ones are replaced."""
    rows = ((_tag(source, stream), identity, hash_, "", until) for source, stream, identity, hash_ in markers)
    db.executemany(_PUT_MARKER, rows)


def prune(db: sqlite3.Connection, now: float, markers_max: int) -> int:
    """Remove dead markers, at most `markers_max`; how many."""
    return db.execute(_PRUNE, (now, markers_max)).rowcount


def record_of(row: tuple[Any, ...]) -> StreamRecord:
    """A row of table `stream` as a record."""
    source, stream, committed, row_position, lineage, hold, hold_version, parkers, *informative = row
    by_claim = json.loads(parkers) if parkers else {}
    return StreamRecord(source, stream, committed, row_position, lineage, hold, hold_version, by_claim, *informative)


def _row(record: StreamRecord) -> tuple[object, ...]:
    return (
        record.source,
        record.stream,
        record.committed,
        record.row_position,
        record.lineage,
        record.hold,
        record.hold_version,
        json.dumps(dict(record.parkers)) if record.parkers else "",
        record.message_id,
        record.sequence_number,
        record.worker,
        record.settled_at_ms,
    )


def _tag(source: str, stream: str) -> int:
    return stream_address(source, stream).number
