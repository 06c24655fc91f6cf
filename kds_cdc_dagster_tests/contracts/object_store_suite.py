"""What every object store adapter must do. A subclass gives the fixture `store`: an empty store.

The intake rests on these: one winner per key, whole objects only, lists that see every finished create.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kds_cdc_dagster.errors import ObjectExists, ObjectMissing
from kds_cdc_dagster.ports import ObjectStore

ODD_PART = "acct%2D001%3Aa%20b%25"
"""A percent-encoded key part, as streams are."""


class ObjectStoreSuite:
    """Run by every adapter."""

    is_atomic_under_race = True
    """Emulators of S3 check a condition and put in two steps; the real one does not."""
    comings_and_goings = 200

    def test_it_is_an_object_store(self, store: ObjectStore) -> None:
        """Nothing of the port is missing."""
        assert isinstance(store, ObjectStore)

    def test_what_is_created_can_be_read_whole_and_in_ranges(self, store: ObjectStore) -> None:
        """Bytes come back as they went in, empty ones too."""
        body = bytes(range(256)) * 40
        store.create("journal/c/1.parquet", body)
        store.create("empty", b"")
        assert store.get("journal/c/1.parquet") == body
        assert store.get_range("journal/c/1.parquet", 250, 10) == body[250:260]
        assert store.get_range("journal/c/1.parquet", len(body) - 4, 10) == body[-4:]
        assert store.get("empty") == b""

    def test_a_key_is_created_once_and_keeps_its_first_bytes(self, store: ObjectStore) -> None:
        """The loser learns that it lost."""
        store.create("a/b", b"first")
        with pytest.raises(ObjectExists, match="a/b"):
            store.create("a/b", b"second")
        assert store.get("a/b") == b"first"

    def test_a_race_for_one_key_has_exactly_one_winner(self, store: ObjectStore) -> None:
        """Sixteen threads, twenty keys: what is stored is what the one winner wrote."""
        if not self.is_atomic_under_race:
            pytest.skip("the emulator is not atomic")

        def race(key: str, body: bytes) -> bytes | None:
            try:
                store.create(key, body)
            except ObjectExists:
                return None
            return body

        with ThreadPoolExecutor(16) as pool:
            for key in (f"race/{n}" for n in range(20)):
                tries = [pool.submit(race, key, f"writer {n}".encode() * 200) for n in range(16)]
                winners = [body for body in (attempt.result() for attempt in tries) if body is not None]
                assert winners == [store.get(key)]

    def test_missing_objects_are_told_by_every_reader(self, store: ObjectStore) -> None:
        """Absence is an answer of its own, never a transient error."""
        for read in (lambda: store.get("no/such"), lambda: store.get_range("no/such", 0, 1)):
            with pytest.raises(ObjectMissing, match="no/such"):
                read()
        assert not store.exists("no/such")
        store.create("no/such", b"x")
        assert store.exists("no/such")

    def test_a_scan_is_sorted_and_starts_after_a_key(self, store: ObjectStore) -> None:
        """Sizes and times come along; neighbours of the prefix do not."""
        for n in (3, 1, 10, 2):
            store.create(f"journal/c/{n:020d}.parquet", b"x" * n)
        store.create("journal/c2/1", b"")
        store.create("journal-old/1", b"")
        found = list(store.scan("journal/c/"))
        assert [info.size_bytes for info in found] == [1, 2, 3, 10]
        assert all(abs(info.modified_at - time.time()) < 120 for info in found)
        after = list(store.scan("journal/c/", after=found[1].key))
        assert after == found[2:]
        assert list(store.scan("journal/c", after=found[3].key)) == []
        assert list(store.scan("nothing/here/")) == []

    def test_a_scan_sees_every_create_that_returned(self, store: ObjectStore) -> None:
        """One after the other, deep and shallow, with odd but legal key parts."""
        keys = [f"deep/{ODD_PART}/{n}/x" for n in range(5)] + ["deep/a"]
        for n, key in enumerate(keys):
            store.create(key, b"x")
            assert {info.key for info in store.scan("deep/")} == set(keys[: n + 1])
        assert [info.key for info in store.scan("deep/")] == sorted(keys)

    def test_folders_are_the_immediate_ones(self, store: ObjectStore) -> None:
        """Objects beside them are not folders, nor is one whose last object was deleted."""
        for key in ("journal/b/1", f"journal/{ODD_PART}/x/1", "journal/file", "journal/gone/1"):
            store.create(key, b"x")
        store.delete(["journal/gone/1"])
        assert store.folders("journal/") == sorted(["b", ODD_PART])
        assert store.folders("nothing/") == []

    def test_overwrite_replaces(self, store: ObjectStore) -> None:
        """Heartbeats."""
        for body in (b"one", b"two"):
            store.overwrite("heartbeats/c", body)
        assert store.get("heartbeats/c") == b"two"

    def test_swap_moves_a_pointer_only_from_what_is_expected(self, store: ObjectStore) -> None:
        """Absent, then forward; a stale expectation changes nothing."""
        assert not store.swap("current.json", b"v1", expected=b"v0")
        assert store.swap("current.json", b"v1", expected=None)
        assert not store.swap("current.json", b"v9", expected=None)
        assert store.swap("current.json", b"v2", expected=b"v1")
        assert not store.swap("current.json", b"v9", expected=b"v1")
        assert store.get("current.json") == b"v2"

    def test_concurrent_swaps_lose_no_step(self, store: ObjectStore) -> None:
        """A counter kept by swap counts every success."""
        if not self.is_atomic_under_race:
            pytest.skip("the emulator is not atomic")
        store.create("counter", b"0")

        def count(_: int) -> int:
            done = 0
            for _ in range(20):
                old = store.get("counter")
                done += store.swap("counter", str(int(old) + 1).encode(), expected=old)
            return done

        with ThreadPoolExecutor(6) as pool:
            assert sum(pool.map(count, range(6))) == int(store.get("counter"))

    def test_delete_removes_and_tolerates_absence(self, store: ObjectStore) -> None:
        """Missing keys before and between the others stop nothing; nor does an empty list."""
        for key in ("a", "b/c", "d"):
            store.create(key, b"x")
        store.delete([])
        store.delete(key for key in ("zero", "a", "no/such", "b/c"))
        assert [info.key for info in store.scan("")] == ["d"]
        store.create("a", b"again")
        assert store.get("a") == b"again"

    def test_creates_deletes_and_lists_in_one_folder_do_not_disturb_each_other(self, store: ObjectStore) -> None:
        """The outbox: entries come and go while others list it, and the folder is often empty."""

        def come_and_go(worker: int) -> None:
            for n in range(self.comings_and_goings):
                key = f"outbox/{worker % 2}/{worker}-{n}"
                store.create(key, b"x")
                assert key in {info.key for info in store.scan("outbox/")}
                store.folders("outbox/")
                store.delete([key])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(come_and_go, range(4)))
        assert list(store.scan("outbox/")) == []
