"""What every state store must do: the base of its suites.

A subclass gives the fixture `stores`: stores by pipeline name. The decision itself is held by
`core/test_decide.py`, and that all stores make the same ones on any history by
`adapters/test_state_differential.py`; here stand the sentences people rely on.
"""

from __future__ import annotations

import msgspec
import pytest

from kds_cdc_dagster.core.decide import Candidate, DecideCall, GapPolicy
from kds_cdc_dagster.ports import StateStore, StreamRecord
from kds_cdc_dagster_tests.contracts.clocks import ManualClock
from kds_cdc_dagster_tests.contracts.state_calls import (
    STREAM,
    Stores,
    begun,
    call,
    change,
    content_hash,
    identity,
    order,
    settle_of,
    snapshot_read,
    verdicts,
)


class StateFixtures:
    """Stores on a clock that is moved by hand."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def store(self, stores: Stores) -> StateStore:
        return stores("kds")

    @pytest.fixture
    def life(self, store: StateStore) -> str:
        return begun(store)

    def decide(self, store: StateStore, life: str, decided: DecideCall) -> list[str]:
        """Verdicts on one call."""
        return verdicts(store.decide(life, [decided])[0])

    def take(self, store: StateStore, life: str, decided: DecideCall) -> None:
        """Decide and settle a call that is all new."""
        assert set(self.decide(store, life, decided)) == {"accepted"}
        store.settle(life, [settle_of(decided)])


class StateSuite(StateFixtures):
    """Decisions and settles. Run by every adapter."""

    def test_it_is_a_state_store(self, store: StateStore) -> None:
        """Nothing of the port is missing."""
        assert isinstance(store, StateStore)

    def test_s03_the_same_message_again_is_a_safe_duplicate(self, store: StateStore, life: str) -> None:
        """Also twice within one call."""
        assert self.decide(store, life, call(change(1), change(1))) == ["accepted", "safe_duplicate"]
        store.settle(life, [settle_of(call(change(1)))])
        assert self.decide(store, life, call(change(1), slot=2)) == ["safe_duplicate"]

    def test_s03_a_known_identity_at_a_higher_position_is_a_duplicate(self, store: StateStore, life: str) -> None:
        """PostgreSQL's sequence[0] may differ when a connector sends a change again: the marker decides."""
        self.take(store, life, call(change(1)))
        again = Candidate(identity(1), content_hash(0), order(9))
        assert self.decide(store, life, call(again, slot=2)) == ["safe_duplicate"]

    def test_s04_the_same_identity_with_other_content_is_suspicious(self, store: StateStore, life: str) -> None:
        """And leaves the state as it was."""
        self.take(store, life, call(change(1)))
        before = store.stream("kdsprod", STREAM)
        assert self.decide(store, life, call(change(1, content=9), slot=2)) == ["suspicious_duplicate"]
        assert store.stream("kdsprod", STREAM) == before

    def test_s05_an_older_position_is_stale_and_moves_nothing(self, store: StateStore, life: str) -> None:
        """Later positions go on as if it had not come."""
        self.take(store, life, call(change(5)))
        assert self.decide(store, life, call(change(3), change(6), slot=2)) == ["stale", "accepted"]
        record = store.stream("kdsprod", STREAM)
        assert record is not None
        assert record.committed == order(5)

    def test_s06_a_gap_goes_by_policy(self, store: StateStore, life: str) -> None:
        """Dense streams see it; the same state gives the same answer to every claim."""
        self.take(store, life, call(change(1)))
        for claim in ("a", "b"):
            asked = call(change(4), change(5), claim=claim, slot=2, is_dense=True, on_gap=GapPolicy.QUARANTINE)
            assert self.decide(store, life, asked) == ["gap", "gap"]
        again = call(
            change(5), change(4), change(5), floor=order(3), slot=2, is_dense=True, on_gap=GapPolicy.QUARANTINE
        )
        for _ in range(2):  # a copy that comes after what was missing is refused as the first was: a retry cannot tell
            assert self.decide(store, life, msgspec.structs.replace(again, stream="copies")) == [
                "gap",
                "accepted",
                "gap",
            ]
        held = call(change(2), change(4), slot=3, is_dense=True, on_gap=GapPolicy.HOLD)
        reply = store.decide(life, [held])[0]
        assert (verdicts(reply), reply.hold) == (["accepted", "parked"], f"gap after {order(2)}")
        assert [record.stream for record in store.streams(held_only=True)] == [STREAM]
        released = call(change(4), slot=4, is_dense=True, is_release=True)
        assert self.decide(store, life, released) == ["accepted_gap"]

    def test_s06_the_successor_carries_over(self, store: StateStore, life: str) -> None:
        """A dense counter is exact to 64 bits, wherever the store computes it."""
        for last in (0xFFFFFFFF, 2**53, 2**63 - 1):
            self.take(store, life, call(change(last)))
            asked = call(change(last + 1), change(last + 3), slot=2, is_dense=True, on_gap=GapPolicy.QUARANTINE)
            assert self.decide(store, life, asked) == ["accepted", "gap"]

    def test_s08_pending_elsewhere_is_in_doubt_and_writes_nothing(self, store: StateStore, life: str) -> None:
        """Until the doubt is resolved: absent means new, settled means duplicate."""
        self.decide(store, life, call(change(1), claim="a"))
        asked = call(change(1), change(2), claim="b")
        reply = store.decide(life, [asked])[0]
        assert (verdicts(reply), reply.doubts) == (["in_doubt", "accepted"], {"a/1"})
        assert self.decide(store, life, call(change(2), claim="c")) == ["accepted"]  # b wrote nothing
        resolved = call(change(1), change(2), claim="b", known_absent=frozenset({"a/1", "c/1"}))
        assert self.decide(store, life, resolved) == ["accepted", "accepted"]
        store.settle(life, [settle_of(resolved)])
        assert self.decide(store, life, call(change(1), change(2), claim="d")) == ["safe_duplicate"] * 2

    def test_s08_one_streams_doubt_does_not_stop_another(self, store: StateStore, life: str) -> None:
        """Calls of one turn stand alone."""
        self.decide(store, life, call(change(1), claim="a"))
        calls = [call(change(1), claim="b"), call(change(1), claim="b", stream="quiet")]
        assert [verdicts(reply) for reply in store.decide(life, calls)] == [["in_doubt"], ["accepted"]]

    def test_s28_a_call_that_is_retried_gets_the_same_answer(self, store: StateStore, life: str) -> None:
        """The reply was lost; the claim's own markers are no peer's."""
        self.take(store, life, call(change(1)))
        asked = call(change(1), change(2), change(2), change(4), snapshot_read(1), slot=2, is_dense=True)
        first = store.decide(life, [asked])
        assert verdicts(first[0]) == ["safe_duplicate", "accepted", "safe_duplicate", "accepted_gap", "accepted"]
        assert store.decide(life, [asked]) == first

    def test_settling_again_or_late_changes_nothing(self, store: StateStore, life: str) -> None:
        """`committed` is never lowered, the informative fields are the latest settle's."""
        late, newest = call(change(1)), call(change(2), slot=2)
        store.settle(life, [settle_of(newest, message_id="m2", worker="w", settled_at_ms=20, lineage="l")])
        before = store.stream("kdsprod", STREAM)
        store.settle(life, [settle_of(late, message_id="m1", settled_at_ms=10)])
        store.settle(life, [settle_of(newest, message_id="m2", worker="w", settled_at_ms=20, lineage="l")])
        assert store.stream("kdsprod", STREAM) == before
        assert before == StreamRecord(
            "kdsprod", STREAM, order(2), lineage="l", message_id="m2", worker="w", settled_at_ms=20
        )

    def test_snapshot_reads_pass_every_position_and_move_none(self, store: StateStore, life: str) -> None:
        """They only get the marker check."""
        self.take(store, life, call(change(5)))
        self.take(store, life, call(snapshot_read(1), slot=2))
        assert self.decide(store, life, call(snapshot_read(1), change(6), slot=3)) == ["safe_duplicate", "accepted"]
        record = store.stream("kdsprod", STREAM)
        assert record is not None
        assert record.committed == order(5)

    def test_rule_f_a_claim_never_accepts_below_its_own_floor(self, store: StateStore, life: str) -> None:
        """Even if the store forgot."""
        asked = call(change(3), change(4), floor=order(3))
        assert self.decide(store, life, asked) == ["stale", "accepted"]

    def test_s10_a_marker_lives_through_the_window_and_not_for_ever(
        self, store: StateStore, life: str, clock: ManualClock
    ) -> None:
        """Afterwards the answer is `stale`: the durable records must be asked."""
        self.take(store, life, call(change(1)))
        clock.sleep(3600)
        assert self.decide(store, life, call(change(1), slot=2)) == ["safe_duplicate"]
        clock.sleep(901)
        assert self.decide(store, life, call(change(1), slot=2)) == ["stale"]

    def test_s10_a_pending_marker_outlives_the_window(self, store: StateStore, life: str, clock: ManualClock) -> None:
        """Its claim may be slow; the newest marker of an identity is the one that speaks."""
        self.decide(store, life, call(change(1), claim="a"))
        clock.sleep(3600)
        assert self.decide(store, life, call(change(1), claim="b")) == ["in_doubt"]
        resolved = call(change(1), claim="b", known_absent=frozenset({"a/1"}))
        assert self.decide(store, life, resolved) == ["accepted"]
        assert store.decide(life, [call(change(1), claim="c")])[0].doubts == {"b/1"}
        clock.sleep(7200)
        assert self.decide(store, life, call(change(1), claim="d")) == ["accepted"]
