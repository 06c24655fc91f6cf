"""Forms of a delivery: the body as a sink sends it, and how a restarted connector sends it again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import msgspec

from kds_cdc_dagster_tests.synthetic.engine import Document, Event
from kds_cdc_dagster_tests.synthetic.mode import Mode
from kds_cdc_dagster_tests.synthetic.schemas import envelope_schema

_ADDED = {
    "postgresql": ("table", "lsn", "source.ts_ms", "source.txId"),
    "mysql": ("table", "file", "pos", "row", "source.ts_ms"),
}
"""add.fields beside op, as in the `pg-unwrapped` capture, and the least a binlog needs."""
_RICH = (
    *("table", "source.connector", "source.name", "source.db", "source.snapshot", "source.ts_ms", "source.version"),
    *("source.schema", "source.sequence", "source.lsn", "server_id", "gtid", "file", "pos", "row"),
)


def body(event: Event, mode: Mode, dice: Random) -> str | None:
    """The message body; None where nothing is sent (tombstones, truncates that a transformation drops)."""
    document = event.document
    if document is None:
        return dice.choice((None, "null"))
    if "op" in document:
        if mode.is_flattened:
            return _flattened(document, mode)
        now_us = 1_796_025_005_117_758 + dice.randrange(10**9)
        document = {**document, "ts_ms": now_us // 1000, "ts_us": now_us, "ts_ns": now_us * 1000 + dice.randrange(1000)}
    if mode.form == "wrapped":
        schema = {"type": "struct", "fields": [], "optional": False, "name": "control"}
        if event.table is not None and event.table.columns:
            schema = envelope_schema(event.table, mode)
        document = {"schema": schema, "payload": document}
    return msgspec.json.encode(document).decode()


def _flattened(envelope: Document, mode: Mode) -> str | None:
    """ExtractNewRecordState in mode `rewrite`: the row with added fields; a truncate is dropped."""
    if envelope["op"] == "t":
        return None
    is_delete = envelope["op"] == "d"
    row = envelope["before"] if is_delete else envelope["after"]
    added = {"__deleted": "true" if is_delete else "false", "__op": envelope["op"]}
    names = _RICH if mode.form == "flattened_rich" else _ADDED["mysql" if mode.is_binlog else "postgresql"]
    for name in names:
        if name.removeprefix("source.") in envelope["source"]:
            added["__" + name.replace(".", "_")] = envelope["source"][name.removeprefix("source.")]
    return msgspec.json.encode({**row, **added}).decode()


def redelivered(events: Sequence[Event], start: int) -> list[Event]:
    """What a restart from the offset before `events[start]` sends again: another version, perhaps another sequence.

    Without a stored commit the loader takes the last processed position instead. Incremental reads do not
    come again as such: their chunk is read anew.
    """
    again = []
    for number in range(start, len(events)):
        event = events[number]
        if event.is_read:
            continue
        again.append(event if event.document is None else replace(event, document=_again(events, number, start)))
    return again


def _again(events: Sequence[Event], number: int, start: int) -> Document:
    document = events[number].document or {}
    source = document.get("source")
    if source is None:
        return document
    source = {**source, "version": "3.7.0.Final"}
    last, own = json.loads(source["sequence"]) if source["sequence"] else ("", "")
    if last is None:
        source["sequence"] = json.dumps([_processed(events[:start]), own], separators=(",", ":"))
    return {**document, "source": source}


def _processed(events: Sequence[Event]) -> str | None:
    """Position of the last streamed row event; none of a snapshot counts."""
    for event in reversed(events):
        source = (event.document or {}).get("source") or {}
        if source.get("lsn") is not None:
            return None if event.is_read else str(source["lsn"])
    return None
