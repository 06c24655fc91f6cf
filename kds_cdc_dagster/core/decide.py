"""The decision: which messages of one stream are new, known, doubtful or late.

This is the reference. The embedded store runs it as it stands, the Redis script repeats it, and
property tests hold the two equal. It is pure: `decide` and `settle` take the state of one stream,
and answer with results and with the changes to make; the caller's transaction makes them.

The rules and why each is needed: docs/INVARIANTS.md, "A round".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from kds_cdc_dagster.core.position import NO_POSITION, successor


class Verdict(StrEnum):
    """Answer of the decision for one message."""

    ACCEPTED = "accepted"
    ACCEPTED_GAP = "accepted_gap"
    """New, although the position before it was never seen and the policy lets gaps pass."""
    GAP = "gap"
    """Dense stream, position skipped, policy `quarantine`: nothing written."""
    SAFE_DUPLICATE = "safe_duplicate"
    SUSPICIOUS_DUPLICATE = "suspicious_duplicate"
    STALE = "stale"
    """Not above the base and no marker: the durable records must answer."""
    IN_DOUBT = "in_doubt"
    """Pending in another segment: resolve that segment, then ask again. Nothing was written."""
    PARKED = "parked"


class GapPolicy(StrEnum):
    """What to do when a dense stream skips a position."""

    ACCEPT = "accept"
    QUARANTINE = "quarantine"
    HOLD = "hold"


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """One message put to the decision, in queue order."""

    identity: str
    content_hash: str
    order: str | None
    """Stream order (epoch + position); None for snapshot reads: marker check only."""
    declared_new: bool = False
    """The durable records were asked and do not know it: a sibling at `committed`, or a late
    change that the out_of_order policy lets in."""


class DecideCall(msgspec.Struct, frozen=True):
    """All messages of one stream in one round."""

    source: str
    stream: str
    claim: str
    slot: int
    """The journal slot about to be written under `claim`."""
    floor: str
    """Highest stream order this claim has itself put (rule F); empty if none."""
    candidates: tuple[Candidate, ...]
    is_dense: bool = False
    on_gap: GapPolicy = GapPolicy.ACCEPT
    known_absent: frozenset[str] = frozenset()
    """Segments (claim/slot) in which the doubtful records were looked for and not found."""
    is_release: bool = False
    """The messages come from the park of this held stream: the hold does not stop them."""

    @property
    def segment(self) -> str:
        """Name of the segment about to be written."""
        return f"{self.claim}/{self.slot}"


class Result(msgspec.Struct, frozen=True, gc=False):
    """The verdict on one candidate; `segment` names where a doubtful one is pending."""

    verdict: Verdict
    segment: str = ""


ACCEPTED = Result(Verdict.ACCEPTED)


class DecideReply(msgspec.Struct, frozen=True):
    """Results in the order of the candidates, and the stream's state before the call."""

    results: tuple[Result, ...]
    committed: str = NO_POSITION
    row_position: str = ""
    """Epoch and highest row position settled in the stream; a snapshot that begins below it is suspect."""
    lineage: str = ""
    hold: str = ""
    """Reason of the hold the stream is now under; empty if none."""

    @property
    def is_all_accepted(self) -> bool:
        """Whether every candidate is new and in order, as nearly always."""
        return self.results.count(ACCEPTED) == len(self.results)

    @property
    def doubts(self) -> frozenset[str]:
        """Segments to resolve before the call is repeated; empty when the reply is final."""
        return frozenset(r.segment for r in self.results if r.verdict is Verdict.IN_DOUBT)


class Pending(msgspec.Struct, frozen=True, gc=False):
    """Marker of a change that is in flight."""

    content_hash: str
    segment: str


class StreamState(msgspec.Struct, frozen=True):
    """State of one stream, as far as one call needs it.

    `pending` and `committed_markers` may be restricted to the identities of the call.
    """

    committed: str = NO_POSITION
    row_position: str = ""
    lineage: str = ""
    hold: str = ""
    hold_version: int = 0
    """Raised by every call that parks; a release only succeeds against the version it saw."""
    parkers: Mapping[str, int] = {}
    """claim -> last slot that a parking round of this stream was about to write."""
    pending: Mapping[str, Pending] = {}
    committed_markers: Mapping[str, str] = {}
    """identity -> content hash, inside the duplicate window."""


class DecideEffect(msgspec.Struct, frozen=True):
    """What an accepted call writes: pending markers, and the hold."""

    pending: Mapping[str, Pending] = {}
    hold: str = ""
    parker: tuple[str, int] | None = None
    """Set when at least one message was parked: remember the slot, raise the hold version."""


class SettleCall(msgspec.Struct, frozen=True):
    """All accepted records of one stream in one durable segment."""

    source: str
    stream: str
    segment: str
    markers: tuple[tuple[str, str], ...]
    """(identity, content hash) of each accepted record."""
    committed: str = NO_POSITION
    """Highest stream order among them; empty if they are all snapshot reads."""
    row_position: str = ""
    lineage: str = ""
    message_id: str = ""
    sequence_number: str = ""
    worker: str = ""
    settled_at_ms: int = 0


