"""Claims: the registry of logs that are not wholly sealed yet.

A claim's heartbeat object exists from before its first segment until its log is closed and sealed, so
that recovery looks at the few open logs and never at all that ever were.
"""

from __future__ import annotations

import msgspec

from kds_cdc_dagster.errors import ObjectMissing
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.ports import ObjectStore

PREFIX = "heartbeats/"


class Heartbeat(msgspec.Struct, frozen=True):
    """Who holds a claim, since when, last seen."""

    claim: str
    worker: str
    host: str
    process_id: int
    started_at: float
    """Seconds since the epoch."""
    seen_at: float
    sealed_slot: int = 0
    """Every slot up to this one is in a sealed batch: a hint that bounds listings."""
    is_abandoned: bool = False
    """The owner itself gave the claim up: anybody may adopt its log at once."""


def beat(store: ObjectStore, heartbeat: Heartbeat) -> None:
    """Write a claim's heartbeat."""
    store.overwrite(keys.heartbeat(heartbeat.claim), msgspec.json.encode(heartbeat))


def open_claims(store: ObjectStore) -> list[Heartbeat]:
    """Heartbeats of all logs that are not closed and sealed."""
    found = []
    for info in store.scan(PREFIX):
        try:
            found.append(msgspec.json.decode(store.get(info.key), type=Heartbeat))
        except ObjectMissing:
            continue  # closed between the listing and the read
    return found


def forget(store: ObjectStore, claim: str) -> None:
    """Take a closed and wholly sealed log out of the registry."""
    store.delete([keys.heartbeat(claim)])
