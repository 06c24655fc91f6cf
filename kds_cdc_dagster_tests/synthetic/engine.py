"""The Debezium engine: committed transactions and snapshots become change events, in the order of delivery."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kds_cdc_dagster_tests.synthetic.database import Database, Key, Place, Row, Transaction, Written
from kds_cdc_dagster_tests.synthetic.encoding import encoded, filler, placeholder
from kds_cdc_dagster_tests.synthetic.tables import LARGE, Table
from kds_cdc_dagster_tests.synthetic.values import is_large

VERSIONS = {"postgresql": "3.6.3.Final", "mysql": "3.0.7.Final", "mariadb": "3.6.3.Final"}
SERVER_ID = 223
_GTID_UUID = "3f1d0c9a-7b6e-11ef-9c0d-0a58a9feac02"
_SIGNAL = Table("dbz_signal", ("id",), ())
Document = dict[str, Any]


@dataclass(frozen=True)
class Event:
    """A delivery of the engine, without the times that the connector stamps on it."""

    document: Document | None
    """None: a tombstone."""
    group: str
    table: Table | None = None
    is_read: bool = False


@dataclass
class Engine:
    """A connector that sees `database`; what it delivers is in `events`."""

    database: Database
    events: list[Event] = field(default_factory=list)
    _last_commit: int | None = None
    _commits: int = 0
    _now_us: int = 1_796_024_992_582_361
    _at: Place = field(default_factory=Place)
    """Of the row event delivered last: where incremental reads say they are."""

    def stream(self, transaction: Transaction) -> None:
        """Deliver a committed transaction."""
        self._commits += 1
        self._now_us += 24_321
        blocks = self._blocks(transaction)
        self._mark(transaction, "BEGIN")
        for change, block in zip(transaction.changes, blocks, strict=True):
            self._at = change.place
            source = self._source(change.table, change.place, transaction.number)
            self._deliver(change, source, block)
        self._mark(transaction, "END")
        self._last_commit = transaction.commit_lsn

    def _blocks(self, transaction: Transaction) -> list[Document | None]:
        if not self.database.mode.has_transactions:
            return [None] * len(transaction.changes)
        seen: Counter[str] = Counter()
        blocks: list[Document | None] = []
        for number, change in enumerate(transaction.changes, 1):
            seen[change.table.name] += 1
            orders = {"total_order": number, "data_collection_order": seen[change.table.name]}
            blocks.append({"id": self._transaction_id(transaction), **orders})
        return blocks

    def _transaction_id(self, transaction: Transaction) -> str:
        return f"{transaction.number}:{transaction.commit_lsn}"

    def _mark(self, transaction: Transaction, status: str) -> None:
        if self.database.mode.has_transactions:
            ends: Document = {"event_count": None, "data_collections": None}
            if status == "END":
                counted = Counter(f"kds.{change.table.name}" for change in transaction.changes)
                collections = [{"data_collection": name, "event_count": count} for name, count in counted.items()]
                ends = {"event_count": len(transaction.changes), "data_collections": collections}
            self._control({"status": status, "id": self._transaction_id(transaction), **ends})

    def _deliver(self, change: Written, source: Document, block: Document | None) -> None:
        mode = self.database.mode
        envelope = {"before": None, "after": None, "source": source, "transaction": block, "op": change.op}
        owner = change.new
        if change.op == "d":
            envelope["before"] = self._old_image(change)
            owner = change.old if mode.has_old_rows else None
        elif change.op == "u" and mode.has_old_rows:
            envelope["before"] = self._image(change.table, change.old)
        if change.new is not None:
            envelope["after"] = self._image(change.table, change.new, change.old)
        group = self._group(change.table, owner)
        self.events.append(Event(envelope, group, change.table))
        if change.op == "d":
            self.events.append(Event(None, group, change.table))

    def _old_image(self, change: Written) -> Document:
        """The whole old row, or its key with invented values beside it."""
        if self.database.mode.has_old_rows:
            return self._image(change.table, change.old)
        old, mode = change.old or {}, self.database.mode
        return {
            column.name: encoded(column, old[column.name], mode)
            if column.name in change.table.key
            else filler(column, mode)
            for column in change.table.columns
        }

    def _image(self, table: Table, row: Row | None, old: Row | None = None) -> Document:
        mode, row = self.database.mode, row or {}
        unchanged = set() if mode.has_old_rows or old is None else _unchanged(row, old)
        return {
            column.name: placeholder(column) if column.name in unchanged else encoded(column, row[column.name], mode)
            for column in table.columns
        }

    def _group(self, table: Table, owner: Row | None) -> str:
        if self.database.mode.grouping == "static":
            return "cdc-group"
        return f"kdsprod:{table.name}" if owner is None else f"{owner['account_id']}:{owner['store_guid']}"

    def _source(self, table: Table, place: Place, transaction: int, snapshot: str = "false") -> Document:
        mode, ts_us = self.database.mode, self._now_us
        head: Document = {"version": VERSIONS[mode.connector], "connector": mode.connector, "name": "kdsprod"}
        if mode.is_binlog:
            ts_us = ts_us // 1_000_000 * 1_000_000
        head |= {"ts_ms": ts_us // 1000, "snapshot": snapshot}
        tail = {"ts_us": ts_us, "ts_ns": ts_us * 1000}
        if mode.is_binlog:
            return {**head, "db": "kds", "sequence": None, **tail, "table": table.name, **self._binlog(place)}
        last = None if self._last_commit is None else str(self._last_commit)
        sequence = json.dumps([last, str(place.lsn)], separators=(",", ":"))
        head |= {"db": "postgres", "sequence": sequence, **tail, "schema": "kds", "table": table.name}
        is_incremental = snapshot == "incremental"
        known = {"txId": None if is_incremental else transaction, "lsn": None if is_incremental else place.lsn}
        return {**head, **known, "xmin": None, "origin": None, "origin_lsn": None}

    def _binlog(self, place: Place) -> Document:
        mode = self.database.mode
        gtid = f"0-{SERVER_ID}-{self._commits}" if mode.connector == "mariadb" else f"{_GTID_UUID}:{self._commits}"
        return {
            "server_id": SERVER_ID,
            "gtid": gtid if mode.has_gtid else None,
            "file": f"mariadb-bin.{place.file:06d}",
            "pos": place.pos,
            "row": place.row,
            "thread": None,
            "query": None,
        }

    def snapshot(self, names: Iterable[str] = (), *, until: int | None = None) -> None:
        """Read tables whole: all of them at one new position (initial; interrupted after `until` rows), or, when
        named, at the offset where streaming stands (blocking, on demand).
        """
        database, is_blocking = self.database, bool(names)
        place = self._at if is_blocking else replace(database.log.write(database.mode), row=0)
        tables = [database.tables[name] for name in names or database.tables]
        read = [(table, row) for table in tables for row in database.rows[table.name].values()]
        for number, (table, row) in enumerate(read[:until]):
            mark = _mark_of([table.name for table, _ in read], number)
            source = self._source(table, place, 834, mark)
            if database.mode.is_binlog and not is_blocking:
                source |= {"server_id": 0, "gtid": None}
            self._read(table, row, source)

    def _read(self, table: Table, row: Row, source: Document) -> None:
        envelope = {"before": None, "after": self._image(table, row), "source": source, "transaction": None, "op": "r"}
        self.events.append(Event(envelope, self._group(table, row), table, is_read=True))

    def open_window(self) -> None:
        """Open the window of an incremental snapshot's chunk."""
        self._signal("open")

    def _signal(self, kind: str, reads: Sequence[tuple[Table, Row]] = ()) -> None:
        """A row in the signal table, and the incremental reads that it sets free."""
        transaction = self.database.begin()
        place = self.database.log.write(self.database.mode)
        transaction.commit()
        self._commits += 1
        self._at = place
        source = self._source(_SIGNAL, place, transaction.number)
        row = {"id": f"{place.lsn or place.pos}-{kind}", "type": f"snapshot-window-{kind}", "data": None}
        envelope = {"before": None, "after": row, "source": source, "transaction": None, "op": "c"}
        self.events.append(Event(envelope, "cdc-group" if self._is_static else "kdsprod:dbz_signal", _SIGNAL))
        for table, row in reads:  # sent on the signal, before the end of its transaction
            self._read(table, row, self._source(table, place, 0, "incremental"))
        self._last_commit = transaction.commit_lsn

    def close_window(self, table: str, chunk: dict[Key, Row], seen: Sequence[Event]) -> None:
        """Close the window: chunk rows with a change among the events `seen` since its opening are dropped."""
        found, mode = self.database.tables[table], self.database.mode
        taken = {_key_text(event.document or {}, found) for event in seen if event.table is found}
        images = {
            key: {name: encoded(c, chunk[key][name], mode) for c in found.columns for name in [c.name]} for key in chunk
        }
        self._signal(
            "close",
            [(found, row) for key, row in chunk.items() if _key_text({"after": images[key]}, found) not in taken],
        )

    @property
    def _is_static(self) -> bool:
        return self.database.mode.grouping == "static"

    def heartbeat(self) -> None:
        """A message that only says when."""
        self._control({"ts_ms": self._now_us // 1000})

    def schema_change(self) -> None:
        """A DDL event; PostgreSQL sends none."""
        if self.database.mode.is_binlog:
            source = self._source(self.database.tables["station"], self._at, 0)
            names = {"databaseName": "kds", "schemaName": None}
            self._control({"source": source, "ts_ms": 1, **names, "ddl": "ANALYZE TABLE station", "tableChanges": []})

    def _control(self, document: Document) -> None:
        self.events.append(Event(document, "cdc-group" if self._is_static else "control"))


def _unchanged(row: Row, old: Row) -> set[str]:
    return {name for name in LARGE & row.keys() if is_large(row[name]) and row[name] == old[name]}


def _mark_of(names: list[str], number: int) -> str:
    """Marks of the rows of a whole snapshot: first, first_in_data_collection, true, last_in_…, last."""
    if number == len(names) - 1:
        return "last"
    if number == 0:
        return "first"
    if names[number - 1] != names[number]:
        return "first_in_data_collection"
    return "last_in_data_collection" if names[number + 1] != names[number] else "true"


def _key_text(document: Document, table: Table) -> str:
    row = document.get("after") or document.get("before") or {}
    return json.dumps([row.get(name) for name in table.key])
