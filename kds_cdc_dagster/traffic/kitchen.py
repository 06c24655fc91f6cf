"""One store's kitchen as its database sees it: tickets open, cook, are bumped and served; some are voided.

Rows have the columns of the packaged catalogue, in the mock contract's natural JSON: decimals and times as text,
binary as base64. The kitchen keeps its tables, so each change carries its true `before`; old tickets are purged,
so that a kitchen that runs for days stays small.
"""

from __future__ import annotations

import base64
import uuid
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

Row = dict[str, Any]
Key = tuple[Any, ...]

KEYS: dict[str, tuple[str, ...]] = {
    "station": ("store_guid", "station_id"),
    "kitchen_ticket": ("ticket_id",),
    "kitchen_ticket_item": ("item_id",),
    "bump_event": ("event_id",),
}
STATIONS = ("grill", "fry", "salad", "expo")
OPEN_TICKETS_MAX = 12
CLOSED_TICKETS_MAX = 200
"""Served tickets that a kitchen keeps; older ones are purged with their items and events."""
VOID_SHARE, KEY_REUSE_SHARE, SOFT_DELETE_SHARE = 0.08, 0.3, 0.05
_DISHES = ("Burger", "Crème brûlée", "担々麺", "Fries", "Salade niçoise", "Taco", "Flat white ☕", 'O\'Brien "special"')
_NOTES = (None, None, None, "no onions", "allergy: nuts ⚠", "birthday 🎂", "line one\nline two")


@dataclass(frozen=True, slots=True)
class RowChange:
    """One change of one row: op is c, u or d."""

    entity: str
    op: str
    before: Row | None
    after: Row | None

    @property
    def row(self) -> Row:
        """The image that is there."""
        return self.after or self.before or {}

    @property
    def primary_key(self) -> Row:
        """Key columns and their values."""
        return {name: self.row[name] for name in KEYS[self.entity]}


