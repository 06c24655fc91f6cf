"""What every state store must do. A subclass gives the fixture `stores`: stores by pipeline name.

The decision itself is held by `core/test_decide.py`, and that all stores make the same ones on any
history by `adapters/test_state_differential.py`; here stand the sentences people rely on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kds_cdc_dagster.core.decide import Candidate, DecideCall, DecideReply, GapPolicy, SettleCall, Verdict
from kds_cdc_dagster.core.position import counter, stream_order
from kds_cdc_dagster.errors import StateNotReady
from kds_cdc_dagster.ports import Marker, StateStore, StreamRecord
from kds_cdc_dagster_tests.contracts.clocks import ManualClock

STREAM = "acct-001:0c5b…{7}|%7C a"
"""An odd name: braces, which Redis reads as a hash tag, the separator, an escape, beyond ASCII."""
Stores = Callable[[str], StateStore]
"""Pipeline -> a store on the same server or file; each call may be another client."""


def order(position: int, epoch: int = 0) -> str:
    """A dense stream order."""
    return stream_order(epoch, counter(position))


def identity(number: int) -> str:
    """An identity as `core` makes them."""
    return f"{number:032x}"


def content_hash(number: int) -> str:
    """A content hash as `core` makes them."""
    return f"{number:016x}"


def change(position: int, content: int = 0, **options: Any) -> Candidate:
    """The change at a position of a dense stream."""
    return Candidate(identity(position), content_hash(content), order(position), **options)


def snapshot_read(number: int) -> Candidate:
    """A snapshot read: no order."""
    return Candidate(identity(1000 + number), content_hash(number), None)


def call(*candidates: Candidate, claim: str = "a", slot: int = 1, stream: str = STREAM, **options: Any) -> DecideCall:
    """A decide call of a sparse stream, no floor."""
    return DecideCall("kdsprod", stream, claim, slot, options.pop("floor", ""), candidates, **options)


def settle_of(decided: DecideCall, **options: Any) -> SettleCall:
    """The settle of a segment that took every candidate of a call."""
    orders = [c.order for c in decided.candidates if c.order]
    markers = tuple((c.identity, c.content_hash) for c in decided.candidates)
    options.setdefault("committed", max(orders, default=""))
    return SettleCall(decided.source, decided.stream, decided.segment, markers, **options)


def verdicts(reply: DecideReply) -> list[str]:
    """The verdicts as text."""
    return [str(result.verdict) for result in reply.results]


def begun(store: StateStore, streams: Sequence[StreamRecord] = (), markers: Sequence[Marker] = ()) -> str:
    """A finished life."""
    life = store.begin_life()
    assert store.load(life, streams, markers)
    assert store.finish_life(life)
    return life


class StateSuite:
    """Run by every adapter; the clock of the stores is the fixture `clock`."""

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

    def test_it_is_a_state_store(self, store: StateStore) -> None:
        """Nothing of the port is missing."""
        assert isinstance(store, StateStore)

    def test_s09_nothing_is_decided_before_a_rebuild_is_finished(self, store: StateStore) -> None:
        """An empty store, and one whose rebuild is under way, refuse everything."""
        assert store.life() is None
        for life in ("", "x", store.begin_life()):
            with pytest.raises(StateNotReady):
                store.decide(life, [call(change(1))])
            with pytest.raises(StateNotReady):
                store.settle(life, [settle_of(call(change(1)))])
            with pytest.raises(StateNotReady):
                store.hold(life, "kdsprod", STREAM, "no")
        assert store.life() is None
        assert list(store.streams()) == []

    def test_s09_a_later_life_shuts_the_earlier_one_out(self, store: StateStore, stores: Stores) -> None:
        """What a slow rebuild still loads reaches nobody, and it cannot open the other's life."""
        slow, other = store.begin_life(), stores("kds")
        fast = other.begin_life()
        record = StreamRecord("kdsprod", STREAM, committed=order(9))
        assert not store.load(slow, [record], [Marker("kdsprod", STREAM, identity(1), content_hash(1))])
        assert store.stream("kdsprod", STREAM) is None
        assert not store.finish_life(slow)
        assert other.finish_life(fast)
        assert store.life() == fast
        assert not store.load(fast, [record], [])
        with pytest.raises(StateNotReady):
            store.decide(slow, [call(change(1))])

    def test_s09_a_rebuild_never_lowers_anything(self, store: StateStore) -> None:
        """The store may know more than the rebuild read: the higher value, and every hold, stays."""
        known = StreamRecord(
            "kdsprod", STREAM, order(5), "aa", "server-1", "operator", 3, {"a": 2, "b": 1}, "m5", "5", "w", 50
        )
        begun(store, [known])
        old = StreamRecord("kdsprod", STREAM, order(4), "bb", "server-0", "", 1, {"a": 1, "c": 7}, "m4", "4", "v", 40)
        begun(store, [old])
        assert store.stream("kdsprod", STREAM) == StreamRecord(
            "kdsprod", STREAM, order(5), "bb", "server-1", "operator", 3, {"a": 2, "b": 1, "c": 7}, "m5", "5", "w", 50
        )

    def test_s09_rebuilt_markers_prove_duplicates(self, store: StateStore) -> None:
        """The tail that a rebuild loads answers redeliveries at once."""
        life = begun(
            store,
            [StreamRecord("kdsprod", STREAM, order(7))],
            [Marker("kdsprod", STREAM, identity(7), content_hash(0))],
        )
        asked = call(change(7), change(6), change(8))
        assert self.decide(store, life, asked) == ["safe_duplicate", "stale", "accepted"]

    def test_s02_another_worker_goes_on_where_the_first_ended(self, store: StateStore, stores: Stores) -> None:
        """Shared state: no false out-of-order, no double work."""
        life = begun(store)
        self.take(store, life, call(change(1), change(2)))
        other = stores("kds")
        assert other.life() == life
        asked = call(change(2), change(3), claim="b")
        assert self.decide(other, life, asked) == ["safe_duplicate", "accepted"]

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
        """Dense streams see it; the same state gives the same answer."""
        self.take(store, life, call(change(1)))
        assert self.decide(store, life, call(change(4))) == ["accepted"]
        for policy, expected in (("quarantine", "gap"), ("accept", "accepted_gap"), ("hold", "parked")):
            asked = call(change(5), slot=2, is_dense=True, on_gap=GapPolicy(policy))
            assert self.decide(store, life, asked) == [expected]
            self.decide(store, life, call(change(5), slot=2))  # no doubt is left behind
            store.settle(life, [settle_of(call(change(1)))])
            if policy == "accept":
                break
        held = call(change(8), slot=3, is_dense=True, on_gap=GapPolicy.HOLD)
        reply = store.decide(life, [held])[0]
        assert (verdicts(reply), reply.hold) == (["parked"], f"gap after {order(1)}")
        assert [record.stream for record in store.streams(held_only=True)] == [STREAM]

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

    def test_s32_a_held_stream_parks_until_nothing_was_parked_since(self, store: StateStore, life: str) -> None:
        """Others flow; a release passes the hold; the hold ends only against the version that was seen."""
        store.hold(life, "kdsprod", STREAM, "operator")
        store.hold(life, "kdsprod", STREAM, "operator")  # a retry
        seen = store.stream("kdsprod", STREAM)
        assert seen == StreamRecord("kdsprod", STREAM, hold="operator", hold_version=1)
        calls = [call(change(1), change(2), slot=7), call(change(1), stream="quiet")]
        assert [verdicts(reply) for reply in store.decide(life, calls)] == [["parked", "parked"], ["accepted"]]
        assert not store.unhold(life, "kdsprod", STREAM, 1)
        seen = store.stream("kdsprod", STREAM)
        assert seen == StreamRecord("kdsprod", STREAM, hold="operator", hold_version=2, parkers={"a": 7})
        released = call(change(1), change(2), slot=8, is_release=True)
        assert self.decide(store, life, released) == ["accepted", "accepted"]
        assert store.unhold(life, "kdsprod", STREAM, 2)
        assert store.unhold(life, "kdsprod", STREAM, 2)  # a retry
        assert store.stream("kdsprod", STREAM) == StreamRecord("kdsprod", STREAM, hold_version=2)
        assert list(store.streams(held_only=True)) == []

    def test_s29_pipelines_on_one_store_do_not_see_each_other(self, stores: Stores) -> None:
        """Same source, stream and identity; lives too are each pipeline's own."""
        north, south = stores("north"), stores("south")
        life = begun(north)
        assert south.life() is None
        other_life = begun(south)
        self.take(north, life, call(change(1)))
        north.hold(life, "kdsprod", "quiet", "operator")
        self.take(south, other_life, call(change(1, content=5)))
        assert [record.stream for record in south.streams()] == [STREAM]
        with pytest.raises(StateNotReady):
            south.decide(life, [call(change(2))])

    def test_streams_of_like_names_are_kept_apart(self, store: StateStore, life: str) -> None:
        """Separators, escapes and hash tags inside names move nothing."""
        names = [("a", "b|c"), ("a|b", "c"), ("a%7Cb", "c"), ("{x}", "{y}"), ("", "a|b|c"), ("a", "")]
        calls = [DecideCall(source, stream, "w", 1, "", (change(n),)) for n, (source, stream) in enumerate(names, 1)]
        assert {v for reply in store.decide(life, calls) for v in verdicts(reply)} == {"accepted"}
        store.settle(life, [settle_of(decided) for decided in calls])
        found = {(record.source, record.stream): record.committed for record in store.streams()}
        assert found == {name: order(n) for n, name in enumerate(names, 1)}

    def test_s07_two_workers_at_the_same_moment_take_a_message_once(self, store: StateStore, stores: Stores) -> None:
        """Whatever the race, each position has one owner and each worker one whole answer."""
        life = begun(store)
        workers = [stores("kds") for _ in range(4)]

        def race(number: int, position: int) -> DecideReply:
            asked = call(change(position), change(position + 1), claim=f"w{number}", slot=position)
            return workers[number].decide(life, [asked])[0]

        with ThreadPoolExecutor(len(workers)) as pool:
            for position in range(1, 61, 2):
                replies = list(pool.map(race, range(len(workers)), [position] * len(workers)))
                winners = [n for n, reply in enumerate(replies) if not reply.doubts]
                assert len(winners) == 1
                won = call(change(position), change(position + 1), claim=f"w{winners[0]}", slot=position)
                assert verdicts(replies[winners[0]]) == ["accepted", "accepted"]
                assert {reply.doubts for n, reply in enumerate(replies) if n not in winners} == {
                    frozenset({won.segment})
                }
                store.settle(life, [settle_of(won)])

    def test_many_messages_and_streams_fit_one_turn(self, store: StateStore, life: str) -> None:
        """A released park or a rebuild is far bigger than a receive."""
        calls = [call(*map(change, range(1, 6001)), stream="hot")]
        calls += [call(change(1), stream=f"s{n}") for n in range(700)]
        replies = store.decide(life, calls)
        assert [len(reply.results) for reply in replies] == [6000] + [1] * 700
        assert {v for reply in replies for v in verdicts(reply)} == {Verdict.ACCEPTED}
        store.settle(life, [settle_of(decided) for decided in calls])
        again = store.decide(life, calls)
        assert {v for reply in again for v in verdicts(reply)} == {Verdict.SAFE_DUPLICATE}
        assert len(list(store.streams())) == 701
