"""Durable counts of rounds that wrote no segment: duplicates, control messages, given-up rounds."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from kds_cdc_dagster.errors import ObjectExists
from kds_cdc_dagster.journal.keys import part
from kds_cdc_dagster.ports import ObjectStore


def write_counts(store: ObjectStore, worker: str, counts: Mapping[str, int], now: float) -> None:
    """Write one object of counts under its day."""
    at = datetime.fromtimestamp(now, UTC)
    key = f"counts/{at:%Y-%m-%d}/{at:%H%M%S%f}-{part(worker)}-{secrets.token_hex(4)}.json"
    with suppress(ObjectExists):  # the client's own retry met what it had written: the name is nobody else's
        store.create(key, msgspec.json.encode(dict(counts)))


def read_counts(store: ObjectStore, since: datetime | None = None) -> Iterator[dict[str, int]]:
    """Counts written since a moment (UTC), oldest first."""
    after = f"counts/{since:%Y-%m-%d}/{since:%H%M%S%f}" if since else ""
    for info in store.scan("counts/", after=after):
        yield msgspec.json.decode(store.get(info.key), type=dict[str, int])
