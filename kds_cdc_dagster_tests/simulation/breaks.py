"""Single rules of the protocol, switched off: the simulation must find each. This proves that it can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import msgspec

from kds_cdc_dagster.adapters import stream_records
from kds_cdc_dagster.adapters.memory_state import MemoryState
from kds_cdc_dagster.core.decide import DecideCall, DecideEffect, DecideReply, Pending, StreamState, Verdict, decide
from kds_cdc_dagster.errors import ObjectExists, SlotTaken
from kds_cdc_dagster.intake import adoption
from kds_cdc_dagster.intake import round as rounds
from kds_cdc_dagster.intake.claim import Claim, new_claim
from kds_cdc_dagster.intake.doubts import DurableRecords, Resolver
from kds_cdc_dagster.intake.engine import Intake
from kds_cdc_dagster.intake.round import Round
from kds_cdc_dagster.intake.tenure import Tenure
from kds_cdc_dagster.journal import checkpoint, claims, index, keys, manifest, parked
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.logs import Tail

_patch = mock.patch.object
Decided = tuple[DecideReply, DecideEffect]


def _nothing(*_: object, **__: object) -> None:
    return None


def _without_floor(state: StreamState, call: DecideCall) -> Decided:
    return decide(state, msgspec.structs.replace(call, floor=""))


def _writing_in_doubt(state: StreamState, call: DecideCall) -> Decided:
    reply, effect = decide(state, call)
    if not reply.doubts:
        return reply, effect
    judged = zip(call.candidates, reply.results, strict=True)
    taken = {c.identity: Pending(c.content_hash, call.segment) for c, r in judged if r.verdict is Verdict.ACCEPTED}
    return reply, DecideEffect(taken)


def _siblings_unasked(state: StreamState, call: DecideCall) -> Decided:
    """A change at the position of `committed` is taken for a sibling, though it may be an old one."""
    new = (
        msgspec.structs.replace(c, declared_new=c.declared_new or c.order == state.committed) for c in call.candidates
    )
    return decide(state, call if call.is_dense else msgspec.structs.replace(call, candidates=tuple(new)))


def _by_look(self: Resolver, life: str, doubtful: SegmentId) -> dict[str, str]:
    """Absent because it is not there now: its owner may still put it."""
    is_there = self._store.exists(keys.segment(doubtful))
    return self._settle_found(life, doubtful) if is_there else {}


def _always_absent(self: Resolver, life: str, doubtful: SegmentId) -> dict[str, str]:
    return {}


def _keep_claim(self: Intake, error: Exception, *_: object, **__: object) -> None:
    if isinstance(error, SlotTaken):  # it could never put again
        self.abandon()


def _claim_first(self: Tenure) -> Claim:
    if self.claim is None:
        self.claim = new_claim(self._incumbent.worker, self._clock.now())
        self._beat(self.claim)
    return self.claim


def _put_blindly(self: Round, key: str, body: bytes) -> None:
    try:
        self._store.create(key, body)
    except ObjectExists:
        return


def _seal_again(store: Any, mine: manifest.Manifest) -> bool:
    store.overwrite(keys.manifest(mine.batch), msgspec.json.encode(mine))
    return True


@contextmanager
def _released_again() -> Iterator[None]:
    """A settle that is repeated after the release parks the deliveries anew."""

    def point(store: Any, source: str, stream: str, segment: SegmentId, reason: str) -> None:
        parked._create(store, keys.pointer(keys.parked(source, stream), segment), reason)

    def outstanding(store: Any, source: str, stream: str) -> list[SegmentId]:
        return [parked._segment(info.key) for info in store.scan(keys.parked(source, stream))]

    with _patch(parked, "point", point), _patch(parked, "outstanding", outstanding):
        yield


def _unhold_anyway(self: MemoryState, life: str, source: str, stream: str, hold_version: int) -> bool:
    record = self._records.get((source, stream))
    if record is not None:
        self._records[source, stream] = stream_records.unheld_record(record)
    return True


def _name_unread(store: Any) -> None:
    """A checkpoint names manifests that it does not hold."""
    names = tuple(info.key.removeprefix(checkpoint.BATCHES) for info in store.scan(checkpoint.BATCHES))
    body = msgspec.json.encode(checkpoint.Checkpoint((), names))
    store.overwrite(checkpoint.PREFIX + "only", body)


def _none(*_: object) -> tuple[()]:
    return ()


@dataclass(frozen=True, slots=True)
class Break:
    """A rule that can be switched off, and the faults under which it is needed most."""

    off: Callable[[], AbstractContextManager[object]]
    faults: str
    seed: int = 1
    """One that is known to show it, so that the test need not search."""

    @property
    def focus(self) -> frozenset[str]:
        return frozenset(self.faults.split())


def _break(faults: str, seed: int, owner: object, name: str, replacement: object) -> Break:
    return Break(partial(_patch, owner, name, replacement), faults, seed)


BREAKS = {
    "floor": _break("failover refused_delete expiry", 118, stream_records, "decide", _without_floor),
    "doubts-by-look": _break("zombie expiry", 246, Resolver, "resolve", _by_look),
    "doubts-ignored": _break("zombie expiry", 51, Resolver, "resolve", _always_absent),
    "writes-in-doubt": _break("zombie expiry lost_state", 12, stream_records, "decide", _writing_in_doubt),
    "siblings-unasked": _break("forget refused_delete", 59, stream_records, "decide", _siblings_unasked),
    "adoption-without-end": _break("adopt crash zombie", 8, adoption, "closed_tail", Tail),
    "round-without-settle": _break("crash", 1, rounds, "settle", _nothing),
    "claim-kept": _break("lost_state failed_store zombie", 2, Intake, "_after_failure", _keep_claim),
    "claim-before-heartbeat": _break("failed_store crash", 4, Tenure, "take", _claim_first),
    "conflict-ignored": _break("adopt zombie", 5, Round, "_put", _put_blindly),
    "late-unasked": _break("forget refused_delete", 1, DurableRecords, "find", lambda *_: {}),
    "unindexed": _break("forget refused_delete", 3, index, "write", _nothing),
    "sealed-twice": _break("adopt zombie", 5, manifest, "write", _seal_again),
    "rebuild-without-manifests": _break("flush", 2, checkpoint, "_manifests", _none),
    "checkpoint-without-lanes": _break("flush", 4, checkpoint, "write", _name_unread),
    "rebuild-without-holds": _break("flush operator", 12, parked, "held_streams", _none),
    "released-again": Break(_released_again, "operator adopt", 13),
    "unhold-anyway": _break("operator zombie", 42, MemoryState, "unhold", _unhold_anyway),
    "unadopted": _break("crash", 1, claims, "open_claims", _none),
}
"""Name of the rule -> how to do without it."""
