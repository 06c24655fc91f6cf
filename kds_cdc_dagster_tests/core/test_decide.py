"""The decision by itself: each rule of the intake protocol as a sentence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kds_cdc_dagster.core.decide import (
    Candidate,
    DecideCall,
    DecideEffect,
    DecideReply,
    GapPolicy,
    SettleCall,
    StreamState,
    Verdict,
    applied,
    decide,
    settled,
)
from kds_cdc_dagster.core.position import counter, stream_order

EMPTY = StreamState()


def order(position: int) -> str:
    """A dense stream order."""
    return stream_order(0, counter(position))


def change(position: int, content: str = "h", **options: Any) -> Candidate:
    """The change at a position; its identity determines the position."""
    return Candidate(f"i{position}", content, order(position), **options)


def call(*candidates: Candidate, claim: str = "a", slot: int = 1, floor: str = "", **options: Any) -> DecideCall:
    """A decide call of a sparse stream."""
    return DecideCall("src", "stream", claim, slot, floor, candidates, **options)


def settle_of(decided: DecideCall, reply: DecideReply) -> SettleCall:
    """The settle of the segment that took what was accepted."""
    accepted = (Verdict.ACCEPTED, Verdict.ACCEPTED_GAP)
    taken = [c for c, r in zip(decided.candidates, reply.results, strict=True) if r.verdict in accepted]
    orders = [c.order for c in taken if c.order]
    markers = tuple((c.identity, c.content_hash) for c in taken)
    return SettleCall(decided.source, decided.stream, decided.segment, markers, max(orders, default=""))


def verdicts(state: StreamState, decided: DecideCall) -> list[str]:
    """The verdicts as text."""
    return [str(result.verdict) for result in decide(state, decided)[0].results]


def after(state: StreamState, decided: DecideCall, *, is_settled: bool = True) -> StreamState:
    """State after a call, and after its segment was settled."""
    reply, effect = decide(state, decided)
    state = applied(state, effect)
    return settled(state, settle_of(decided, reply)) if is_settled else state


def test_s03_same_content_again_is_a_safe_duplicate() -> None:
    """After the settle, and the second time within one call."""
    assert verdicts(EMPTY, call(change(1), change(1))) == ["accepted", "safe_duplicate"]
    assert verdicts(after(EMPTY, call(change(1))), call(change(1), claim="b")) == ["safe_duplicate"]


def test_s03_the_marker_speaks_before_the_position() -> None:
    """A connector may send a change again at another position: it is still the same change."""
    state = after(EMPTY, call(change(5)))
    moved = Candidate("i5", "h", order(9))
    assert verdicts(state, call(moved, claim="b")) == ["safe_duplicate"]


@pytest.mark.parametrize("is_settled", [True, False])
def test_s04_other_content_is_suspicious_and_writes_nothing(is_settled: bool) -> None:  # noqa: FBT001
    """Against a committed marker, against this call's own, and twice within the call."""
    state = after(EMPTY, call(change(1)), is_settled=is_settled)
    reply, effect = decide(state, call(change(1, "other")))
    assert [result.verdict for result in reply.results] == [Verdict.SUSPICIOUS_DUPLICATE]
    assert effect == DecideEffect()
    assert verdicts(EMPTY, call(change(1), change(1, "other"))) == ["accepted", "suspicious_duplicate"]


def test_s04_other_content_that_is_in_flight_elsewhere_is_in_doubt() -> None:
    """The other segment may turn out never to have been written: then this one is the first."""
    state = after(EMPTY, call(change(1)), is_settled=False)
    assert verdicts(state, call(change(1, "other"), claim="b")) == ["in_doubt"]
    resolved = call(change(1, "other"), claim="b", known_absent=frozenset({"a/1"}))
    assert verdicts(state, resolved) == ["accepted"]


def test_s05_an_older_position_is_stale_and_moves_nothing() -> None:
    """Within a call and across calls; the base goes on from the highest accepted."""
    assert verdicts(EMPTY, call(change(5), change(3), change(6))) == ["accepted", "stale", "accepted"]
    assert verdicts(after(EMPTY, call(change(5))), call(change(3), change(6))) == ["stale", "accepted"]


def test_s05_a_late_change_declared_new_passes_and_does_not_lower_the_base() -> None:
    """The durable records do not know it, and the policy (or being a sibling) lets it in."""
    state = after(EMPTY, call(change(5)))
    asked = call(change(3, declared_new=True), change(4), change(6))
    assert verdicts(state, asked) == ["accepted", "stale", "accepted"]
    assert after(state, call(change(3, declared_new=True))).committed == order(5)


