"""The Redis state store against a real Valkey server: the suite, faults on the wire, cluster, memory."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from kds_cdc_dagster.adapters import redis_scripts
from kds_cdc_dagster.adapters.redis_state import RedisState
from kds_cdc_dagster.errors import InvariantBroken, StateNotReady, StateUnavailable
from kds_cdc_dagster_tests.contracts.clocks import ManualClock
from kds_cdc_dagster_tests.contracts.state_suite import (
    STREAM,
    StateSuite,
    Stores,
    begun,
    call,
    change,
    order,
    settle_of,
    verdicts,
)
from kds_cdc_dagster_tests.servers import LossyProxy, ValkeyServer, free_port, valkey, valkey_cluster


@pytest.fixture(scope="module")
def shared_server() -> Iterator[ValkeyServer]:
    with valkey() as server:
        yield server


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[ValkeyServer]:
    with valkey_cluster() as cluster:
        yield cluster


@pytest.fixture
def server(shared_server: ValkeyServer) -> ValkeyServer:
    """The module's server, empty."""
    shared_server.client().flushall()
    return shared_server


class TestRedisState(StateSuite):
    @pytest.fixture
    def stores(self, clock: ManualClock, server: ValkeyServer) -> Stores:
        return lambda pipeline: RedisState(server.url, pipeline, clock)


class TestRedisClusterState(StateSuite):
    """RED-01: keys of one call in two slots would fail here on the first event."""

    @pytest.fixture
    def stores(self, clock: ManualClock, shared_cluster: ValkeyServer) -> Stores:
        shared_cluster.client().flushall()
        return lambda pipeline: RedisState(shared_cluster.url, pipeline, clock)

    def test_all_keys_of_a_shard_sit_in_one_slot(self, clock: ManualClock, shared_cluster: ValkeyServer) -> None:
        """And shards spread over slots, so that a cluster's nodes share the load."""
        store = RedisState(shared_cluster.url, "k{d}s", clock)
        life = begun(store)
        store.settle(life, [settle_of(call(change(1), stream=f"{{s}}{n}")) for n in range(200)])
        slots: dict[bytes, set[int]] = {}
        client = shared_cluster.client()
        for key in client.scan_iter("{k%7Bd%7Ds:*"):
            slot = client.execute_command("CLUSTER", "KEYSLOT", key)
            slots.setdefault(key.split(b"}")[0], set()).add(slot)
        assert all(len(found) == 1 for found in slots.values())
        assert len(set.union(*slots.values())) > 25


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
        assert [text.split(":")[0] for text in store.findings()] == ["no append-only file"]
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            assert "noeviction" in store.findings()[0]
        finally:
            client.config_set("maxmemory-policy", "noeviction")


LAST_MESSAGE = {
    "row_position": "0" * 48,
    "lineage": "server-1",
    "message_id": "0f0e0d0c-0b0a-0908-0706-050403020100",
    "sequence_number": "18849496460467696128",
    "worker": "worker-1",
    "settled_at_ms": 1_800_000_000_000,
}


def test_a_live_marker_costs_at_most_130_bytes(server: ValkeyServer) -> None:
    """500 streams with 200 markers each, as the server's own memory counter sees it."""
    clock, client = ManualClock(), server.client()
    store = RedisState(server.url, "kds", clock)
    life = begun(store)
    calls = [call(*map(change, range(1, 201)), stream=f"acct-{n:03d}:store") for n in range(500)]
    store.settle(life, [settle_of(decided) for decided in calls[:1]])
    before = client.info("memory")["used_memory_dataset"]
    for round_ in range(20):
        part = [call(*decided.candidates[round_ * 10 : round_ * 10 + 10], stream=decided.stream) for decided in calls]
        store.settle(life, [settle_of(decided, **LAST_MESSAGE) for decided in part])
        clock.sleep(180)
    client.memory_purge()
    grown = client.info("memory")["used_memory_dataset"] - before
    records = sum(client.memory_usage(f"{{kds:{shard}/32}}:order", samples=0) for shard in range(32))
    print(f"bytes per marker {(grown - records) / 100_000:.0f}, per stream {records / 500:.0f}")
    assert (grown - records) / 100_000 <= 130
    assert records / 500 <= 500


def test_every_key_but_positions_and_life_has_an_end(server: ValkeyServer) -> None:
    """What is never evicted is bounded by the number of streams; all else dies with its bucket."""
    store = RedisState(server.url, "kds", ManualClock())
    life = begun(store)
    store.decide(life, [call(change(1)), call(change(2), stream="other")])
    store.settle(life, [settle_of(call(change(1)))])
    client = server.client()
    kept = {key.split(b":")[2] for key in client.scan_iter() if client.ttl(key) == -1}
    ending = {key.split(b":")[2]: client.ttl(key) for key in client.scan_iter() if client.ttl(key) != -1}
    assert kept == {b"life", b"order"}
    assert set(ending) == {b"pend", b"dup"}
    assert 3600 < ending[b"dup"] <= 3600 + 900 + 60
    assert 3600 < ending[b"pend"] <= 2 * 3600 + 60


def test_scripts_are_packaged_and_named_by_their_hash() -> None:
    """The loader finds each file inside the package."""
    assert {script.name for script in redis_scripts.ALL} == {"life", "load", "decide", "settle", "hold"}
    assert all(len(script.sha) == 40 and "ARGV" in script.text for script in redis_scripts.ALL)


def _until(is_so: object) -> None:
    deadline = time.monotonic() + 20
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)
