"""A quiet source for tests that say each change themselves: tickets of one store on PostgreSQL."""

from __future__ import annotations

from random import Random
from typing import Any

from kds_cdc_dagster.ports import Message
from kds_cdc_dagster_tests.synthetic.database import Database, Row, Transaction
from kds_cdc_dagster_tests.synthetic.engine import Engine
from kds_cdc_dagster_tests.synthetic.forms import body
from kds_cdc_dagster_tests.synthetic.mode import Mode
from kds_cdc_dagster_tests.synthetic.values import value

ACCOUNT, STORE = "acct-001", "986e86cb-0ab8-4b67-a26b-7f62b1852f27"
GROUP = f"{ACCOUNT}:{STORE}"


class Kitchen:
    """Each method commits one transaction and returns its messages."""

    def __init__(self, mode: Mode | None = None) -> None:
        self._mode = mode or Mode()
        self._dice = Random(7)
        self.database = Database(self._mode, self._dice)
        self.engine = Engine(self.database)
        self._sent = 0

    def ticket(self, ticket_id: int, **values: Any) -> Message:
        """A new ticket."""
        columns = self.database.tables["kitchen_ticket"].columns
        row = {column.name: value(self._dice, column, self._mode) for column in columns}
        own = {"ticket_id": ticket_id, "account_id": ACCOUNT, "store_guid": STORE, "notes": "none", **values}
        transaction = self.database.begin()
        transaction.insert("kitchen_ticket", {**row, **own})
        return self._streamed(transaction)[0]

    def update(self, ticket_id: int, **values: Any) -> Message:
        """Change columns of a ticket."""
        transaction = self.database.begin()
        transaction.update("kitchen_ticket", [(ticket_id,)], values)
        return self._streamed(transaction)[0]

    def rekey(self, ticket_id: int, new_id: int) -> list[Message]:
        """Give a ticket another key: delete and create."""
        transaction = self.database.begin()
        transaction.update("kitchen_ticket", [(ticket_id,)], {"ticket_id": new_id})
        return self._streamed(transaction)

    def read(self) -> list[Message]:
        """An incremental snapshot of the tickets, alone in its window."""
        begun = len(self.engine.events)
        self.engine.open_window()
        self.engine.close_window("kitchen_ticket", dict(self.database.rows["kitchen_ticket"]), [])
        return self._messages(begun)

    def read_whole(self, *, is_initial: bool) -> list[Message]:
        """An initial or a blocking snapshot of the tickets."""
        begun = len(self.engine.events)
        self.engine.snapshot(() if is_initial else ["kitchen_ticket"])
        return self._messages(begun)

    def commit(self, transaction: Transaction) -> list[Message]:
        """Commit a transaction that was left open."""
        return self._streamed(transaction)

    def _streamed(self, transaction: Transaction) -> list[Message]:
        transaction.commit()
        begun = len(self.engine.events)
        self.engine.stream(transaction)
        return self._messages(begun)

    def _messages(self, begun: int) -> list[Message]:
        events = [event for event in self.engine.events[begun:] if event.document is not None]
        found = [(body(event, self._mode, self._dice) or "", event.group) for event in events]
        self._sent += len(found)
        return [Message(text, group, f"kitchen-{self._sent}-{number}") for number, (text, group) in enumerate(found)]

    def state(self) -> dict[str, list[Row]]:
        """The rows now."""
        return {name: list(rows.values()) for name, rows in self.database.rows.items()}