def test_s05_siblings_of_one_commit_pass_together() -> None:
    """Equal to what this very call took in last; equal to what was there before, the records must answer."""
    twin = Candidate("twin", "h", order(5))
    assert verdicts(EMPTY, call(change(5), twin)) == ["accepted", "accepted"]
    assert verdicts(after(EMPTY, call(change(5))), call(twin)) == ["stale"]
    assert verdicts(EMPTY, call(change(5), change(6), twin)) == ["accepted", "accepted", "stale"]
    assert verdicts(EMPTY, call(change(5), twin, is_dense=True)) == ["accepted", "stale"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (GapPolicy.ACCEPT, ["accepted_gap", "accepted"]),
        (GapPolicy.QUARANTINE, ["gap", "gap"]),
        (GapPolicy.HOLD, ["parked", "parked"]),
    ],
)
def test_s06_a_skipped_position_goes_by_policy(policy: GapPolicy, expected: list[str]) -> None:
    """The same on every worker: state, call and policy decide, nothing else."""
    state = after(EMPTY, call(change(1)))
    asked = call(change(3), change(4), is_dense=True, on_gap=policy)
    assert verdicts(state, asked) == expected
    assert verdicts(state, msgspec.structs.replace(asked, claim="b", slot=9)) == expected


def test_s06_sparse_streams_and_first_messages_have_no_gaps() -> None:
    """A stream that never accepted anything may begin anywhere."""
    assert verdicts(after(EMPTY, call(change(1))), call(change(9))) == ["accepted"]
    first = call(change(7), change(8), is_dense=True, on_gap=GapPolicy.QUARANTINE)
    assert verdicts(EMPTY, first) == ["accepted", "accepted"]


def test_s06_a_gap_that_holds_parks_the_rest_and_remembers_its_parker() -> None:
    """What came before the gap is accepted; the hold names where it began."""
    state = after(EMPTY, call(change(1)))
    asked = call(change(2), change(4), change(5), slot=7, is_dense=True, on_gap=GapPolicy.HOLD)
    reply, effect = decide(state, asked)
    assert [result.verdict for result in reply.results] == ["accepted", "parked", "parked"]
    assert reply.hold == f"gap after {order(2)}"
    held = applied(state, effect)
    assert (held.hold, held.hold_version, held.parkers) == (reply.hold, 1, {"a": 7})
    assert set(held.pending) == {"i2"}


def test_s07_of_two_claims_one_owns_the_message_and_the_other_is_told_where() -> None:
    """Whoever comes second gets the name of the first one's segment, and has written nothing."""
    state = after(EMPTY, call(change(1), change(2), claim="a"), is_settled=False)
    reply, effect = decide(state, call(change(2), change(3), claim="b"))
    assert reply.doubts == {"a/1"}
    assert effect == DecideEffect()
    assert applied(state, effect) == state


def test_s08_pending_then_committed() -> None:
    """Redelivered before the settle it is in doubt, unless to the same segment; after it, a duplicate."""
    asked = call(change(1))
    pending = after(EMPTY, asked, is_settled=False)
    assert verdicts(pending, asked) == ["accepted"]
    assert verdicts(pending, call(change(1), slot=2)) == ["in_doubt"]
    assert verdicts(after(EMPTY, asked), call(change(1), slot=2)) == ["safe_duplicate"]


def test_s08_a_settle_without_its_pending_marker_still_counts() -> None:
    """The marker may have died or been flushed: a durable record always counts."""
    asked = call(change(1))
    state = settled(EMPTY, settle_of(asked, decide(EMPTY, asked)[0]))
    assert state == after(EMPTY, asked)


def test_s28_the_retry_of_a_call_gets_the_same_answer_with_its_gaps() -> None:
    """Own markers are met, and are nobody else's."""
    state = after(EMPTY, call(change(1)))
    asked = call(change(1), change(2), change(5), change(6), slot=2, is_dense=True)
    reply, effect = decide(state, asked)
    assert decide(applied(state, effect), asked) == (reply, effect)
    assert [result.verdict for result in reply.results] == ["safe_duplicate", "accepted", "accepted_gap", "accepted"]


def test_s29_a_call_names_its_stream_but_decides_by_the_given_state_alone() -> None:
    """Scoping is the store's: with another pipeline's (empty) state the same identity is new."""
    asked = call(change(1))
    assert verdicts(after(EMPTY, asked), call(change(1), slot=2)) == ["safe_duplicate"]
    assert verdicts(EMPTY, call(change(1), slot=2)) == ["accepted"]


def test_s32_a_held_stream_parks_what_is_new_and_knows_its_duplicates() -> None:
    """A release passes; each parking call raises the version that a release must match."""
    state = msgspec.structs.replace(after(EMPTY, call(change(1))), hold="operator", hold_version=3)
    asked = call(change(1), change(2), slot=5)
    assert verdicts(state, asked) == ["safe_duplicate", "parked"]
    parked = applied(state, decide(state, asked)[1])
    assert (parked.hold, parked.hold_version, parked.parkers) == ("operator", 4, {"a": 5})
    assert verdicts(parked, call(change(2), slot=6, is_release=True)) == ["accepted"]


def test_rule_f_nothing_at_or_below_the_claims_own_floor_is_accepted() -> None:
    """The store may have forgotten; the claim has not."""
    assert verdicts(EMPTY, call(change(4), change(5), floor=order(4))) == ["stale", "accepted"]
