"""Checkpoints: a rebuild reads the newest one and what came after it, and finds the same without any."""

from __future__ import annotations

import time
from collections.abc import Iterator
from unittest import mock

import pytest

from kds_cdc_dagster.adapters.memory_state import MemoryState
from kds_cdc_dagster.adapters.object_store import BucketStore, open_memory
from kds_cdc_dagster.errors import TransientError
from kds_cdc_dagster.intake.prune import Pruner, Retention
from kds_cdc_dagster.intake.rebuild import rebuild
from kds_cdc_dagster.journal import checkpoint, keys, manifest
from kds_cdc_dagster.journal.checkpoint import EVERY_BATCHES, PREFIX, LaneEnd
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.manifest import Lane, Manifest
from kds_cdc_dagster.ports import StreamRecord
from kds_cdc_dagster_tests.contracts.clocks import ManualClock

STREAMS = 5


class CountingStore(BucketStore):
    """Counts the objects that are read."""

    reads = 0

    def get(self, key: str) -> bytes:
        self.reads += 1
        return super().get(key)


@pytest.fixture
def store() -> CountingStore:
    """An empty one."""
    memory = open_memory("kds")
    return CountingStore(memory._raw, "kds", root_uri="memory://")


def seal(store: BucketStore, numbers: range, claim: str = "a") -> None:
    """One batch per number, whose only lane ends there."""
    for number in numbers:
        lane = Lane("src", f"s{number % STREAMS}", 1, "", f"{number:08x}", "", "", row_position=f"r{number:08x}")
        document = {name: 0 for name, type_ in Manifest.__annotations__.items() if type_ == "int"}
        document |= {"batch": keys.batch_id(SegmentId(claim, number)), "claim": claim, "lanes": (lane,), "slices": ()}
        document |= {"entities": (), "counts": {}, "close_reason": "age", "worker": "w"}
        manifest.write(store, Manifest(**document))


def rebuilt(store: BucketStore) -> dict[tuple[str, str], StreamRecord]:
    """What a rebuild makes of the store."""
    state = MemoryState(ManualClock())
    assert rebuild(state, store)
    return {(record.source, record.stream): record for record in state.streams()}


def checkpoints(store: BucketStore) -> list[str]:
    """Keys of those that are there."""
    return [info.key for info in store.scan(PREFIX)]


def test_a_rebuild_reads_what_came_after_the_checkpoint(store: CountingStore) -> None:
    """Three batches since then: four objects, however many came before; the state is that of reading them all."""
    seal(store, range(1, 201))
    assert len(checkpoint.write(store)) == 200
    seal(store, range(201, 204))
    everything = rebuilt_without(store)
    store.reads = 0
    assert rebuilt(store) == everything
    assert store.reads == 1 + 3
    assert everything["src", "s3"].committed == f"{203:08x}"
    assert everything["src", "s4"].committed == f"{199:08x}"


def rebuilt_without(store: BucketStore) -> dict[tuple[str, str], StreamRecord]:
    """As if there were no checkpoint."""

    def scan(prefix: str, *, after: str = "") -> Iterator[object]:
        return iter(()) if prefix == PREFIX else BucketStore.scan(store, prefix, after=after)

    with mock.patch.object(store, "scan", scan):
        return rebuilt(store)


def test_few_new_batches_are_not_worth_one(store: CountingStore) -> None:
    """Unless one of them is to leave."""
    seal(store, range(1, EVERY_BATCHES))
    assert checkpoint.write(store) == frozenset()
    assert checkpoints(store) == []
    leaving = keys.manifest(keys.batch_id(SegmentId("a", 1)))
    assert leaving in checkpoint.write(store, leaving=[leaving])
    assert len(checkpoints(store)) == 1


def test_what_a_checkpoint_took_in_may_leave(store: CountingStore) -> None:
    """Streams that were quiet since keep their position: manifests go, their lanes stay."""
    seal(store, range(1, 101))
    before = rebuilt(store)
    store.delete(checkpoint.write(store))
    assert rebuilt(store) == before
    seal(store, range(101, 103))
    found = rebuilt(store)
    assert (found["src", "s1"].committed, found["src", "s3"].committed) == (f"{101:08x}", f"{98:08x}")


def test_pruning_writes_one_before_manifests_leave(store: CountingStore) -> None:
    """Also of batches too few to be worth one otherwise; a prune that dies in between keeps the manifests."""
    seal(store, range(1, 4))
    before = rebuilt(store)
    pruner = Pruner(store, Retention(0, 0), time.time() + 60, lambda _: True)
    with mock.patch.object(store, "create", side_effect=TransientError("full")), pytest.raises(TransientError):
        pruner.prune()
    assert len(list(store.scan("batches/"))) == 3
    assert pruner.prune().manifests == 3
    assert rebuilt(store) == before


def test_a_checkpoint_leaves_the_run_after_the_one_that_took_it_in(store: CountingStore) -> None:
    """So that no listing sees neither; and there are never more than two."""
    seen: list[list[str]] = []
    for number in range(5):
        seal(store, range(100 * number + 1, 100 * number + 101))
        store.delete(sorted(checkpoint.write(store))[:-1])
        seen.append(checkpoints(store))
    assert [len(found) for found in seen] == [1, 2, 2, 2, 2]
    assert rebuilt(store)["src", "s0"].committed == f"{500:08x}"


def test_two_that_are_made_at_once_add_up(store: CountingStore) -> None:
    """Each pruner removes only what its own checkpoint has; whoever lists later unites them."""
    seal(store, range(1, 101))
    slow = checkpoint.sealed(store)
    seal(store, range(101, 105))
    gone = checkpoint.write(store)
    with mock.patch.object(checkpoint, "sealed", return_value=slow):
        checkpoint.write(store)
    store.delete(gone)
    assert len(checkpoints(store)) == 2
    assert rebuilt(store)["src", "s4"].committed == f"{104:08x}"


def test_a_manifest_that_leaves_while_it_is_listed_is_looked_for_again(store: CountingStore) -> None:
    """Listed, then pruned before it was read: the checkpoint has it."""
    seal(store, range(1, 11))
    real, names = store.get, [info.key for info in store.scan("batches/")]

    def get(key: str) -> bytes:
        store.get = real  # type: ignore[method-assign]
        store.delete(checkpoint.write(store, leaving=names))
        return real(key)

    store.get = get  # type: ignore[method-assign]
    assert checkpoint.sealed(store).ends["src", "s0"] == LaneEnd(f"{10:08x}", f"r{10:08x}")
    assert list(store.scan("batches/")) == []


def test_ends_keep_the_highest_of_everything() -> None:
    """In any order; the lineage is that of the highest order, and none does not erase one."""
    low, high, read = LaneEnd("1", "9", "old"), LaneEnd("2", "8", "new"), LaneEnd("", "5", "")
    assert low.raised(high) == high.raised(low) == LaneEnd("2", "9", "new")
    assert low.raised(read) == read.raised(low) == low