class Kitchen:
    """A store. Ids start at `first_id`; a kitchen uses fewer than a thousand million of them."""

    def __init__(self, random: Random, account: str, *, first_id: int, opened_at: datetime) -> None:
        self._random = random
        self.account = account
        self.guid = self._uuid()
        self._next_id = first_id
        self._now = opened_at
        self._tables: dict[str, dict[Key, Row]] = {entity: {} for entity in KEYS}
        self._plan: deque[tuple[str, str, Row]] = deque()
        self._children: dict[int, list[tuple[str, Key]]] = {}
        """Items and events of each ticket that is there."""
        self._open: list[int] = []
        self._closed: deque[int] = deque()
        self._free_ids: list[int] = []
        """Of voided tickets: some come back, so that a key is deleted and created again."""
        for number, kind in enumerate(STATIONS):
            self._plan.append(("station", "c", self._station(number, kind)))

    @property
    def stream(self) -> str:
        """The ordering scope, and the FIFO group."""
        return f"{self.account}:{self.guid}"

    def next_change(self, now: datetime) -> RowChange:
        """The store's next change, which happens `now`."""
        self._now = now
        while not self._plan:
            self._plan_next()
        entity, op, values = self._plan.popleft()
        table = self._tables[entity]
        key = tuple(values[name] for name in KEYS[entity])
        before = table.get(key)
        if op == "d":
            return RowChange(entity, op, table.pop(key), None)
        if op == "c" and entity in {"kitchen_ticket_item", "bump_event"}:
            self._children.setdefault(values["ticket_id"], []).append((entity, key))
        after = {**(before or {}), **values}
        if "updated_at" in after:
            after["updated_at"] = self._instant()
        table[key] = after
        return RowChange(entity, op, before, after)

    # --- what happens in a kitchen ------------------------------------------------------------

    def _plan_next(self) -> None:
        if len(self._closed) > CLOSED_TICKETS_MAX:
            return self._remove(self._closed.popleft())
        share = self._random.random()
        if not self._open or (share < 0.3 and len(self._open) < OPEN_TICKETS_MAX):
            return self._open_ticket()
        ticket_id = self._random.choice(self._open)
        if share < 0.3 + VOID_SHARE:
            return self._void(ticket_id)
        if share < 0.42:
            config = {"columns": self._random.randint(2, 8), "theme": "dark"}
            return self._update("station", store_guid=self.guid, station_id=self._random.randrange(4), config=config)
        return self._advance(ticket_id)

    def _open_ticket(self) -> None:
        is_reuse = self._free_ids and self._random.random() < KEY_REUSE_SHARE
        ticket_id = self._free_ids.pop() if is_reuse else self._new_id()
        self._plan.append(("kitchen_ticket", "c", self._ticket(ticket_id)))
        for _ in range(self._random.randint(1, 4)):
            self._plan.append(("kitchen_ticket_item", "c", self._item(ticket_id)))
        self._open.append(ticket_id)

    def _advance(self, ticket_id: int) -> None:
        """Open, cooking, served; serving bumps the ticket and its items, and a few are recalled."""
        status = self._tables["kitchen_ticket"][ticket_id,]["status"]
        if status == "open":
            return self._update("kitchen_ticket", ticket_id=ticket_id, status="cooking")
        for item_id in [key[0] for entity, key in self._children[ticket_id] if entity == "kitchen_ticket_item"]:
            prep_seconds = round(self._random.uniform(30, 900), 3)
            self._update("kitchen_ticket_item", item_id=item_id, prep_seconds=prep_seconds)
            self._plan.append(("bump_event", "c", self._bump(ticket_id, item_id, "bump")))
        if self._random.random() < 0.1:
            self._plan.append(("bump_event", "c", self._bump(ticket_id, None, "recall")))
            return self._update("kitchen_ticket", ticket_id=ticket_id, status="open")
        is_deleted = self._random.random() < SOFT_DELETE_SHARE
        self._update("kitchen_ticket", ticket_id=ticket_id, status="served", is_deleted=is_deleted)
        self._open.remove(ticket_id)
        self._closed.append(ticket_id)
        return None

    def _void(self, ticket_id: int) -> None:
        self._open.remove(ticket_id)
        self._remove(ticket_id)
        if len(self._free_ids) < OPEN_TICKETS_MAX:
            self._free_ids.append(ticket_id)

    def _remove(self, ticket_id: int) -> None:
        for entity, key in reversed(self._children.pop(ticket_id, [])):
            self._plan.append((entity, "d", self._tables[entity][key]))
        self._plan.append(("kitchen_ticket", "d", {"ticket_id": ticket_id}))

    def _update(self, entity: str, **values: object) -> None:
        self._plan.append((entity, "u", values))

    # --- rows ---------------------------------------------------------------------------------

    def _common(self) -> Row:
        return {"account_id": self.account, "store_guid": self.guid, "is_deleted": False}

    def _station(self, number: int, kind: str) -> Row:
        own = {
            "station_id": number,
            "name": f"{kind} {number}",
            "kind": kind,
            "config": {"columns": 4, "theme": "light"},
        }
        return {**self._common(), **own, "updated_at": self._instant()}

    def _ticket(self, ticket_id: int) -> Row:
        pick = self._random
        promised_at = self._now + timedelta(minutes=pick.randint(10, 40))
        return {
            **self._common(),
            "ticket_id": ticket_id,
            "order_number": f"{pick.choice('ABC')}-{ticket_id % 10_000:04d}",
            "channel": pick.choice(("dine-in", "takeaway", "delivery")),
            "status": "open",
            "guest_count": pick.choice((None, 1, 2, 4, 8)),
            "total": f"{pick.randint(0, 99_999) / 100:.2f}",
            "tax": f"{pick.randint(0, 9_999_999) / 1_000_000:.6f}",
            "opened_at": self._instant(),
            "promised_at": promised_at.replace(tzinfo=None).isoformat(timespec="microseconds"),
            "business_date": self._now.date().isoformat(),
            "fire_time": self._now.time().isoformat(timespec="microseconds"),
            "notes": pick.choice(_NOTES),
            "allergens": pick.choice((None, [], ["nuts"], ["milk", "soy"])),
            "is_rush": pick.random() < 0.1,
            "updated_at": self._instant(),
        }

    def _item(self, ticket_id: int) -> Row:
        pick = self._random
        return {
            **self._common(),
            "item_id": self._new_id(),
            "ticket_id": ticket_id,
            "name": pick.choice(_DISHES),
            "quantity": f"{pick.choice((1, 1, 1, 2, 0.5)):.3f}",
            "unit_price": pick.choice((None, f"{pick.randint(100, 9999) / 100:.2f}")),
            "prep_seconds": None,
            "modifiers": pick.choice((None, {}, {"add": ["cheese"], "level": 3})),
            "recipe": pick.choice((None, "1. Heat.\n2. Serve.")),
            "updated_at": self._instant(),
        }

    def _bump(self, ticket_id: int, item_id: int | None, action: str) -> Row:
        return {
            **self._common(),
            "event_id": self._uuid(),
            "ticket_id": ticket_id,
            "item_id": item_id,
            "station_id": self._random.randrange(len(STATIONS)),
            "action": action,
            "bumped_at": self._instant(),
            "duration": f"{self._random.randint(0, 900_000_000) / 1_000_000:.6f}",
            "raw": base64.b64encode(self._random.randbytes(6)).decode(),
        }

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _instant(self) -> str:
        return instant(self._now)


def instant(moment: datetime) -> str:
    """ISO text in UTC with microseconds."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
