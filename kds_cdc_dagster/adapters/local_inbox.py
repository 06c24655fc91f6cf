"""The local FIFO queue: one SQLite file, any number of processes and threads, real FIFO manners.

Every step is one short write transaction, so a process may be killed at any moment: what it had received
comes again when its visibility ends. Costs depend on the groups touched, never on how many messages were
ever sent: rows of finished messages are deleted, deduplication ids are pruned as they age. A killed
process takes back nothing. A power cut may take back the last receives and deletes (WAL with synchronous=NORMAL:
those messages come again), and, unless the queue is synced, the last sends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from kds_cdc_dagster.adapters import local_file as rows
from kds_cdc_dagster.adapters.local_file import IN, Head, QueueFile, Sent, json_list
from kds_cdc_dagster.adapters.local_queue import (
    DEDUP_WINDOW_SECONDS,
    EXTEND_MAX_SECONDS,
    IN_FLIGHT_MAX,
    MESSAGES_PER_RECEIVE_MAX,
    DeadMessage,
    LockedGroup,
    QueueRules,
    Receipt,
    Refusal,
    long_poll,
    refuse_unsendable,
    sequence_number,
)
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.ports import Acknowledgement, Clock, DeadLetter, Message, QueueDepth

_SEND_CHUNK = 1000
"""Messages per write transaction: other processes get their turn in between."""


class LocalQueue:
    """Ports Inbox and Outbound over the SQLite file at `path`. Every method may raise TransientError.

    `close` ends pending and later receives; acknowledging what they brought still works.
    """

    def __init__(  # noqa: PLR0913  (its limits, each with a default, built in one place)
        self,
        path: Path,
        *,
        clock: Clock,
        visibility_seconds: float = 60.0,
        dead_letter_after: int = 10,
        in_flight_max: int = IN_FLIGHT_MAX,
        receive_max: int = MESSAGES_PER_RECEIVE_MAX,
        is_synced: bool = False,
    ) -> None:
        self._rules = QueueRules(visibility_seconds, dead_letter_after, in_flight_max)
        self._receive_max = receive_max
        self._clock = clock
        self._file = QueueFile(path)
        self._is_synced = is_synced
        self._is_closed = False
        self._is_idle = True

    def send(self, messages: Sequence[Message]) -> int:
        """Publish in order; returns how many were new. Raises ValueError, before sending any, for what SQS refuses."""
        refuse_unsendable(messages)
        chunks = (messages[at : at + _SEND_CHUNK] for at in range(0, len(messages), _SEND_CHUNK))
        return sum(self._send(chunk) for chunk in chunks)

    def _send(self, messages: Sequence[Message]) -> int:
        now = self._clock.now()
        with self._file.turn(is_synced=self._is_synced) as db:
            db.execute("DELETE FROM dedup WHERE at <= ?", (now - DEDUP_WINDOW_SECONDS,))
            ids = json_list(m.dedup_id for m in messages)
            known = {row[0] for row in db.execute(f"SELECT dedup_id FROM dedup WHERE dedup_id {IN}", (ids,))}
            new: dict[str, Message] = {}
            for message in messages:
                if message.dedup_id not in known:
                    new.setdefault(message.dedup_id, message)
            db.executemany("INSERT INTO dedup VALUES (?, ?)", [(dedup_id, now) for dedup_id in new])
            rows.append(db, [Sent(m.group_id, "", m.dedup_id, int(now * 1000), m.body.encode()) for m in new.values()])
        return len(new)

    def receive(self, *, max_messages: int, wait_seconds: float) -> list[Delivery]:
        """Up to `receive_max` messages: the group whose head waits longest gives what it has, then the next one."""
        room = min(max_messages, self._receive_max)
        return long_poll(
            lambda: self._take(room),
            clock=self._clock,
            wait_seconds=wait_seconds,
            is_closed=lambda: self._is_closed,
        )

    def _take(self, room: int) -> list[Delivery]:
        now = self._clock.now()
        if self._is_idle:  # an idle poll takes no write lock
            with self._file.turn(is_write=False) as db:
                if not rows.has_ready(db, now):
                    return []
        with self._file.turn() as db:
            free = self._rules.in_flight_max - _in_flight(db, now)
            taken = self._living(db, max(0, min(room, free)), now)
            self._hand_over(db, taken, now)
        self._is_idle = not taken
        name = self._file.name
        return [head.delivery(name) for head in taken]

    def _living(self, db: sqlite3.Connection, room: int, now: float) -> list[Head]:
        """Messages to hand out; those received too often go to the dead letters on the way."""
        while taken := _free_heads(db, room, now):
            worn = [head for head in taken if head.receive_count >= self._rules.dead_letter_after]
            worn = [head for head in worn if head.group_id == worn[0].group_id]  # its group then queues up anew
            if not worn:
                break
            db.execute(
                "INSERT INTO dead SELECT seq, g.name, message_id, dedup_id, sent_at_ms, receive_count, ?, body"
                f" FROM messages m JOIN flights USING (seq) JOIN groups g ON g.id = m.group_id WHERE seq {IN}",
                (now, json_list(head.seq for head in worn)),
            )
            rows.remove(db, [head.seq for head in worn], {worn[0].group_id})
        return taken

    def _hand_over(self, db: sqlite3.Connection, taken: Sequence[Head], now: float) -> None:
        until = now + self._rules.visibility_seconds
        db.executemany(
            "INSERT INTO flights VALUES (?, ?, 1, ?, ?) ON CONFLICT (seq) DO UPDATE"
            " SET receive_count = receive_count + 1, received_at = excluded.received_at, until = excluded.until",
            [(head.seq, head.group_id, now, until) for head in taken],
        )
        groups = json_list({head.group_id for head in taken})
        db.execute(f"UPDATE groups SET until = ? WHERE id {IN}", (until, groups))

    def acknowledge(self, receipts: Sequence[str]) -> Acknowledgement:
        """Delete; refused once the visibility ended or a later receive took the message over.

        A message that is already deleted counts as confirmed.
        """
        with self._file.turn() as db:
            held, refused = self._held(db, receipts)
            gone = [seq for seq, group in held.values() if group is not None]
            rows.remove(db, gone, {group for _, group in held.values() if group is not None})
        return Acknowledgement(frozenset(held), refused)

    def release(self, receipts: Sequence[str]) -> None:
        """Make messages visible again at once; their receipts are refused from then on."""
        self._hide(receipts, 0.0)

    def extend(self, receipts: Sequence[str], seconds: float) -> None:
        """Hide messages for `seconds` from now, at most twelve hours after their receive."""
        self._hide(receipts, self._clock.now() + seconds)

    def _hide(self, receipts: Sequence[str], until: float) -> None:
        with self._file.turn() as db:
            held, _ = self._held(db, receipts)
            seqs = json_list(seq for seq, _ in held.values())
            db.execute(
                f"UPDATE flights SET until = min(?, received_at + {EXTEND_MAX_SECONDS}) WHERE seq {IN}", (until, seqs)
            )
            rows.refresh(db, {group for _, group in held.values() if group is not None})

    def _held(
        self, db: sqlite3.Connection, receipts: Sequence[str]
    ) -> tuple[dict[str, tuple[int, int | None]], dict[str, str]]:
        """Good receipts -> (seq, group or None if already deleted), and refused ones -> reason."""
        parsed = {text: Receipt.parse(text) for text in receipts}
        ours = {text: r for text, r in parsed.items() if r is not None and r.queue == self._file.name}
        refused: dict[str, str] = {text: Refusal.UNKNOWN for text in receipts if text not in ours}
        now, seqs = self._clock.now(), json_list({r.seq for r in ours.values()})
        found = db.execute(f"SELECT seq, group_id, receive_count, until FROM flights WHERE seq {IN}", (seqs,))
        flights = {row[0]: row[1:] for row in found}
        gone = [r.seq for r in ours.values() if r.seq not in flights]
        dead = {row[0] for row in db.execute(f"SELECT seq FROM dead WHERE seq {IN}", (json_list(gone),)) if gone}
        held: dict[str, tuple[int, int | None]] = {}
        for text, receipt in ours.items():
            group, count, until = flights.get(receipt.seq, (None, receipt.receive_count, now + 1))
            if count != receipt.receive_count or until <= now or receipt.seq in dead:
                refused[text] = Refusal.EXPIRED
            else:
                held[text] = (receipt.seq, group)
        return held, refused

    def depth(self) -> QueueDepth:
        """Exact backlog."""
        now = self._clock.now()
        with self._file.turn(is_write=False) as db:
            (live,) = db.execute("SELECT live FROM queue").fetchone()
            (dead,) = db.execute("SELECT count(*) FROM dead").fetchone()
            oldest = db.execute("SELECT sent_at_ms FROM messages ORDER BY seq LIMIT 1").fetchone()
            in_flight = _in_flight(db, now)
        return QueueDepth(live - in_flight, in_flight, dead, max(0.0, now - oldest[0] / 1000) if oldest else None)

    def locked_groups(self, *, limit: int = 100) -> list[LockedGroup]:
        """Groups with messages in flight, the one that waits longest first."""
        now = self._clock.now()
        with self._file.turn(is_write=False) as db:
            found = db.execute(
                "SELECT name, (SELECT count(*) FROM flights f WHERE f.group_id = g.id AND f.until > ?),"
                " (SELECT count(*) FROM messages m WHERE m.group_id = g.id), sent_at_ms, until"
                " FROM groups g JOIN messages ON seq = head WHERE until > ? ORDER BY head LIMIT ?",
                (now, now, limit),
            ).fetchall()
        return [LockedGroup(name, flying, all_ - flying, ms, until) for name, flying, all_, ms, until in found]

    def dead_letters(self, *, limit: int = 100) -> list[DeadMessage]:
        """Messages that were received too often, oldest first."""
        with self._file.turn(is_write=False) as db:
            found = db.execute(
                "SELECT body, group_name, dedup_id, message_id, seq, receive_count, sent_at_ms, died_at"
                " FROM dead ORDER BY seq LIMIT ?",
                (limit,),
            ).fetchall()
        return [DeadMessage(Message(r[0].decode(), r[1], r[2]), r[3], sequence_number(r[4]), *r[5:]) for r in found]

    def letters(self, *, limit: int) -> list[DeadLetter]:
        """Dead letters without their bodies, oldest first."""
        return [
            DeadLetter(dead.message.group_id, dead.message_id, dead.receive_count, dead.sent_at_ms)
            for dead in self.dead_letters(limit=limit)
        ]

    def redrive(self, *, limit: int = 1000) -> int:
        """Put the oldest dead letters back, in order, behind what waits; returns how many."""
        with self._file.turn() as db:
            found = db.execute(
                "SELECT seq, group_name, message_id, dedup_id, sent_at_ms, body FROM dead ORDER BY seq LIMIT ?",
                (limit,),
            ).fetchall()
            rows.append(db, [Sent(*row[1:]) for row in found])
            db.execute(f"DELETE FROM dead WHERE seq {IN}", (json_list(row[0] for row in found),))
        return len(found)

    def close(self) -> None:
        """End pending and later receives and give the file back."""
        self._is_closed = True
        self._file.close()


def _free_heads(db: sqlite3.Connection, room: int, now: float) -> list[Head]:
    """Heads of the groups that nothing in flight locks any more."""
    db.execute("UPDATE groups SET until = 0 WHERE until > 0 AND until <= ?", (now,))
    return rows.heads(db, room)


def _in_flight(db: sqlite3.Connection, now: float) -> int:
    return int(db.execute("SELECT count(*) FROM flights WHERE until > ?", (now,)).fetchone()[0])