def decide(state: StreamState, call: DecideCall) -> tuple[DecideReply, DecideEffect]:
    """Decide every candidate of `call` against `state`; the effect is empty while anything is in doubt."""
    round_ = _Round(state, call)
    results = tuple(round_.judge(candidate) for candidate in call.candidates)
    effect = DecideEffect() if round_.is_doubtful else round_.effect()
    hold = state.hold or effect.hold
    return DecideReply(results, state.committed, state.row_position, state.lineage, hold), effect


class _Round:
    """Walks the candidates in order, carrying the base. No other in-flight state enters the base."""

    def __init__(self, state: StreamState, call: DecideCall) -> None:
        self._state = state
        self._call = call
        self._top = self._base = max(state.committed, call.floor)
        self._accepted: dict[str, Pending] = {}
        self._skipping: set[str] = set()
        """Refused for a gap: refused throughout this call, or a retry would find the marker of a later copy first."""
        self._hold = "" if call.is_release else state.hold
        self._parked = 0
        self.is_doubtful = False

    def judge(self, candidate: Candidate) -> Result:
        known = self._marker_verdict(candidate)
        if known is not None:
            return known
        if self._hold:
            return self._park()
        return Result(Verdict.GAP) if candidate.identity in self._skipping else self._judge_order(candidate)

    def _marker_verdict(self, candidate: Candidate) -> Result | None:
        """What the markers alone say; None when they do not know the message."""
        here = self._accepted.get(candidate.identity)
        if here is not None:
            same = here.content_hash == candidate.content_hash
            return Result(Verdict.SAFE_DUPLICATE if same else Verdict.SUSPICIOUS_DUPLICATE)
        committed_hash = self._state.committed_markers.get(candidate.identity)
        if committed_hash is not None:
            same = committed_hash == candidate.content_hash
            return Result(Verdict.SAFE_DUPLICATE if same else Verdict.SUSPICIOUS_DUPLICATE)
        pending = self._state.pending.get(candidate.identity)
        if pending is None or pending.segment in self._call.known_absent:
            return None
        if pending.segment == self._call.segment:
            if pending.content_hash != candidate.content_hash:
                return Result(Verdict.SUSPICIOUS_DUPLICATE)
            return self._accept_again(candidate)
        # Also with another hash: the other segment may turn out never to have been written.
        self.is_doubtful = True
        return Result(Verdict.IN_DOUBT, pending.segment)

    def _accept_again(self, candidate: Candidate) -> Result:
        """A retry of this very call gets the very same answer."""
        order = candidate.order
        gap = order is not None and not candidate.declared_new and self._is_gap(order)
        return self._accept(candidate, Verdict.ACCEPTED_GAP if gap else Verdict.ACCEPTED)

    def _judge_order(self, candidate: Candidate) -> Result:
        order = candidate.order
        if order is None or candidate.declared_new:
            return self._accept(candidate, Verdict.ACCEPTED)
        if order <= self._base and not self._is_sibling(order):
            return Result(Verdict.STALE)
        if not self._is_gap(order):
            return self._accept(candidate, Verdict.ACCEPTED)
        if self._call.on_gap is GapPolicy.ACCEPT:
            return self._accept(candidate, Verdict.ACCEPTED_GAP)
        if self._call.on_gap is GapPolicy.QUARANTINE:
            self._skipping.add(candidate.identity)
            return Result(Verdict.GAP)
        self._hold = f"gap after {self._base}"
        return self._park()

    def _is_sibling(self, order: str) -> bool:
        """Another row of the commit that this very call took in last.

        At a position that was there before the call, a change whose marker is gone may be an old one:
        only the durable records can tell (then it comes back declared new).
        """
        return not self._call.is_dense and order == self._base > self._top

    def _is_gap(self, order: str) -> bool:
        if not self._call.is_dense or self._base == NO_POSITION:
            return False
        return order > self._base and order != successor(self._base)

    def _accept(self, candidate: Candidate, verdict: Verdict) -> Result:
        self._accepted[candidate.identity] = Pending(candidate.content_hash, self._call.segment)
        if candidate.order is not None:
            self._base = max(self._base, candidate.order)
        return Result(verdict)

    def _park(self) -> Result:
        self._parked += 1
        return Result(Verdict.PARKED)

    def effect(self) -> DecideEffect:
        parker = (self._call.claim, self._call.slot) if self._parked else None
        hold = self._hold if self._parked else ""
        return DecideEffect(self._accepted, hold, parker)


def settled(state: StreamState, call: SettleCall) -> StreamState:
    """State after `call`: its markers committed, `committed` never lowered. It never voids anything."""
    markers = dict(call.markers)
    pending = {identity: p for identity, p in state.pending.items() if identity not in markers}
    return msgspec.structs.replace(
        state,
        committed=max(state.committed, call.committed),
        row_position=max(state.row_position, call.row_position),
        lineage=call.lineage or state.lineage,
        pending=pending,
        committed_markers={**state.committed_markers, **markers},
    )


def applied(state: StreamState, effect: DecideEffect) -> StreamState:
    """State after the effect of a decide call."""
    parkers = dict(state.parkers)
    version = state.hold_version
    if effect.parker is not None:
        claim, slot = effect.parker
        parkers[claim] = max(slot, parkers.get(claim, 0))
        version += 1
    return msgspec.structs.replace(
        state,
        pending={**state.pending, **effect.pending},
        hold=effect.hold or state.hold,
        hold_version=version,
        parkers=parkers,
    )
