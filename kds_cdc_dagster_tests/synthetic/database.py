"""The source database: committed rows, open transactions that lock what they touch, and the log.

PostgreSQL writes a change into its log at once and decodes a transaction at its commit, so a long one's
positions are older than those delivered before it. A binlog holds whole transactions in commit order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from kds_cdc_dagster_tests.synthetic.mode import Mode
from kds_cdc_dagster_tests.synthetic.tables import Table, tables

Row = dict[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Place:
    """Where a change stands: `lsn` on PostgreSQL; `file`, `pos` and `row` in a binlog."""

    lsn: int = 0
    file: int = 0
    pos: int = 0
    row: int = 0


@dataclass(frozen=True)
class Written:
    """A row change in the log. `old` of a create is the row that an update moved here from another key."""

    op: str
    table: Table
    old: Row | None
    new: Row | None
    place: Place


@dataclass
class Log:
    """Positions that only rise; a binlog rolls over to the next file, from 999999 to 1000000 among them."""

    dice: Random
    lsn: int = 23_213_184
    file: int = 999_998
    pos: int = 4

    def write(self, mode: Mode) -> Place:
        """The place of the next record."""
        if not mode.is_binlog:
            self.lsn += self.dice.randrange(40, 400, 8)
            return Place(lsn=self.lsn)
        self.pos += self.dice.randrange(30, 700)
        if self.dice.random() < 0.08:
            self.file, self.pos = self.file + 1, self.dice.randrange(4, 400)
        return Place(file=self.file, pos=self.pos)


class Database:
    """Tables with their committed rows."""

    def __init__(self, mode: Mode, dice: Random) -> None:
        self.mode = mode
        self.dice = dice
        self.log = Log(dice)
        self.tables = tables(mode.connector)
        self.rows: dict[str, dict[Key, Row]] = {name: {} for name in self.tables}
        self.locks: dict[tuple[str, Key], int] = {}
        self._transactions = 800

    def begin(self) -> Transaction:
        """Open a transaction."""
        self._transactions += 1
        return Transaction(self, self._transactions)

    def is_touched(self, table: str) -> bool:
        """Whether an open transaction holds a row of the table: a truncate would have to wait."""
        return any(name == table for name, _ in self.locks)


@dataclass
class Transaction:
    """Changes that nobody sees before `commit`. Each method but that one is a statement."""

    database: Database
    number: int
    changes: list[Written] = field(default_factory=list)
    commit_lsn: int = 0
    _overlay: dict[tuple[str, Key], Row | None] = field(default_factory=dict)
    _truncated: set[str] = field(default_factory=set)

    def live(self, table: str) -> dict[Key, Row]:
        """Rows that this transaction sees and no other one has locked."""
        committed = {} if table in self._truncated else self.database.rows[table]
        own = {key: row for (name, key), row in self._overlay.items() if name == table}
        seen = {**committed, **own}
        return {k: r for k, r in seen.items() if r is not None and self._may(table, k)}

    def is_free(self, table: str, key: Key) -> bool:
        """Whether a row of that key could be inserted."""
        return key not in self.live(table) and self._may(table, key)

    def _may(self, table: str, key: Key) -> bool:
        return self.database.locks.get((table, key), self.number) == self.number

    def _set(self, table: Table, key: Key, row: Row | None) -> None:
        self.database.locks[table.name, key] = self.number
        self._overlay[table.name, key] = row

    def insert(self, name: str, *rows: Row) -> None:
        """One statement: its rows share PostgreSQL's lsn, or one row event of a binlog."""
        table, place = self.database.tables[name], self._place()
        for number, row in enumerate(rows):
            self._set(table, key_of(table, row), row)
            self.changes.append(Written("c", table, None, row, replace(place, row=number)))

    def update(self, name: str, keys: list[Key], values: Row) -> None:
        """One statement. A change of a key column becomes delete and create at one place."""
        table, place = self.database.tables[name], self._place()
        for number, key in enumerate(keys):
            if not self.database.mode.is_binlog and number:
                place = self._place()
            old = self.live(name)[key]
            new = {**old, **values}
            self._set(table, key, None)
            self._set(table, key_of(table, new), new)
            self.changes += _updated(table, old, new, replace(place, row=number))

    def delete(self, name: str, key: Key) -> None:
        """Remove a row."""
        table, old = self.database.tables[name], self.live(name)[key]
        self._set(table, key, None)
        self.changes.append(Written("d", table, old, None, self._place()))

    def truncate(self, *names: str) -> None:
        """Remove all rows of the tables, at one place."""
        place = self._place()
        for name in names:
            self._truncated.add(name)
            self._overlay = {key: row for key, row in self._overlay.items() if key[0] != name}
            self.changes.append(Written("t", self.database.tables[name], None, None, place))

    def _place(self) -> Place:
        return self.database.log.write(self.database.mode)

    def commit(self) -> None:
        """Show the changes to everybody. A binlog gets them only now."""
        database = self.database
        if database.mode.is_binlog:
            self.changes = list(_placed_anew(self.changes, database))
        self.commit_lsn = database.log.write(replace(database.mode)).lsn
        for name in self._truncated:
            database.rows[name].clear()
        for (name, key), row in self._overlay.items():
            database.rows[name].pop(key, None)
            if row is not None:
                database.rows[name][key] = row
        database.locks = {lock: owner for lock, owner in database.locks.items() if owner != self.number}


def key_of(table: Table, row: Row) -> Key:
    """Primary key in catalogue order."""
    return tuple(row[name] for name in table.key)


def _updated(table: Table, old: Row, new: Row, place: Place) -> Iterator[Written]:
    if key_of(table, old) == key_of(table, new):
        yield Written("u", table, old, new, place)
    else:
        yield Written("d", table, old, None, place)
        yield Written("c", table, old, new, place)


def _placed_anew(changes: list[Written], database: Database) -> Iterator[Written]:
    """Statements stay together: their rows share one event's offset."""
    places: dict[tuple[int, int], Place] = {}
    for change in changes:
        old = change.place
        if (old.file, old.pos) not in places:
            places[old.file, old.pos] = database.log.write(database.mode)
        yield replace(change, place=replace(places[old.file, old.pos], row=old.row))
