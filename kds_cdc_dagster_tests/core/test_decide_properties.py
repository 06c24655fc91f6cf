"""What holds for the decision on any state and any call."""

from __future__ import annotations

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from kds_cdc_dagster.core.decide import (
    Candidate,
    DecideCall,
    DecideEffect,
    GapPolicy,
    Pending,
    StreamState,
    Verdict,
    applied,
    decide,
    settled,
)
from kds_cdc_dagster_tests.core.test_decide import call, change, order, settle_of, verdicts

positions = st.integers(1, 6)
candidates = st.builds(
    change, positions, st.sampled_from(("h", "k")), declared_new=st.sampled_from((False,) * 4 + (True,))
)
snapshots = st.builds(Candidate, st.sampled_from(("r1", "r2")), st.sampled_from(("h", "k")), st.none())
pending = st.dictionaries(
    st.builds("i{}".format, positions),
    st.builds(Pending, st.sampled_from(("h", "k")), st.sampled_from(("a/1", "b/1", "b/2"))),
)
states = st.builds(
    StreamState,
    committed=st.just("") | positions.map(order),
    hold=st.sampled_from(("", "", "", "operator")),
    pending=pending,
    committed_markers=st.dictionaries(st.builds("i{}".format, positions), st.sampled_from(("h", "k"))),
)


def _declared_alike(drawn: list[Candidate]) -> tuple[Candidate, ...]:
    """The records are asked about identities: all candidates of one are declared new, or none."""
    late = {candidate.identity for candidate in drawn if candidate.declared_new}
    return tuple(msgspec.structs.replace(c, declared_new=c.identity in late) for c in drawn)


calls = st.builds(
    DecideCall,
    source=st.just("src"),
    stream=st.just("stream"),
    claim=st.just("a"),
    slot=st.just(1),
    floor=st.just("") | positions.map(order),
    candidates=st.lists(candidates | snapshots, max_size=6).map(_declared_alike),
    is_dense=st.booleans(),
    on_gap=st.sampled_from((GapPolicy.ACCEPT, GapPolicy.QUARANTINE)),
    known_absent=st.frozensets(st.sampled_from(("b/1", "b/2"))),
)


@given(states, calls)
def test_what_is_accepted_by_position_only_grows(state: StreamState, asked: DecideCall) -> None:
    """No accepted order lies below the base, or below one accepted before it.

    Unless it was declared new or is this claim's own retry.
    """
    base = max(state.committed, asked.floor)
    for candidate, result in zip(asked.candidates, decide(state, asked)[0].results, strict=True):
        own = state.pending.get(candidate.identity)
        is_excused = candidate.declared_new or (own is not None and own.segment == asked.segment)
        if result.verdict in (Verdict.ACCEPTED, Verdict.ACCEPTED_GAP) and candidate.order:
            assert is_excused or candidate.order >= base
            assert is_excused or candidate.order > max(state.committed, asked.floor)
            base = max(base, candidate.order)


@given(states, calls)
def test_while_anything_is_in_doubt_nothing_is_written(state: StreamState, asked: DecideCall) -> None:
    """And without doubt exactly the accepted ones get a marker of this segment."""
    reply, effect = decide(state, asked)
    if reply.doubts:
        assert effect == DecideEffect()
        return
    accepted = (Verdict.ACCEPTED, Verdict.ACCEPTED_GAP)
    taken = {c.identity for c, r in zip(asked.candidates, reply.results, strict=True) if r.verdict in accepted}
    assert set(effect.pending) == taken
    assert {mark.segment for mark in effect.pending.values()} <= {asked.segment}


@given(states, calls)
@example(
    StreamState(),
    call(change(5), change(4), change(5), floor=order(3), is_dense=True, on_gap=GapPolicy.QUARANTINE),
)
def test_s28_any_call_can_be_repeated(state: StreamState, asked: DecideCall) -> None:
    """Same verdicts, same markers, whatever the state (redeliveries within the call included)."""
    reply, effect = decide(state, asked)
    again, effect_again = decide(applied(state, effect), asked)
    assert again.results == reply.results
    assert effect_again.pending == effect.pending


@given(states, calls)
def test_s08_after_the_settle_every_accepted_message_is_a_duplicate(state: StreamState, asked: DecideCall) -> None:
    """To any claim, held or not; and settling twice, or an older settle afterwards, changes nothing."""
    reply, effect = decide(state, asked)
    settle = settle_of(asked, reply)
    if reply.doubts:
        return
    done = settled(applied(state, effect), settle)
    assert settled(done, settle) == done
    assert done.committed == max(state.committed, settle.committed)
    taken = [
        c for c in asked.candidates if c.identity in effect.pending and (c.identity, c.content_hash) in settle.markers
    ]
    assert set(verdicts(done, call(*taken, claim="z", slot=9))) <= {"safe_duplicate"}
