"""Compare curated rows with the rows that the source itself held at the end.

The oracle is JSON as a database driver would dump it: decimals and times as text, intervals as
{"seconds": …}, bytes as {"hex": …} or base64 text. Both sides are brought to one form by the column's declared type.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from kds_cdc_dagster.core.catalogue import Entity

Row = dict[str, object]


def differences(entity: Entity, expected: Iterable[Mapping[str, Any]], found: Iterable[Mapping[str, Any]]) -> list[str]:
    """What differs, as texts that name key and column; empty if both hold the same rows."""
    wanted = _by_key(entity, expected)
    present = _by_key(entity, found)
    texts = [f"{entity.name} {key}: missing" for key in wanted.keys() - present.keys()]
    texts += [f"{entity.name} {key}: not in the source" for key in present.keys() - wanted.keys()]
    for key in wanted.keys() & present.keys():
        for column in entity.columns:
            if wanted[key][column.name] != present[key][column.name]:
                texts.append(f"{entity.name} {key}: column {column.name} differs")
    return sorted(texts)


def _by_key(entity: Entity, rows: Iterable[Mapping[str, Any]]) -> dict[tuple[object, ...], Row]:
    found: dict[tuple[object, ...], Row] = {}
    for row in rows:
        plain = {column.name: _plain(column.type, row[column.name]) for column in entity.columns}
        found[tuple(plain[name] for name in entity.primary_key)] = plain
    return found


def _plain(declared: str, value: Any) -> object:
    """One form for what a driver, DuckDB and the oracle write in different ways."""
    if value is None:
        return None
    return _FORMS.get(declared.split("(", maxsplit=1)[0], str)(value)


def _number(value: Any) -> Decimal:
    if isinstance(value, dict):
        return Decimal(str(value["seconds"]))
    if isinstance(value, timedelta):
        return Decimal(str(value.total_seconds()))
    return Decimal(str(value))


def _boolean(value: Any) -> bool:
    return value["hex"].strip("0") != "" if isinstance(value, dict) else bool(value)


def _moment(value: Any) -> datetime:
    found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def _day(value: Any) -> date:
    return value if isinstance(value, date) else date.fromisoformat(value)


def _time_of_day(value: Any) -> timedelta:
    if isinstance(value, dict):
        return timedelta(seconds=value["seconds"])
    found = value if isinstance(value, time) else time.fromisoformat(value)
    return timedelta(hours=found.hour, minutes=found.minute, seconds=found.second, microseconds=found.microsecond)


def _json(value: Any) -> str:
    return json.dumps(json.loads(value) if isinstance(value, str) else value, sort_keys=True)


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return b64decode(value)
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else bytes(value)


_FORMS: dict[str, Callable[[Any], object]] = {
    "smallint": _number,
    "integer": _number,
    "bigint": _number,
    "decimal": _number,
    "double": float,
    "boolean": _boolean,
    "date": _day,
    "time": _time_of_day,
    "timestamp": _moment,
    "timestamptz": _moment,
    "json": _json,
    "binary": _bytes,
}
