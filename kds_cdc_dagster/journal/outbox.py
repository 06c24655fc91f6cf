"""The outbox: sealed batches that are not loaded yet.

An entry is created before the manifest and is void without it. It leaves when `done/<batch>` says that
every target of the batch is in the load ledger.
"""

from __future__ import annotations

from collections.abc import Iterator

from kds_cdc_dagster.errors import ObjectExists, ObjectMissing
from kds_cdc_dagster.journal import keys, manifest
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.ports import ObjectStore

PREFIX = "outbox/"


def announce(store: ObjectStore, batch: str) -> None:
    """Put a batch into the outbox."""
    try:
        store.create(keys.outbox(batch), b"")
    except ObjectExists:
        return


def waiting(store: ObjectStore, *, after: str = "") -> Iterator[str]:
    """Batches in the outbox, sorted by id."""
    for info in store.scan(PREFIX, after=keys.outbox(after) if after else ""):
        yield keys.unpart(info.key.removeprefix(PREFIX))


def sealed(store: ObjectStore, batch: str) -> Manifest | None:
    """Manifest of a waiting batch, or None while the entry is void."""
    try:
        return manifest.read(store, batch)
    except ObjectMissing:
        return None


def is_done(store: ObjectStore, batch: str) -> bool:
    """Whether every target of the batch has it."""
    return store.exists(keys.done(batch))


def leave(store: ObjectStore, batch: str) -> None:
    """Take a loaded batch out of the outbox."""
    store.delete([keys.outbox(batch)])
