"""What engineers do with quarantined deliveries: send them again, as they are or edited, or discard them.

Every action is a row of `ops.quarantine_actions`, appended and never changed; the quarantine row's status says
the last one. A delivery that is refused again after a redrive is open again (`load.quarantine`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from kds_cdc_dagster.core.change import Outcome
from kds_cdc_dagster.errors import ObjectMissing
from kds_cdc_dagster.journal import segment
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.load.layout import OPS, Schemas, listed
from kds_cdc_dagster.ports import Clock, Message, ObjectStore, Outbound, Transaction, Warehouse

PAGE = 500
"""Rows sent and noted at a time."""
REQUEUED, DISCARDED = "requeued", "discarded"


class Selection(msgspec.Struct, frozen=True):
    """Which open rows of the quarantine; parked ones are released with their stream, not redriven."""

    keys: tuple[str, ...] = ()
    reason: str = ""
    source: str = ""
    entity: str = ""
    received_from: datetime | None = None
    received_to: datetime | None = None
    """Exclusive."""
    rows_max: int = 1_000

    def where(self) -> tuple[str, list[object]]:
        """SQL condition and its parameters."""
        terms: list[tuple[str, object]] = [
            *((f"{name} = ?", value) for name, value in self._equal() if value),
            *([("received_at >= ?", self.received_from)] if self.received_from else []),
            *([("received_at < ?", self.received_to)] if self.received_to else []),
        ]
        sql = " AND ".join(["outcome = 'rejected'", "status = 'open'", *(term for term, _ in terms)])
        if self.keys:
            sql += f" AND key IN ({', '.join('?' for _ in self.keys)})"
        return sql, [*(value for _, value in terms), *self.keys]

    def _equal(self) -> tuple[tuple[str, str], ...]:
        return (("reason", self.reason), ("source", self.source), ("entity", self.entity))


class Edit(msgspec.Struct, frozen=True):
    """What to send instead of what was refused."""

    bodies: Mapping[str, str] = {}
    """Quarantine key -> whole new body."""
    group_id: str = ""
    """Another message group for all of them (after `group_mismatch`)."""


class Actor(msgspec.Struct, frozen=True):
    """Who acts, and why."""

    by: str
    why: str


class RedriveReport(msgspec.Struct, frozen=True):
    """What one action did."""

    action: str
    selected: int
    done: int
    without_body: int = 0
    """Not text, or too long for the table and their journal segment is pruned: give a body to send them."""
    needs_replay: int = 0
    """Taken in, and refused when their values were typed: sending them again would be a duplicate. After the
    catalogue is fixed, materialize their batches again."""


class _Redriven(NamedTuple):
    key: str
    message: Message


_NO_BODY, _ACCEPTED = "\0no body", "\0accepted"


class Quarantine:
    """Actions on the quarantine of one set of schemas."""

    def __init__(self, warehouse: Warehouse, store: ObjectStore, schemas: Schemas, clock: Clock) -> None:
        self._warehouse = warehouse
        self._store = store
        self._schemas = schemas
        self._clock = clock

    def redrive(
        self, selection: Selection, outbound: Outbound, actor: Actor, edit: Edit | None = None
    ) -> RedriveReport:
        """Send the selected deliveries to the queue again, in their old order, and note it.

        Sent first, noted then: dying in between sends some twice, which the intake knows how to take.
        """
        rows = self._selected(selection)
        outcomes = [0, 0, 0]
        for at in range(0, len(rows), PAGE):
            found = [self._message(row, edit or Edit()) for row in rows[at : at + PAGE]]
            sent = [message for message in found if isinstance(message, _Redriven)]
            outbound.send([item.message for item in sent])
            self._note([item.key for item in sent], REQUEUED, actor)
            counts = (len(sent), found.count(_NO_BODY), found.count(_ACCEPTED))
            outcomes = [total + count for total, count in zip(outcomes, counts, strict=True)]
        done, without_body, accepted = outcomes
        return RedriveReport(REQUEUED, len(rows), done, without_body, accepted)

    def discard(self, selection: Selection, actor: Actor) -> RedriveReport:
        """Close the selected rows without sending them."""
        names = [str(row[0]) for row in self._selected(selection)]
        for at in range(0, len(names), PAGE):
            self._note(names[at : at + PAGE], DISCARDED, actor)
        return RedriveReport(DISCARDED, len(names), len(names))

    def _selected(self, selection: Selection) -> list[tuple[object, ...]]:
        where, values = selection.where()
        names = "key, group_id, segment, segment_row, body_bytes, body_encoding, body"
        query = (
            f"SELECT {names} FROM {self._schemas.op('quarantine')} WHERE {where} "
            f"ORDER BY received_at, segment, segment_row LIMIT {selection.rows_max}"
        )
        return self._warehouse.run(lambda tx: tx.rows(query, values))

    def _message(self, row: tuple[object, ...], edit: Edit) -> _Redriven | str:
        key, group = str(row[0]), edit.group_id or str(row[1])
        dedup_id = f"redrive-{key[:40]}-{int(self._clock.now() * 1000)}"
        if key in edit.bodies:
            return _Redriven(key, Message(edit.bodies[key], group, dedup_id))
        body = self._body(row)
        return body if body in {_NO_BODY, _ACCEPTED} else _Redriven(key, Message(body, group, dedup_id))

    def _body(self, row: tuple[object, ...]) -> str:
        """The original from the journal, else what the table shows if that is all of it."""
        _, _, id_, place, size, encoding, shown = row
        try:
            found = segment.read(self._store, SegmentId.parse(str(id_)))
        except ObjectMissing:
            found = None
        if found is not None:
            record = found.rows.slice(int(str(place)), 1).to_pylist()[0]
            return _ACCEPTED if record["outcome"] == Outcome.ACCEPTED else _text(record["body"])
        is_whole = encoding == "utf-8" and len(str(shown).encode()) == size
        return str(shown) if is_whole else _NO_BODY

    def _note(self, keys: Sequence[str], action: str, actor: Actor) -> None:
        if keys:
            at = datetime.fromtimestamp(self._clock.now(), UTC)
            lock = self._schemas.op("quarantine")
            self._warehouse.run(lambda tx: _note(tx, self._schemas, keys, action, actor, at), lock=lock)


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return _NO_BODY  # no queue takes it as text


def _note(tx: Transaction, schemas: Schemas, keys: Sequence[str], action: str, actor: Actor, at: datetime) -> None:
    marks = ", ".join("?" for _ in keys)
    columns = listed(name for name, _ in OPS["quarantine_actions"])
    tx.execute(
        f"INSERT INTO {schemas.op('quarantine_actions')} ({columns}) "
        f"SELECT key, reason, ?, ?, ?, ? FROM {schemas.op('quarantine')} WHERE key IN ({marks})",
        (action, actor.by, actor.why, at, *keys),
    )
    tx.execute(f"UPDATE {schemas.op('quarantine')} SET status = ? WHERE key IN ({marks})", (action, *keys))
