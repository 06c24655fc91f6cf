"""The identity index: it answers exactly what was written, from any number and size of files."""

from __future__ import annotations

import random
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from kds_cdc_dagster.journal import index
from kds_cdc_dagster_tests.contracts.clocks import ManualClock
from kds_cdc_dagster_tests.simulation.dict_store import DictStore

entries = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=30)


def identity(number: int) -> str:
    """A uniform hash, as identities are."""
    return random.Random(number).randbytes(16).hex()


def content_hash(number: int) -> str:
    """A hash that tells its number."""
    return f"{number:016x}"


def written(*files: list[tuple[int, int]]) -> DictStore:
    """A store with one index file per batch."""
    store = DictStore(ManualClock())
    for slot, file in enumerate(files, 1):
        pairs = [(identity(who), content_hash(what)) for who, what in file]
        index.write(store, index.key_of_batch("claim", slot, slot), pairs)
    return store


@settings(max_examples=60, deadline=None)
@given(files=st.lists(entries, max_size=6), wanted=st.sets(st.integers(0, 45), min_size=1), is_compacted=st.booleans())
def test_it_answers_what_was_written(
    files: list[list[tuple[int, int]]],
    wanted: set[int],
    is_compacted: bool,  # noqa: FBT001 drawn
) -> None:
    """Every identity with all of its content hashes, none that was never written; merging changes no answer."""
    store = written(*files)
    with mock.patch.object(index, "FAN", 2):
        while is_compacted and index.compact(store):
            pass
    expected = {
        identity(who): frozenset(content_hash(what) for file in files for w, what in file if w == who)
        for who in wanted
        if any(w == who for file in files for w, _ in file)
    }
    assert index.IdentityIndex(store).find([identity(who) for who in wanted]) == expected


def test_a_large_file_is_answered_by_a_range_read() -> None:
    """A window around the expected place suffices; the whole file is never read."""
    store = written([(number, 1) for number in range(20_000)])
    with mock.patch.object(index, "WHOLE_READ_BYTES", 0), mock.patch.object(store, "get", side_effect=AssertionError):
        lookup = index.IdentityIndex(store)
        for number in (0, 7, 19_999):
            assert lookup.find([identity(number)]) == {identity(number): frozenset({content_hash(1)})}
        assert lookup.find([identity(30_000)]) == {}


def test_a_window_that_misses_is_widened() -> None:
    """Identities that are not uniform cost more reads, never an answer."""
    store = DictStore(ManualClock())
    crowded = [f"ff{number:030x}" for number in range(5000)]
    index.write(store, "index/0/crowded", [(who, content_hash(1)) for who in crowded])
    with mock.patch.object(index, "WHOLE_READ_BYTES", 0):
        lookup = index.IdentityIndex(store)
        for who in (crowded[0], crowded[2500], crowded[-1]):
            assert lookup.find([who]) == {who: frozenset({content_hash(1)})}
        assert lookup.find([identity(1)]) == {}


def test_a_file_merged_away_during_a_look_up_is_looked_for_again() -> None:
    """Another worker compacts between the listing and the read."""
    store = written([(1, 1)], [(2, 1)])
    real = store.get

    def raced(key: str) -> bytes:
        store.get = real
        with mock.patch.object(index, "FAN", 2):
            assert index.compact(store) == 2
        return real(key)

    store.get = raced
    assert set(index.IdentityIndex(store).find([identity(1), identity(2)])) == {identity(1), identity(2)}


def test_compaction_that_dies_half_way_changes_no_answer() -> None:
    """The merged file is there, the old ones not yet gone; the next compaction ends it."""
    store = written([(1, 1)], [(1, 2)], [(3, 1)])
    with mock.patch.object(index, "FAN", 3):
        with mock.patch.object(store, "delete"):
            index.compact(store)
        lookup = index.IdentityIndex(store)
        assert lookup.find([identity(1)]) == {identity(1): frozenset({content_hash(1), content_hash(2)})}
        assert index.compact(store) == 3
    assert [key.split("/")[1] for key in store.objects] == ["1"]


def test_the_cache_is_bounded() -> None:
    """Small files are kept, up to a number of bytes."""
    store = written(*([(number, 1)] for number in range(10)))
    with mock.patch.object(index, "CACHE_BYTES", 3 * index.RECORD):
        lookup = index.IdentityIndex(store)
        lookup.find([identity(1)])
        assert len(lookup._cache) == 3
