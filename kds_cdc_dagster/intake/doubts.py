"""Resolve doubts by content, not by look, and answer late messages from the durable records.

A message that is pending in somebody else's segment is in doubt. Creating that segment's object as an
END makes sure it can never appear any more; finding it there, one reads what it really holds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from kds_cdc_dagster.core.change import Outcome
from kds_cdc_dagster.errors import ObjectExists
from kds_cdc_dagster.intake.settling import Content, Record, records_of, settle
from kds_cdc_dagster.journal import claims, keys, segment
from kds_cdc_dagster.journal.index import IdentityIndex
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.logs import Tail, sealed_slot
from kds_cdc_dagster.ports import Clock, ObjectStore, StateStore

SEGMENTS_CACHED = 256


class DurableRecords:
    """What the immutable objects say about a change. Reads each segment at most once (bounded cache)."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._index = IdentityIndex(store)
        self._segments: OrderedDict[SegmentId, dict[str, str]] = OrderedDict()

    def find(self, identities: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """Identity -> content hashes it was accepted with, from unsealed segments and the index.

        Unsealed first: a segment that is sealed in between is in the index before it leaves the tails.
        """
        found: dict[str, set[str]] = {}
        for taken in self._unsealed():
            for identity in identities:
                if identity in taken:
                    found.setdefault(identity, set()).add(taken[identity])
        for identity, hashes in self._index.find(identities).items():
            found.setdefault(identity, set()).update(hashes)
        return {identity: frozenset(hashes) for identity, hashes in found.items()}

    def _unsealed(self) -> Iterable[dict[str, str]]:
        for heartbeat in claims.open_claims(self._store):
            tail = Tail(self._store, heartbeat.claim, sealed_slot(self._store, heartbeat.claim, heartbeat.sealed_slot))
            for slot in tail.slots:
                yield self._accepted(SegmentId(heartbeat.claim, slot))

    def _accepted(self, id_: SegmentId) -> dict[str, str]:
        taken = self._segments.get(id_)
        if taken is None:
            found = segment.read(self._store, id_)
            taken = accepted_identities(records_of(found)) if found else {}
            self._segments[id_] = taken
            while len(self._segments) > SEGMENTS_CACHED:
                self._segments.popitem(last=False)
        return taken


def accepted_identities(records: Sequence[Record]) -> dict[str, str]:
    """Identity -> content hash of the accepted records: "in the segment" means accepted there."""
    return {record[3]: record[4] for record in records if record[0] == Outcome.ACCEPTED}


class Resolver:
    """Settles doubtful segments on their owner's behalf, or makes sure that they never appear."""

    def __init__(self, *, store: ObjectStore, state: StateStore, clock: Clock, worker: str) -> None:
        self._store = store
        self._state = state
        self._clock = clock
        self._worker = worker

    def resolve(self, life: str, doubtful: SegmentId) -> dict[str, str]:
        """Identities (and hashes) that are in the segment; everything else is known absent there."""
        try:
            self._store.create(keys.segment(doubtful), segment.END)
        except ObjectExists:
            return self._settle_found(life, doubtful)
        return {}

    def _settle_found(self, life: str, doubtful: SegmentId) -> dict[str, str]:
        found = segment.read(self._store, doubtful)
        if found is None:
            return {}
        content = Content.of(found)
        settle(self._state, self._store, life, doubtful, content, worker=self._worker, now=self._clock.now())
        return accepted_identities(content.records)
