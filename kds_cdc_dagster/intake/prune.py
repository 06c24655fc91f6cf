"""Retention of durable objects: what is old, loaded and proven elsewhere goes; what answers for anything stays.

Retention carries weight: segments, ENDs and index answer late redeliveries, so they outlive the queue's
retention plus any redrive (`journal_days` > `queue_retention_days`). Manifests live as long as raw, which
replays start from, and leave once a checkpoint answers for their lanes in a rebuild. Safe to repeat and to die
anywhere: everything goes in an order that leaves no object behind which nothing would ever find again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from kds_cdc_dagster.journal import checkpoint, claims, index, keys, outbox, parked
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.ports import ObjectStore

DAY_SECONDS = 86_400.0
CHUNK = 500


@dataclass(frozen=True, slots=True)
class Retention:
    """How long durable objects live."""

    journal_days: float
    raw_days: float


@dataclass(slots=True)
class Pruned:
    """What went."""

    segments: int = 0
    manifests: int = 0
    index_files: int = 0
    others: int = 0
    """Done records, counts, released pointers, typed artifacts, raw artifacts."""
    kept_back: int = 0
    """Old batches that stay: not loaded, raw not proven, or something of them waits for an operator."""


class Pruner:
    """Prunes one pipeline's objects. `is_raw_good`: whether every raw artifact of the batch proves itself."""

    def __init__(
        self, store: ObjectStore, retention: Retention, now: float, is_raw_good: Callable[[Manifest], bool]
    ) -> None:
        self._store = store
        self._retention = retention
        self._now = now
        self._is_raw_good = is_raw_good

    def prune(self, needed: Iterable[SegmentId] = ()) -> Pruned:
        """One pass. `needed`: segments that somebody still points at (open quarantine rows).

        Costs three listings (a thousand keys a request), and reads what goes and the manifests that no checkpoint
        has yet.
        """
        pruned = Pruned()
        kept = frozenset(needed) | frozenset(self._parked())
        present = frozenset(self._old("journal/", self._retention.journal_days))
        for key in self._old("batches/", self._retention.journal_days):
            if keys.segment(_first_segment(key)) in present:
                self._prune_journal(pruned, self._read(key), kept)
        old = self._old("batches/", self._retention.raw_days)
        known = checkpoint.write(self._store, leaving=old)
        for key in old:
            if key in known and not self._store.exists(keys.segment(_first_segment(key))):
                self._prune_raw(pruned, self._read(key))
        self._prune_ends(pruned)
        pruned.index_files = self._delete(self._old(index.PREFIX, self._retention.journal_days))
        for prefix in ("counts/", "released/", "done/"):
            pruned.others += self._delete(self._old(prefix, self._retention.raw_days))
        return pruned

    def _old(self, prefix: str, days: float) -> list[str]:
        """Objects not written since `days`. A merged index file is as young as its merge."""
        before = self._now - days * DAY_SECONDS
        return [info.key for info in self._store.scan(prefix) if info.modified_at < before]

    def _read(self, key: str) -> Manifest:
        return msgspec.json.decode(self._store.get(key), type=Manifest)

    def _parked(self) -> Iterator[SegmentId]:
        for source, stream in parked.held_streams(self._store):
            yield from parked.outstanding(self._store, source, stream)

    def _prune_journal(self, pruned: Pruned, manifest: Manifest, kept: frozenset[SegmentId]) -> None:
        """The batch's segments and typed artifacts; raw is its truth from now on."""
        if not kept.isdisjoint(manifest.segments) or not self._is_proven(manifest):
            pruned.kept_back += 1
            return
        names = [keys.segment(id_) for id_ in manifest.segments]
        # The first one last: its presence says that the batch is not pruned yet.
        pruned.segments += self._delete([*names[1:], names[0]])
        pruned.others += self._delete(list(self._artifacts(manifest)))

    def _artifacts(self, manifest: Manifest) -> Iterator[str]:
        for entity in manifest.entities:
            yield from (info.key for info in self._store.scan(keys.load(entity, manifest.batch)))

    def _prune_raw(self, pruned: Pruned, manifest: Manifest) -> None:
        """Raw artifacts, what a replay may have typed since, and the manifest last."""
        raw = [key(e, manifest.batch) for e in manifest.entities for key in (keys.raw, keys.raw_sidecar)]
        pruned.others += self._delete([*raw, *self._artifacts(manifest)])
        pruned.manifests += self._delete([keys.manifest(manifest.batch)])

    def _is_proven(self, manifest: Manifest) -> bool:
        is_loaded = outbox.is_done(self._store, manifest.batch) and not manifest.held
        return is_loaded and self._is_raw_good(manifest)

    def _prune_ends(self, pruned: Pruned) -> None:
        """ENDs of logs that are closed and wholly pruned."""
        live = {heartbeat.claim for heartbeat in claims.open_claims(self._store)}
        ends = [(keys.segment_of(key).claim, key) for key in self._old("journal/", self._retention.journal_days)]
        sealed = {claim: any(self._store.scan(keys.manifests(claim))) for claim in {claim for claim, _ in ends} - live}
        pruned.segments += self._delete([key for claim, key in ends if sealed.get(claim) is False])

    def _delete(self, names: list[str]) -> int:
        for at in range(0, len(names), CHUNK):
            self._store.delete(names[at : at + CHUNK])
        return len(names)


def _first_segment(key: str) -> SegmentId:
    """From a manifest's key."""
    _, claim, name = key.split("/")
    return SegmentId(keys.unpart(claim), int(name.removesuffix(".json")))
