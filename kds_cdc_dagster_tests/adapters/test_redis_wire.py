"""The Redis state store on a real wire: lost replies, lost servers, lost memory, wrong settings."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from kds_cdc_dagster.adapters.redis_state import RedisState
from kds_cdc_dagster.errors import InvariantBroken, StateNotReady, StateUnavailable
from kds_cdc_dagster_tests.contracts.clocks import ManualClock
from kds_cdc_dagster_tests.contracts.state_calls import (
    STREAM,
    begun,
    call,
    change,
    order,
    settle_of,
    verdicts,
)
from kds_cdc_dagster_tests.servers import LossyProxy, ValkeyServer, free_port, valkey


@pytest.fixture(scope="module")
def shared_server() -> Iterator[ValkeyServer]:
    """One server for the module."""
    with valkey() as server:
        yield server


@pytest.fixture
def server(shared_server: ValkeyServer) -> ValkeyServer:
    """The module's server, empty."""
    shared_server.client().flushall()
    return shared_server


class TestWire:
    """Lost replies, lost servers, lost memory."""

    @pytest.fixture
    def proxy(self, server: ValkeyServer) -> Iterator[LossyProxy]:
        proxy = LossyProxy(server.port)
        yield proxy
        proxy.close()

    def test_s28_a_lost_reply_does_not_make_a_message_a_peers(self, server: ValkeyServer, proxy: LossyProxy) -> None:
        """RED-03: the server ran the decision, the client repeats it by itself and gets the same answer."""
        clock = ManualClock()
        direct, store = RedisState(server.url, "kds", clock), RedisState(proxy.url, "kds", clock)
        life = begun(direct)
        assert store.life() == life
        for slot, position in enumerate(range(1, 21, 2), 1):
            asked = call(change(position), change(position + 1), slot=slot)
            proxy.lose_replies(1)
            assert verdicts(store.decide(life, [asked])[0]) == ["accepted", "accepted"]
            proxy.lose_replies(1)
            store.settle(life, [settle_of(asked)])
        assert proxy.lost == 20
        record = direct.stream("kdsprod", STREAM)
        assert record is not None
        assert record.committed == order(20)
        again = direct.decide(life, [call(change(19), change(20), claim="b")])[0]
        assert verdicts(again) == ["safe_duplicate", "safe_duplicate"]

    def test_s28_when_retries_run_out_the_marker_remains_a_doubt(self, server: ValkeyServer, proxy: LossyProxy) -> None:
        """The claim does not know: it fails closed, and a later one asks about the segment."""
        direct, store = (RedisState(url, "kds", ManualClock()) for url in (server.url, proxy.url))
        life = begun(direct)
        assert store.life() == life
        proxy.lose_replies(3)
        with pytest.raises(StateUnavailable):
            store.decide(life, [call(change(1))])
        assert direct.decide(life, [call(change(1), claim="b")])[0].doubts == {"a/1"}

    def test_s28_losses_at_random_change_no_answer(self, server: ValkeyServer, proxy: LossyProxy) -> None:
        """A seeded mix of losses on two workers: every message is taken exactly once."""
        clock, dice, taken = ManualClock(), random.Random(7), 0
        life = begun(RedisState(server.url, "kds", clock))
        workers = [RedisState(proxy.url, "kds", clock) for _ in range(2)]
        for worker in workers:
            assert worker.life() == life
        for position in range(1, 31):
            number = dice.randrange(2)
            asked = call(change(position), claim=f"w{number}", slot=position)
            proxy.lose_replies(dice.choice((0, 0, 1, 2)))
            taken += verdicts(workers[number].decide(life, [asked])[0]) == ["accepted"]
            proxy.lose_replies(dice.choice((0, 0, 1, 2)))
            workers[number].settle(life, [settle_of(asked)])
            proxy.lose_replies(0)
            peer = call(change(position), claim=f"w{1 - number}", slot=position)
            assert verdicts(workers[1 - number].decide(life, [peer])[0]) == ["safe_duplicate"]
        assert taken == 30

    def test_s09_a_server_that_is_down_fails_closed_and_is_met_again(self) -> None:
        """Down: StateUnavailable. Back, but empty: not ready. Rebuilt: on it goes, with the same client."""
        port, clock = free_port(), ManualClock()
        store = RedisState(f"redis://127.0.0.1:{port}", "kds", clock, timeout_seconds=0.5)
        with pytest.raises(StateUnavailable):
            store.life()
        with valkey(port=port):
            life = begun(store)
            store.decide(life, [call(change(1))])
        for attempt in (store.life, lambda: store.decide(life, [call(change(2))]), lambda: store.stream("s", "t")):
            with pytest.raises(StateUnavailable):
                attempt()
        with valkey(port=port):
            assert store.life() is None
            with pytest.raises(StateNotReady):
                store.decide(life, [call(change(2))])
            assert verdicts(store.decide(begun(store), [call(change(2))])[0]) == ["accepted"]

    def test_s09_a_flush_between_two_steps_stops_everything(self, server: ValkeyServer) -> None:
        """Settle after the flush must not build a half-empty state that looks whole."""
        store = RedisState(server.url, "kds", ManualClock())
        life = begun(store)
        store.decide(life, [call(change(1))])
        server.client().flushall()
        with pytest.raises(StateNotReady):
            store.settle(life, [settle_of(call(change(1)))])
        assert store.life() is None
        assert list(server.client().scan_iter()) == []

    def test_s09_losing_one_shard_is_losing_the_life(self, server: ValkeyServer) -> None:
        """Each shard carries its own sentinel, checked in the very step that decides."""
        store = RedisState(server.url, "kds", ManualClock())
        life = begun(store)
        server.client().delete("{kds:5/32}:life")
        assert store.life() is None
        assert not store.finish_life(life)
        outcomes = set()
        for n in range(200):
            try:
                store.decide(life, [call(change(1), stream=f"s{n}")])
                outcomes.add("decided")
            except StateNotReady:
                outcomes.add("refused")
        assert outcomes == {"decided", "refused"}

    def test_s09_a_promoted_server_may_have_lost_writes(self, server: ValkeyServer) -> None:
        """A real failover: the replica that is promoted has another replication id, so its life is lost."""
        clock = ManualClock()
        life = None
        with valkey() as replica_server:
            replica = replica_server.client()
            replica.execute_command("REPLICAOF", "127.0.0.1", server.port)
            _until(lambda: replica.info("replication")["master_link_status"] == "up")
            store = RedisState(server.url, "kds", clock)
            life = begun(store)  # after the link: a first replica itself changes the id
            store.settle(life, [settle_of(call(change(1)))])
            server.client().wait(1, 5000)
            follower = RedisState(replica_server.url, "kds", clock)
            replica.execute_command("REPLICAOF", "NO", "ONE")
            assert follower.life() is None
            with pytest.raises(StateNotReady):
                follower.decide(life, [call(change(2))])
            new_life = begun(follower)
            assert new_life > life
            assert verdicts(follower.decide(new_life, [call(change(1), change(2))])[0])[0] == "safe_duplicate"

    def test_a_worker_whose_clock_is_fast_hides_no_marker(self, server: ValkeyServer) -> None:
        """Buckets are told by the workers' clocks: up to a bucket ahead is looked up too."""
        slow, fast = ManualClock(), ManualClock()
        fast.sleep(890)
        store, ahead = RedisState(server.url, "kds", slow), RedisState(server.url, "kds", fast)
        life = begun(store)
        for now in range(4):
            slot = now + 1
            ahead.settle(life, [settle_of(call(change(slot), slot=slot))])
            ahead.decide(life, [call(change(slot + 1), claim="b", slot=slot)])
            reply = store.decide(life, [call(change(slot), change(slot + 1), claim="c", slot=slot)])[0]
            assert verdicts(reply) == ["safe_duplicate", "in_doubt"]
            slow.sleep(900)
            fast.sleep(900)

    def test_scripts_that_a_server_forgot_are_sent_again(self, server: ValkeyServer) -> None:
        """NOSCRIPT is no error."""
        store = RedisState(server.url, "kds", ManualClock())
        life = begun(store)
        server.client().script_flush()
        assert verdicts(store.decide(life, [call(change(1))])[0]) == ["accepted"]

    def test_a_script_that_fails_is_a_broken_invariant(self, server: ValkeyServer) -> None:
        """Never taken for a passing condition."""
        store = RedisState(server.url, "kds", ManualClock())
        life = begun(store)
        for shard in range(32):
            server.client().set(f"{{kds:{shard}/32}}:order", "not a hash")
        with pytest.raises(InvariantBroken, match="WRONGTYPE"):
            store.decide(life, [call(change(1))])

    def test_a_full_server_takes_nothing_and_is_unavailable(self, server: ValkeyServer) -> None:
        """With noeviction a full server refuses writes: fail closed, state unharmed."""
        store, client = RedisState(server.url, "kds", ManualClock()), server.client()
        life = begun(store)
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(StateUnavailable):
                store.decide(life, [call(change(1))])
        finally:
            client.config_set("maxmemory", 0)
        assert verdicts(store.decide(life, [call(change(1), claim="b")])[0]) == ["accepted"]

    def test_an_identity_that_is_no_hex_is_refused(self, server: ValkeyServer) -> None:
        """Markers are kept as raw bytes: text of another form would be cut apart wrongly."""
        store = RedisState(server.url, "kds", ManualClock())
        life = begun(store)
        for wrong in ("xyz", "ab" * 15, "g" * 32):
            decided = call(change(1))
            marker = ((wrong, decided.candidates[0].content_hash),)
            with pytest.raises(InvariantBroken):
                store.settle(life, [type(settle_of(decided))("s", "t", "a/1", marker)])

    def test_findings_name_what_would_lose_state(self, server: ValkeyServer) -> None:
        """RED-04: an evicting server, and one without persistence."""
        store, client = RedisState(server.url, "kds", ManualClock()), server.client()
        assert [found.what.split(":")[0] for found in store.findings()] == ["no append-only file"]
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            assert "noeviction" in store.findings()[0].remedy
        finally:
            client.config_set("maxmemory-policy", "noeviction")


def _until(is_so: object) -> None:
    deadline = time.monotonic() + 20
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)
