"""A random life of the source with its engine: the messages that reach the queue, and the rows at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from kds_cdc_dagster.ports import Message
from kds_cdc_dagster_tests.synthetic.database import Database, Key, Row, Transaction
from kds_cdc_dagster_tests.synthetic.engine import Engine
from kds_cdc_dagster_tests.synthetic.forms import body, redelivered
from kds_cdc_dagster_tests.synthetic.mode import Mode
from kds_cdc_dagster_tests.synthetic.values import value

_KEYS = 9
"""Keys per table, few so that they are deleted, used again and swapped often."""
_STATION_NUMBERS = 3


@dataclass(frozen=True)
class Capture:
    """What a life leaves."""

    mode: Mode
    messages: list[Message]
    """In the order of delivery; each has a deduplication id of its own."""
    state: dict[str, list[Row]]
    """Table -> rows at the end."""


@dataclass
class Player:
    """Plays one life. Truncates are left out where a transformation would drop them."""

    mode: Mode
    seed: int

    def __post_init__(self) -> None:
        self.dice = Random(f"{self.seed}-{self.mode}")
        self.database = Database(self.mode, self.dice)
        self.engine = Engine(self.database)
        self._open: list[Transaction] = []
        uuids = [str(value(self.dice, column, self.mode)) for column in [self._column("station", "store_guid")] * 20]
        self.stores = [(f"acct-00{number // 2}", guid) for number, guid in enumerate(uuids[:4])]
        spare = self.dice.randrange(1 << 40)
        numbers = [(spare + number,) for number in range(_KEYS)]
        self._keys: dict[str, list[Key]] = {
            "station": [(guid, number) for _, guid in self.stores for number in range(_STATION_NUMBERS)],
            "kitchen_ticket": numbers,
            "kitchen_ticket_item": numbers,
            "bump_event": [(text,) for text in uuids[4 : 4 + _KEYS]],
        }

    def _column(self, table: str, name: str) -> Any:
        return next(column for column in self.database.tables[table].columns if column.name == name)

    def play(self, steps: int) -> Capture:
        """Initial snapshot, `steps` steps of streaming, and everything open committed."""
        for _ in range(5):
            self._transact(is_streamed=False)
        self._begin_long()
        if self.dice.random() < 0.5:
            self.engine.snapshot(until=self.dice.randrange(1, 12))  # interrupted: it starts over below
            self._transact(is_streamed=False, moves=(self._insert, self._update))
        self.engine.snapshot()
        begun = self._begun = len(self.engine.events)
        for number in range(steps):
            if number == steps // 2:
                self._tour()
            self._step()
            if self.dice.random() < 0.06:
                begun = self._restart(begun)
        for transaction in self._open:
            self._end(transaction)
        return self._capture()

    def _capture(self) -> Capture:
        bodies = [(body(event, self.mode, self.dice), event.group) for event in self.engine.events]
        named = [(text, group) for text, group in bodies if text is not None]
        messages = [Message(text, group, f"{self.seed}-{number}") for number, (text, group) in enumerate(named)]
        return Capture(self.mode, messages, {name: list(rows.values()) for name, rows in self.database.rows.items()})

    def _tour(self) -> None:
        """Every kind of step once: no life is without any of them."""
        for weight, step in self._steps():
            if weight:
                step()

    def _step(self) -> None:
        weights, steps = zip(*self._steps(), strict=True)
        self.dice.choices(steps, weights)[0]()

    def _steps(self) -> list[tuple[float, Callable[[], None]]]:
        return [
            (0.66, self._transact),
            (0.09, self._begin_long),
            (0.09, self._end_long),
            (0.04, self.engine.heartbeat),
            (0.02, self.engine.schema_change),
            (0.0 if self.mode.is_flattened else 0.04, self._truncate),
            (0.05, self._read_incrementally),
            (0.02, self._read_blocking),
        ]

    # --- transactions ---------------------------------------------------------------------------

    def _transact(self, *, is_streamed: bool = True, moves: tuple[Callable[..., None], ...] = ()) -> None:
        transaction = self.database.begin()
        self._change(transaction, self.dice.randint(1, 4), moves)
        self._end(transaction, is_streamed=is_streamed)

    def _begin_long(self) -> None:
        """A transaction that others overtake: its positions are older than theirs."""
        if len(self._open) < 2:
            transaction = self.database.begin()
            self._change(transaction, 2)
            self._open.append(transaction)

    def _end_long(self) -> None:
        if self._open:
            transaction = self._open.pop(0)
            self._change(transaction, 1)
            self._end(transaction)

    def _end(self, transaction: Transaction, *, is_streamed: bool = True) -> None:
        transaction.commit()
        if is_streamed and transaction.changes:
            self.engine.stream(transaction)

    def _change(self, transaction: Transaction, statements: int, moves: tuple[Callable[..., None], ...] = ()) -> None:
        for _ in range(statements):
            table = self.dice.choice(list(self._keys))
            live = sorted(transaction.live(table))
            free = [key for key in self._keys[table] if transaction.is_free(table, key)]
            self.dice.choice(moves or self._moves())(transaction, table, live, free)

    def _moves(self) -> tuple[Callable[..., None], ...]:
        often = (self._insert, self._update, self._delete)
        return (*often, *often, self._update, self._move_store, self._rekey, self._swap)

    # --- statements -----------------------------------------------------------------------------

    def _insert(self, transaction: Transaction, table: str, _live: list[Key], free: list[Key]) -> None:
        keys = self.dice.sample(free, min(len(free), self.dice.choice((1, 1, 3))))
        if keys:
            transaction.insert(table, *(self._row(table, key) for key in keys))

    def _row(self, table: str, key: Key) -> Row:
        found = self.database.tables[table]
        row = {column.name: value(self.dice, column, self.mode) for column in found.columns}
        row |= dict(zip(found.key, key, strict=True)) | self._owner(table, key)
        return row

    def _owner(self, table: str, key: Key) -> Row:
        account, guid = self.dice.choice(self.stores)
        if table == "station":
            account = next(account for account, store in self.stores if store == key[0])
            return {"account_id": account}
        return {"account_id": account, "store_guid": guid}

    def _update(self, transaction: Transaction, table: str, live: list[Key], _free: list[Key]) -> None:
        """Some columns of one or two rows; perhaps none, where the source tells of that as well."""
        keys = self.dice.sample(live, min(len(live), self.dice.choice((1, 1, 1, 2))))
        fixed = {*self.database.tables[table].key, "account_id", "store_guid"}
        columns = [column for column in self.database.tables[table].columns if column.name not in fixed]
        chosen = self.dice.sample(columns, self.dice.randint(1, 3))
        if keys:
            transaction.update(table, keys, {column.name: value(self.dice, column, self.mode) for column in chosen})

    def _move_store(self, transaction: Transaction, table: str, live: list[Key], _free: list[Key]) -> None:
        if live and table != "station":
            transaction.update(table, [self.dice.choice(live)], self._owner(table, ()))

    def _rekey(self, transaction: Transaction, table: str, live: list[Key], free: list[Key]) -> None:
        if live and free:
            self._move(transaction, table, self.dice.choice(live), self.dice.choice(free))

    def _swap(self, transaction: Transaction, table: str, live: list[Key], free: list[Key]) -> None:
        """Two rows change places through a spare key."""
        if len(live) > 1 and free:
            (one, other), spare = self.dice.sample(live, 2), self.dice.choice(free)
            for old, new in ((one, spare), (other, one), (spare, other)):
                self._move(transaction, table, old, new)

    def _move(self, transaction: Transaction, table: str, old: Key, new: Key) -> None:
        values = dict(zip(self.database.tables[table].key, new, strict=True))
        if table == "station":
            values |= self._owner(table, new)
        transaction.update(table, [old], values)

    def _delete(self, transaction: Transaction, table: str, live: list[Key], _free: list[Key]) -> None:
        if live:
            transaction.delete(table, self.dice.choice(live))

    def _truncate(self) -> None:
        names = [name for name in self._keys if not self.database.is_touched(name)]
        if names:
            transaction = self.database.begin()
            transaction.truncate(*self.dice.sample(names, min(len(names), self.dice.choice((1, 1, 2)))))
            self._end(transaction)

    # --- snapshots and restarts ------------------------------------------------------------------

    def _read_incrementally(self) -> None:
        """A chunk of a table between two watermarks. Without a sequence its reads carry no position: see the tests."""
        if self._open and not self.mode.has_sequence and not self.mode.is_binlog:
            return
        table = self.dice.choice(list(self._keys))
        self.engine.open_window()
        opened = len(self.engine.events)
        for _ in range(self.dice.randrange(3)):
            self._transact()
        chunk = dict(self.database.rows[table])
        for _ in range(self.dice.randrange(3)):
            self._transact()
        self.engine.close_window(table, chunk, self.engine.events[opened:])

    def _read_blocking(self) -> None:
        """Two tables whole, while streaming pauses: what commits meanwhile is read, and streamed afterwards.

        No key changes then: positions do not tell that such a read is newer than the halves that follow.
        """
        if len(self.engine.events) == self._begun:
            return
        transaction = self.database.begin()
        self._change(transaction, 3, (self._insert, self._update, self._delete))
        transaction.commit()
        self.engine.snapshot(self.dice.sample(list(self._keys), 2))
        if transaction.changes:
            self.engine.stream(transaction)

    def _restart(self, offset_min: int) -> int:
        """The connector dies and goes on from an offset up to 25 events old; returns the oldest one from now on."""
        events = self.engine.events
        begun = len(events)
        events += redelivered(events, max(offset_min, begun - self.dice.randrange(1, 25)))
        return begun
