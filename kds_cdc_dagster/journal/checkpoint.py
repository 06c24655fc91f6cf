"""Checkpoints: where every stream ended in sealed batches, so that a rebuild need not read every manifest.

A checkpoint holds the ends of the lanes of all batches it was made from, and names those whose manifests were
there. What is known is the union of all checkpoints and of the manifests that none of them names: each may be
missing or old, and two may be made at once. Two orders make that union whole at every moment: a manifest is
removed only after a checkpoint names it, and a listing of manifests comes before the one of checkpoints. A
checkpoint is removed long after another one took it in: by the run after that one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from kds_cdc_dagster.errors import ObjectExists, ObjectMissing
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.ports import ObjectStore

PREFIX = "checkpoints/"
BATCHES = "batches/"
EVERY_BATCHES = 64
"""A checkpoint is worth its size after so many new batches."""

Stream = tuple[str, str]
"""(source, stream)."""


@dataclass(frozen=True, slots=True)
class LaneEnd:
    """The highest order and row position of a stream, and the lineage of that order."""

    order: str = ""
    row_position: str = ""
    lineage: str = ""

    def raised(self, found: LaneEnd) -> LaneEnd:
        """The highest of both."""
        newer, older = (found, self) if found.order >= self.order else (self, found)
        return LaneEnd(newer.order, max(self.row_position, found.row_position), newer.lineage or older.lineage)


class Checkpoint(msgspec.Struct, frozen=True):
    """As it is stored."""

    ends: tuple[tuple[str, str, LaneEnd], ...]
    """(source, stream, end)."""
    manifests: tuple[str, ...]
    """Keys below `batches/` of the manifests in it that were still there."""
    takes_in: tuple[str, ...] = ()
    """Checkpoints that are in this one."""


class Ends(dict[Stream, LaneEnd]):
    """Where streams ended."""

    def add(self, source: str, stream: str, end: LaneEnd) -> None:
        """Raise the stream's end."""
        self[source, stream] = self.get((source, stream), LaneEnd()).raised(end)


@dataclass(slots=True)
class Sealed:
    """Everything that sealed batches say of their streams."""

    ends: Ends = field(default_factory=Ends)
    manifests: frozenset[str] = frozenset()
    """Keys of all manifests that are there."""
    read: frozenset[str] = frozenset()
    """Those that no checkpoint names."""
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)


def sealed(store: ObjectStore, on_read: Callable[[], None] = lambda: None) -> Sealed:
    """Where all streams ended; `on_read` is called after each object."""
    while True:
        with suppress(ObjectMissing):  # pruned between the listing and the read: list again
            return _sealed(store, on_read)


def _sealed(store: ObjectStore, on_read: Callable[[], None]) -> Sealed:
    found = Sealed(manifests=frozenset(info.key for info in store.scan(BATCHES)))
    for info in store.scan(PREFIX):
        found.checkpoints[info.key] = one = msgspec.json.decode(store.get(info.key), type=Checkpoint)
        for source, stream, end in one.ends:
            found.ends.add(source, stream, end)
        on_read()
    named = {BATCHES + name for one in found.checkpoints.values() for name in one.manifests}
    found.read = found.manifests - named
    for manifest in _manifests(store, found.read):
        for lane in manifest.lanes:
            found.ends.add(lane.source, lane.stream, LaneEnd(lane.last_order, lane.row_position, lane.lineage))
        on_read()
    return found


def _manifests(store: ObjectStore, names: Collection[str]) -> Iterator[Manifest]:
    for name in sorted(names):
        yield msgspec.json.decode(store.get(name), type=Manifest)


def write(store: ObjectStore, *, leaving: Collection[str] = ()) -> frozenset[str]:
    """Write a checkpoint if it is worth it, or if a manifest of `leaving` is in none; remove what others took in.

    Returns the keys of manifests that may leave: some checkpoint has them.
    """
    found = sealed(store)
    if len(found.read) < EVERY_BATCHES and found.read.isdisjoint(leaving):
        return found.manifests - found.read
    new = Checkpoint(
        ends=tuple((*stream, end) for stream, end in sorted(found.ends.items(), key=lambda item: item[0])),
        manifests=tuple(name.removeprefix(BATCHES) for name in sorted(found.manifests)),
        takes_in=tuple(sorted(found.checkpoints)),
    )
    body = msgspec.json.encode(new)
    with suppress(ObjectExists):
        store.create(PREFIX + hashlib.blake2b(body, digest_size=16).hexdigest(), body)
    store.delete({name for one in found.checkpoints.values() for name in one.takes_in} & found.checkpoints.keys())
    return found.manifests
