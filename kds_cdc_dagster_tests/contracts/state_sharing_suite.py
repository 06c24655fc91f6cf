"""What every state store must do where more than one is concerned: lives, rebuilds, workers, pipelines, holds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kds_cdc_dagster.adapters.life_ids import LEASE_SECONDS
from kds_cdc_dagster.core.decide import DecideCall, DecideReply, Verdict
from kds_cdc_dagster.errors import StateNotReady
from kds_cdc_dagster.ports import Marker, StateStore, StreamRecord
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
    verdicts,
)
from kds_cdc_dagster_tests.contracts.state_suite import StateFixtures


class StateSharingSuite(StateFixtures):
    """Run by every adapter."""

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

    def test_s09_of_workers_that_find_it_empty_at_once_one_rebuilds(self, store: StateStore, stores: Stores) -> None:
        """The others give way while it is at it, and when it is done."""
        workers = [stores("kds") for _ in range(4)]
        with ThreadPoolExecutor(len(workers)) as pool:
            lives = list(pool.map(lambda one: one.begin_life(is_yielding=True), workers))
        (life,) = [life for life in lives if life]
        assert store.life() is None
        assert store.begin_life(is_yielding=True) is None
        assert workers[0].load(life, [StreamRecord("kdsprod", STREAM, order(9))], [])
        assert workers[0].finish_life(life)
        assert store.begin_life(is_yielding=True) is None
        assert store.life() == life

    def test_s09_a_dead_workers_rebuild_is_taken_over(
        self, store: StateStore, stores: Stores, clock: ManualClock
    ) -> None:
        """When its lease is over, which each load prolongs. If it lives all the same, it loads nothing any more."""
        slow, other = store.begin_life(is_yielding=True), stores("kds")
        clock.sleep(LEASE_SECONDS - 1)
        assert store.load(slow, [], [])
        clock.sleep(LEASE_SECONDS - 1)
        assert other.begin_life(is_yielding=True) is None
        clock.sleep(2)
        life = other.begin_life(is_yielding=True)
        assert not store.load(slow, [], [])
        assert store.begin_life(is_yielding=True) is None
        assert not store.finish_life(slow)
        assert other.finish_life(life)
        assert store.life() == life

    def test_s09_a_lease_by_a_clock_that_is_far_ahead_stops_nobody(
        self, store: StateStore, stores: Stores, clock: ManualClock
    ) -> None:
        """Its end lies beyond any lease's. An operator's rebuild asks for no lease at all."""
        clock.sleep(1e6)
        assert store.begin_life()
        clock.turn_back(1e6)
        assert (life := store.begin_life(is_yielding=True))
        assert store.begin_life() != life

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
