"""The workload: Debezium envelopes of PostgreSQL as the captures have them, about 900 bytes each, and their oracle.

Per stream a kitchen that opens tickets, adds items, bumps and updates them, and deletes a few; the same arguments
give the same bytes. Deletes carry the key and invented fillers only, as under the default replica identity.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import starmap
from typing import Any
from uuid import UUID

from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.ports import Message

Key = int | str
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STARTED = 1_793_527_200_000_000
"""2026-11-01 10:00 UTC, microseconds since the epoch."""
_PLAN = "tiitiuibtiiuitdiuibi"
"""What a kitchen does, over and over: opens a ticket, adds an item, updates or deletes a ticket, bumps."""


def _instant(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _iso(micros: int) -> str:
    return f"{_instant(micros):%Y-%m-%dT%H:%M:%S.%f}Z"


def _number(value: int) -> str:
    return b64encode(value.to_bytes((value.bit_length() + 8) // 8 or 1, "big", signed=True)).decode()


def _envelope(table: str, op: str, images: str, lsn: int) -> str:
    micros = _STARTED + lsn
    return (
        f'{{{images},"source":{{"version":"3.6.3.Final","connector":"postgresql","name":"kdsprod",'
        f'"ts_ms":{micros // 1000},"snapshot":"false","db":"postgres","sequence":"[\\"{lsn - 8}\\",\\"{lsn}\\"]",'
        f'"ts_us":{micros},"ts_ns":{micros}000,"schema":"kds","table":"{table}","txId":{lsn >> 4},"lsn":{lsn},'
        f'"xmin":null,"origin":null,"origin_lsn":null}},"transaction":null,"op":"{op}",'
        f'"ts_ms":{micros // 1000 + 90},"ts_us":{micros + 90_123},"ts_ns":{micros + 90_123}456}}'
    )


@dataclass(slots=True)
class _Kitchen:
    account: str
    store: str
    first_id: int
    step: int = 0
    tickets: list[int] = field(default_factory=list)

    @property
    def stream(self) -> str:
        return f"{self.account}:{self.store}"


class Workload:
    """Changes of `streams` kitchens; `ids_from` keeps several workloads apart."""

    def __init__(self, streams: int, ids_from: int = 0) -> None:
        self._kitchens = [
            _Kitchen(f"acct-{n // 4:05d}", str(UUID(int=(n + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128))), n)
            for n in range(ids_from, ids_from + streams)
        ]
        self._ids_from = ids_from
        self._lsn = 23_000_000 + ids_from
        self._sent = 0
        self._rows: dict[str, dict[Key, tuple[Any, ...]]] = {
            "kitchen_ticket": {},
            "kitchen_ticket_item": {},
            "bump_event": {},
        }

    def messages(self, rounds: int, each: int) -> list[Message]:
        """`rounds` times `each` changes of every stream in turn."""
        return [self._next(kitchen) for _ in range(rounds) for kitchen in self._kitchens for _ in range(each)]

    def deliveries(self, rounds: int, each: int) -> list[Delivery]:
        """The same as a queue would hand them over."""
        return [
            Delivery(m.body.encode(), m.group_id, f"{n:020d}", f"m-{n}", f"r-{n}", 1, _STARTED // 1000)
            for n, m in enumerate(self.messages(rounds, each), self._sent + 1)
        ]

    def expected(self) -> dict[str, Iterator[dict[str, Any]]]:
        """Entity -> rows that curated must hold, as `demo.oracle` takes them."""
        shown = {"kitchen_ticket": _shown_ticket, "kitchen_ticket_item": _shown_item, "bump_event": _shown_bump}
        return {entity: starmap(shown[entity], rows.values()) for entity, rows in self._rows.items()}

    def _next(self, kitchen: _Kitchen) -> Message:
        self._sent += 1
        self._lsn += 64
        act = _PLAN[kitchen.step % len(_PLAN)]
        number = (kitchen.first_id << 24) + kitchen.step
        kitchen.step += 1
        body = _ACTS[act](self, kitchen, number, self._lsn)
        return Message(body, kitchen.stream, f"{self._ids_from}-{self._sent}")

    def _open(self, kitchen: _Kitchen, number: int, lsn: int) -> str:
        kitchen.tickets.append(number)
        return self._ticket("c", kitchen, (number, "open"), lsn)

    def _update(self, kitchen: _Kitchen, number: int, lsn: int) -> str:
        del number
        return self._ticket("u", kitchen, (kitchen.tickets[-1], "cooking"), lsn)

    def _ticket(self, op: str, kitchen: _Kitchen, about: tuple[int, str], lsn: int) -> str:
        row = (*about, kitchen.account, kitchen.store, _STARTED + lsn)
        self._rows["kitchen_ticket"][about[0]] = row
        return _envelope("kitchen_ticket", op, f'"before":null,"after":{_ticket_image(*row)}', lsn)

    def _delete(self, kitchen: _Kitchen, number: int, lsn: int) -> str:
        del number
        gone = kitchen.tickets.pop(0)
        del self._rows["kitchen_ticket"][gone]
        return _envelope("kitchen_ticket", "d", f'"before":{_DELETED % gone},"after":null', lsn)

    def _item(self, kitchen: _Kitchen, number: int, lsn: int) -> str:
        row = (number, kitchen.tickets[-1], kitchen.account, kitchen.store, _STARTED + lsn)
        self._rows["kitchen_ticket_item"][number] = row
        return _envelope("kitchen_ticket_item", "c", f'"before":null,"after":{_item_image(*row)}', lsn)

    def _bump(self, kitchen: _Kitchen, number: int, lsn: int) -> str:
        row = (str(UUID(int=number << 60)), kitchen.tickets[-1], kitchen.account, kitchen.store, _STARTED + lsn)
        self._rows["bump_event"][row[0]] = row
        return _envelope("bump_event", "c", f'"before":null,"after":{_bump_image(*row)}', lsn)


_ACTS = {"t": Workload._open, "u": Workload._update, "d": Workload._delete, "i": Workload._item, "b": Workload._bump}
_DELETED = (
    '{"ticket_id":%d,"account_id":"","store_guid":"","order_number":null,"channel":null,"status":"",'
    '"guest_count":null,"total":null,"tax":null,"opened_at":"1970-01-01T00:00:00Z","promised_at":null,'
    '"business_date":0,"fire_time":null,"notes":null,"allergens":null,"is_rush":false,"is_deleted":false,'
    '"updated_at":"1970-01-01T00:00:00.000000Z"}'
)
_DISHES = ("Burger", "Crème brûlée", "担々麺", "Fries")
_MODIFIERS = '[{"qty": 2, "name": "extra cheese"}]'


def _ticket_image(number: int, status: str, account: str, store: str, micros: int) -> str:
    fired = number % 86_400_000_000
    return (
        f'{{"ticket_id":{number},"account_id":"{account}","store_guid":"{store}","order_number":"#{number:08d}",'
        f'"channel":"delivery","status":"{status}","guest_count":{number % 9},"total":"{_number(number % 1_000_000)}",'
        f'"tax":"{_number(number * 7919 % 10**9)}","opened_at":"{_iso(_STARTED + fired)}",'
        f'"promised_at":{_STARTED + fired},"business_date":20758,"fire_time":{fired},'
        f'"notes":"no onions, please","allergens":["nuts"],"is_rush":{"true" if number % 2 else "false"},'
        f'"is_deleted":false,"updated_at":"{_iso(micros)}"}}'
    )


def _shown_ticket(number: int, status: str, account: str, store: str, micros: int) -> dict[str, Any]:
    opened = _instant(_STARTED + number % 86_400_000_000)
    return {
        "ticket_id": number,
        "account_id": account,
        "store_guid": store,
        "order_number": f"#{number:08d}",
        "channel": "delivery",
        "status": status,
        "guest_count": number % 9,
        "total": f"{number % 1_000_000 / 100:.2f}",
        "tax": f"{number * 7919 % 10**9 / 10**6:.6f}",
        "opened_at": opened,
        "promised_at": opened.replace(tzinfo=None),
        "business_date": "2026-11-01",
        "fire_time": (_EPOCH + timedelta(microseconds=number % 86_400_000_000)).time(),
        "notes": "no onions, please",
        "allergens": '["nuts"]',
        "is_rush": bool(number % 2),
        "is_deleted": False,
        "updated_at": _instant(micros),
    }


def _item_image(number: int, ticket: int, account: str, store: str, micros: int) -> str:
    return (
        f'{{"item_id":{number},"ticket_id":{ticket},"account_id":"{account}","store_guid":"{store}",'
        f'"name":"{_DISHES[number % 4]}","quantity":"{_number(number % 5000)}",'
        f'"unit_price":{{"scale":2,"value":"{_number(number % 100_000)}"}},"prep_seconds":{number % 900}.25,'
        f'"modifiers":"{_MODIFIERS.replace(chr(34), chr(92) + chr(34))}","recipe":"{"medium " * 20}",'
        f'"is_deleted":false,"updated_at":"{_iso(micros)}"}}'
    )


def _shown_item(number: int, ticket: int, account: str, store: str, micros: int) -> dict[str, Any]:
    return {
        "item_id": number,
        "ticket_id": ticket,
        "account_id": account,
        "store_guid": store,
        "name": _DISHES[number % 4],
        "quantity": f"{number % 5000 / 1000:.3f}",
        "unit_price": f"{number % 100_000 / 100:.2f}",
        "prep_seconds": number % 900 + 0.25,
        "modifiers": _MODIFIERS,
        "recipe": "medium " * 20,
        "is_deleted": False,
        "updated_at": _instant(micros),
    }


def _bump_image(event: str, ticket: int, account: str, store: str, micros: int) -> str:
    return (
        f'{{"event_id":"{event}","ticket_id":{ticket},"item_id":null,"account_id":"{account}","store_guid":"{store}",'
        f'"station_id":{ticket % 4},"action":"bump","bumped_at":"{_iso(micros)}","duration":239000000,'
        f'"raw":"cbnX1rl7","is_deleted":false}}'
    )


def _shown_bump(event: str, ticket: int, account: str, store: str, micros: int) -> dict[str, Any]:
    return {
        "event_id": event,
        "ticket_id": ticket,
        "item_id": None,
        "account_id": account,
        "store_guid": store,
        "station_id": ticket % 4,
        "action": "bump",
        "bumped_at": _instant(micros),
        "duration": "239",
        "raw": {"hex": "71b9d7d6b97b"},
        "is_deleted": False,
    }
