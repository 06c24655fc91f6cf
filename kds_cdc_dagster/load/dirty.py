"""Dirty targets: merged since their last export. Durable, so that a deferred export is never forgotten.

A mark is made after its merge has committed and before the batch counts as done; an export removes the
marks it found before it read the target. So a target without marks is exported up to its last merge.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.errors import ObjectExists
from kds_cdc_dagster.journal.keys import part, unpart
from kds_cdc_dagster.load.export import current_export
from kds_cdc_dagster.ports import ObjectStore

PREFIX = "dirty/"


def mark(store: ObjectStore, target: str, batch: str) -> None:
    """Note that `batch` changed the target. Repeatable."""
    with suppress(ObjectExists):
        store.create(f"{PREFIX}{part(target)}/{part(batch)}", b"")


def marks(store: ObjectStore, target: str) -> list[str]:
    """Keys of the target's marks, to be given to `clear` once an export that began later is through."""
    return [info.key for info in store.scan(f"{PREFIX}{part(target)}/")]


def clear(store: ObjectStore, keys: Iterable[str]) -> None:
    """Remove marks."""
    store.delete(keys)


def marked(store: ObjectStore, catalogue: Catalogue) -> dict[str, list[str]]:
    """Exported target -> batches since its last export, oldest first. As many objects as merges since then."""
    found: dict[str, list[str]] = {}
    for info in store.scan(PREFIX):
        name, batch = map(unpart, info.key.removeprefix(PREFIX).split("/"))
        target = catalogue.target_by_name.get(name)
        if target is not None and target.export is not None:
            found.setdefault(name, []).append(batch)
    return found


class ExportRhythm:
    """When a target's export is due: at most every so often per target (R4.6)."""

    def __init__(self, store: ObjectStore, catalogue: Catalogue, default_seconds: float) -> None:
        self._store = store
        self._catalogue = catalogue
        self._default_seconds = default_seconds

    def seconds(self, target: str) -> float | None:
        """The target's own interval, else the profile's; None for a target without export."""
        found = self._catalogue.target_by_name.get(target)
        if found is None or found.export is None:
            return None
        every = found.export.every_seconds
        return self._default_seconds if every is None else every

    def is_due(self, target: str, now: float) -> bool:
        """Whether the target has an export and its last one is old enough."""
        every = self.seconds(target)
        if every is None:
            return False
        last = current_export(self._store, target) if every > 0 else None
        return last is None or last.exported_at + every <= now
