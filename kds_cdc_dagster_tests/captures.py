"""Recorded change events and the source's own final state, as the tests read them.

The captures come from a real Debezium engine (3.6.3 on PostgreSQL 15; the MySQL connector of 3.0.7 on
MariaDB 10.11) while seeded kitchen traffic ran; long random texts are shortened. The samples are invented
events of every form that Debezium's sinks write, named `<folder>/<number>-<what>`.
"""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kds_cdc_dagster.core.change import Delivery

DATA = Path(__file__).parent / "data"
CAPTURES = ("pg-envelope", "pg-schemas", "pg-unwrapped", "mysql-envelope")


def _read(name: str) -> Any:
    return json.loads(lzma.decompress((DATA / f"{name}.json.xz").read_bytes()))


@dataclass(frozen=True, slots=True)
class Capture:
    """Bodies in the order of the engine (None: a tombstone), and the tables' rows at the end."""

    bodies: tuple[bytes | None, ...]
    state: dict[str, list[dict[str, Any]]]


@cache
def capture(name: str) -> Capture:
    """One of CAPTURES."""
    document = _read(name)
    values = (event["value"] for event in document["events"])
    return Capture(tuple(None if value is None else value.encode() for value in values), document["state"])


@cache
def samples() -> dict[str, bytes]:
    """Sample name -> body."""
    return {name: text.encode() for name, text in _read("debezium-samples").items()}


def group_of(body: bytes) -> str:
    """The group a publisher that follows the hard contract would use: account:store, or source:table."""
    document = json.loads(body)
    document = document.get("payload", document) if "schema" in document else document
    row = document.get("after") or document.get("before") or document
    if row.get("account_id") and row.get("store_guid"):
        return f"{row['account_id']}:{row['store_guid']}"
    source = document.get("source", {})
    return f"{source.get('name', 'kdsprod')}:{source.get('table') or row.get('__table', 'schema')}"


def delivery(body: bytes, group_id: str = "", number: int = 1, **changes: Any) -> Delivery:
    """A first delivery of `body`."""
    fields: dict[str, Any] = {
        "body": body,
        "group_id": group_id or group_of(body),
        "sequence_number": f"{number:020d}",
        "message_id": f"m{number}",
        "receipt": f"r{number}",
        "receive_count": 1,
        "sent_at_ms": 1_796_025_000_000 + number,
    }
    return Delivery(**{**fields, **changes})
