"""Debezium messages for the contract's tests: a good one, and what the parser makes of it."""

from __future__ import annotations

import json
from typing import Any

from kds_cdc_dagster.catalogue import packaged_text, parse_catalogue
from kds_cdc_dagster.core.change import Change, Parsed, Rejection
from kds_cdc_dagster.core.contracts import Limits, Parser
from kds_cdc_dagster_tests.captures import delivery

STORE = "7c1f3b52-9f5e-4d7a-8a61-2f0c4de91b10"
GROUP = f"acct-001:{STORE}"


def parser(*edits: tuple[str, str]) -> Parser:
    """The parser under the packaged catalogue with (old, new) texts replaced."""
    text = packaged_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return Parser(parse_catalogue(text), Limits(5, 1 << 20, frozenset({"debezium"})))


PARSER = parser()


def body(op: str = "u", *, image: dict[str, Any] | None = None, **source: Any) -> dict[str, Any]:
    """A good envelope of a kitchen ticket, with another row image or source block."""
    row = {"ticket_id": 7, "account_id": "acct-001", "store_guid": STORE, "status": "open"} | (image or {})
    block = {
        "connector": "postgresql",
        "name": "kdsprod",
        "db": "postgres",
        "schema": "kds",
        "table": "kitchen_ticket",
        "sequence": '["100","200"]',
        "lsn": 200,
        "snapshot": "false",
        "ts_ms": 1_796_025_005_026,
    } | source
    images = {"d": (row, None), "t": (None, None)}.get(op, (None, row))
    return {"op": op, "before": images[0], "after": images[1], "source": block, "ts_ms": 1}


def parse(document: object, group: str = GROUP, by: Parser = PARSER, number: int = 9) -> Parsed:
    """What the parser makes of `document`."""
    return by.parse(delivery(json.dumps(document).encode(), group, number))


def change(document: object, group: str = GROUP, by: Parser = PARSER, number: int = 9) -> Change:
    """The change in `document`."""
    found = parse(document, group, by, number)
    assert isinstance(found, Change), found
    return found


def rejection(document: object, group: str = GROUP, by: Parser = PARSER) -> Rejection:
    """The rejection of `document`."""
    found = parse(document, group, by)
    assert isinstance(found, Rejection), found
    return found


def flattened(op: str = "u", **fields: Any) -> dict[str, Any]:
    """A flattened kitchen ticket, with fields added."""
    row = {"ticket_id": 7, "account_id": "acct-001", "store_guid": STORE, "status": "open"}
    return row | {"__op": op, "__table": "kitchen_ticket", "__deleted": "false"} | fields
