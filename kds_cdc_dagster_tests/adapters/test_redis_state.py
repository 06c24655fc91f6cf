"""The Redis state store against a real Valkey server: the suite, cluster, memory, keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kds_cdc_dagster.adapters import redis_scripts
from kds_cdc_dagster.adapters.redis_state import RedisState
from kds_cdc_dagster_tests.contracts.clocks import ManualClock
from kds_cdc_dagster_tests.contracts.state_calls import (
    Stores,
    begun,
    call,
    change,
    settle_of,
)
from kds_cdc_dagster_tests.contracts.state_sharing_suite import StateSharingSuite
from kds_cdc_dagster_tests.contracts.state_suite import StateSuite
from kds_cdc_dagster_tests.servers import ValkeyServer, valkey, valkey_cluster


@pytest.fixture(scope="module")
def shared_server() -> Iterator[ValkeyServer]:
    """One server for the module."""
    with valkey() as server:
        yield server


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[ValkeyServer]:
    """One cluster for the module."""
    with valkey_cluster() as cluster:
        yield cluster


@pytest.fixture
def server(shared_server: ValkeyServer) -> ValkeyServer:
    """The module's server, empty."""
    shared_server.client().flushall()
    return shared_server


class TestRedisState(StateSuite, StateSharingSuite):
    @pytest.fixture
    def stores(self, clock: ManualClock, server: ValkeyServer) -> Stores:
        return lambda pipeline: RedisState(server.url, pipeline, clock)


class TestRedisClusterState(StateSuite, StateSharingSuite):
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
    assert {script.name for script in redis_scripts.ALL} == {"life", "lease", "load", "decide", "settle", "hold"}
    assert all(len(script.sha) == 40 and "ARGV" in script.text for script in redis_scripts.ALL)
