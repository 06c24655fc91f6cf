"""Logs: the dense run of segments of one claim, and where its sealed part ends."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kds_cdc_dagster.errors import InvariantBroken, ObjectExists
from kds_cdc_dagster.journal import keys, segment
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.journal.segment import Segment
from kds_cdc_dagster.ports import ObjectStore


def manifests_after(store: ObjectStore, claim: str, slot: int) -> Iterator[Manifest]:
    """Manifests of a log's batches that begin after `slot`, in order."""
    after = keys.manifests(claim) + keys.slot_name(slot) + ".json"
    for info in store.scan(keys.manifests(claim), after=after):
        yield msgspec.json.decode(store.get(info.key), type=Manifest)


def sealed_slot(store: ObjectStore, claim: str, hint: int = 0) -> int:
    """Last slot of the log that is in a sealed batch (0: none), looking on from `hint`."""
    last = hint
    for manifest in manifests_after(store, claim, hint):
        last = max(last, manifest.last_slot)
    return last


class Tail:
    """The unsealed end of a log: segments in slot order, and whether an END closes it.

    Raises InvariantBroken if the log is not dense.
    """

    def __init__(self, store: ObjectStore, claim: str, after_slot: int) -> None:
        self._store = store
        self.claim = claim
        self.is_closed = False
        self.last_slot = after_slot
        self._first = after_slot + 1
        # A listing under way while the owner puts may show a slot and not the one before: list on from there.
        if not self._walked() and not self._walked():
            raise InvariantBroken("a log has a hole", claim=claim, after=self.last_slot)

    def _walked(self) -> bool:
        """Walk on to the log's end; False at a hole."""
        after = keys.log(self.claim) + keys.slot_name(self.last_slot) + ".parquet"
        for info in self._store.scan(keys.log(self.claim), after=after):
            id_ = keys.segment_of(info.key)
            if id_.slot != self.last_slot + 1:
                return False
            if info.size_bytes == len(segment.END) and segment.read(self._store, id_) is None:
                self.is_closed = True
                break
            self.last_slot = id_.slot
        return True

    @property
    def slots(self) -> range:
        """Slots of the unsealed segments."""
        return range(self._first, self.last_slot + 1)

    def segments(self) -> Iterator[Segment]:
        """The segments, read one by one."""
        for slot in self.slots:
            found = segment.read(self._store, SegmentId(self.claim, slot))
            if found is None:
                raise InvariantBroken("a segment turned into an END", claim=self.claim, slot=slot)
            yield found


def closed_tail(store: ObjectStore, claim: str, after_slot: int) -> Tail:
    """Close the log with an END at its next slot (create-only), then read its tail."""
    tail = Tail(store, claim, after_slot)
    while not tail.is_closed:
        try:
            store.create(keys.segment(SegmentId(claim, tail.last_slot + 1)), segment.END)
        except ObjectExists:
            tail = Tail(store, claim, after_slot)
            continue
        tail.is_closed = True
    return tail
