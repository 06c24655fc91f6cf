"""`kds-cdc simulate`: seeded traffic of the mock contract from many kitchens, with an oracle.

The same seed and options give the same messages, byte for byte. Faults are those that publishers and queues have:
duplicates, late deliveries, lost changes, poison. The oracle knows what curated must hold afterwards under the
default policies of a mock source (gap accepted, out of order quarantined) and how often each outcome must occur.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec

from kds_cdc_dagster.core.change import Outcome, Reason
from kds_cdc_dagster.core.contracts.mock import VERSION
from kds_cdc_dagster.ports import Message
from kds_cdc_dagster.traffic.kitchen import KEYS, Key, Kitchen, Row, RowChange, instant

DUPLICATE_SHARE, LATE_SHARE, LOST_SHARE, POISON_SHARE = 0.05, 0.02, 0.01, 0.02
LOST = "lost"
"""Changes that were never sent: what `accepted` then lacks."""
STORES_PER_ACCOUNT = 3
_IDS_PER_STORE = 1_000_000_000
_STORES_MAX = 100_000
_SEEDS = 9_000
"""Ids of stores and seeds never meet: the product of these three fits a bigint."""
_POISON = (Reason.UNREADABLE, Reason.UNKNOWN_TABLE, Reason.MISSING_KEY, Reason.SUSPICIOUS_DUPLICATE)


@dataclass(slots=True)
class _Store:
    """A kitchen on its way to the queue."""

    kitchen: Kitchen
    position: int = 0
    late: Message | None = None
    """Held back until a later change of the same stream was sent."""
    repeats: deque[Message] = field(default_factory=deque)
    """To be sent again, at once or after the next change."""
    last: dict[str, Any] | None = None
    """The last accepted message, for a conflict with it."""


@dataclass
class Traffic:
    """Messages of `stores` kitchens, `rate` changes a second of virtual time; `hot` is the first store's share.

    Every option only adds messages or leaves some out: the kitchens do the same with and without.
    """

    seed: int
    stores: int = 10
    rate: float = 50.0
    hot: float = 0.0
    duplicates: bool = False
    out_of_order: bool = False
    poison: bool = False
    gap: bool = False
    started_at: float = 1_793_527_200.0
    """Virtual time of the first change, seconds since the epoch: 2026-11-01 10:00 UTC."""
    counts: Counter[str] = field(default_factory=Counter)
    """How many messages must end accepted, as safe_duplicate, and rejected for each reason; and `lost` changes."""

    def __post_init__(self) -> None:
        if not 0 < self.stores <= _STORES_MAX or self.rate <= 0 or not 0 <= self.hot <= 1:
            raise ValueError(f"needs 1 to {_STORES_MAX} stores, a rate above 0 and a hot share from 0 to 1")
        self._changes = self._messages = 0
        self._choose, self._fault = self._seeded("choose"), self._seeded("fault")
        self._stores = [_Store(self._kitchen(number)) for number in range(self.stores)]
        self._expected: dict[str, dict[Key, Row]] = {entity: {} for entity in KEYS}

    def _seeded(self, purpose: object) -> Random:
        """One generator per purpose: what one of them draws changes nothing for the others."""
        return Random(f"{self.seed}-{purpose}")  # noqa: S311 - simulated traffic, no secrets

    def _kitchen(self, number: int) -> Kitchen:
        return Kitchen(
            self._seeded(number),
            f"acct-{number // STORES_PER_ACCOUNT + 1:03d}",
            first_id=(self.seed % _SEEDS * _STORES_MAX + number) * _IDS_PER_STORE,
            opened_at=self._moment(),
        )

    def _moment(self) -> datetime:
        return datetime.fromtimestamp(self.started_at, UTC) + timedelta(seconds=self._changes / self.rate)

    def until(self, elapsed_seconds: float) -> list[Message]:
        """Messages of the virtual time from the last call up to `elapsed_seconds` after the start."""
        return self.take(int(elapsed_seconds * self.rate) - self._changes)

    def take(self, changes: int) -> list[Message]:
        """Messages of the next `changes` changes, in the order of sending."""
        found: list[Message] = []
        for _ in range(changes):
            found.extend(self._sent(self._stores[self._next_store()]))
        return found

    def _next_store(self) -> int:
        if self._choose.random() < self.hot or self.stores == 1:
            return 0
        return self._choose.randrange(1 if self.hot else 0, self.stores)

    def expected_rows(self) -> dict[str, dict[Key, Row]]:
        """Entity -> primary key in catalogue order -> row that curated must hold once all is loaded."""
        return {entity: dict(rows) for entity, rows in self._expected.items()}

    def _sent(self, store: _Store) -> Iterator[Message]:
        change = store.kitchen.next_change(self._moment())
        self._changes += 1
        store.position += 1
        fields = self._fields(store, change)
        if self._strikes(self.gap, LOST_SHARE):
            self.counts[LOST] += 1
            return
        if store.late is None and self._strikes(self.out_of_order, LATE_SHARE):
            store.late = self._message(store, msgspec.json.encode(fields).decode())
            return
        yield from self._accepted(store, change, fields)
        if store.late is not None:
            self.counts[Reason.OUT_OF_ORDER] += 1
            yield store.late
            store.late = None
        if self._strikes(self.poison, POISON_SHARE):
            yield from self._poison(store, fields)

    def _accepted(self, store: _Store, change: RowChange, fields: dict[str, Any]) -> Iterator[Message]:
        body = msgspec.json.encode(fields).decode()
        self.counts[Outcome.ACCEPTED] += 1
        self._expect(change)
        yield self._message(store, body)
        store.last = fields
        if self._strikes(self.duplicates, DUPLICATE_SHARE):
            store.repeats.append(self._message(store, body))
        while store.repeats and self._fault.random() < 0.5:
            self.counts[Outcome.SAFE_DUPLICATE] += 1
            yield store.repeats.popleft()

    def _expect(self, change: RowChange) -> None:
        rows, key = self._expected[change.entity], tuple(change.primary_key.values())
        if change.after is None:
            rows.pop(key, None)
        else:
            rows[key] = change.after

    def _poison(self, store: _Store, fields: dict[str, Any]) -> Iterator[Message]:
        """A message that must be quarantined alone; of the next position, so that nothing is missed behind it."""
        reason = self._fault.choice(_POISON)
        sequence = {"stream_key": store.kitchen.stream, "stream_position": store.position + 1}
        wrong = {**fields, "sequence": sequence}
        if reason == Reason.UNKNOWN_TABLE:
            wrong["entity"] = "loyalty_card"
        elif reason == Reason.MISSING_KEY:
            wrong["primary_key"] = {}
        elif reason == Reason.SUSPICIOUS_DUPLICATE:
            if store.last is None:
                return
            wrong, store.last = _conflicting(store.last), None
        body = msgspec.json.encode(wrong).decode()
        if reason == Reason.UNREADABLE:
            is_truncated = self._fault.random() < 0.5
            body = body[: len(body) // 2] if is_truncated else f"not json {{{self._messages}"
        self.counts[reason] += 1
        yield self._message(store, body)

    def _strikes(self, is_on: bool, share: float) -> bool:  # noqa: FBT001 - reads as a sentence
        return is_on and self._fault.random() < share

    def _fields(self, store: _Store, change: RowChange) -> dict[str, Any]:
        return {
            "contract_version": VERSION,
            "entity": change.entity,
            "operation": change.op,
            "primary_key": change.primary_key,
            "source_account_id": store.kitchen.account,
            "store_guid": store.kitchen.guid,
            "is_deleted": change.op == "d" or change.row["is_deleted"],
            "occurred_at": instant(self._moment()),
            "sequence": {"stream_key": store.kitchen.stream, "stream_position": store.position},
            "before": change.before,
            "after": change.after,
        }

    def _message(self, store: _Store, body: str) -> Message:
        self._messages += 1
        return Message(body, store.kitchen.stream, f"{self.seed}-{self._messages}")


def _conflicting(fields: dict[str, Any]) -> dict[str, Any]:
    """The same change with another content."""
    part = "before" if fields["after"] is None else "after"
    return {**fields, part: {**fields[part], "is_deleted": not fields[part]["is_deleted"]}}
