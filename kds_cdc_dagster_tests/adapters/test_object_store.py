"""The object store over obstore: the contract on a folder, in memory and on an S3 emulator; sudden death; addresses."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kds_cdc_dagster.adapters.object_store import FolderStore, open_local, open_memory, open_s3
from kds_cdc_dagster.errors import ObjectExists, SettingsError, TransientError
from kds_cdc_dagster.ports import ObjectStore
from kds_cdc_dagster_tests.contracts.object_store_suite import ObjectStoreSuite


class TestFolder(ObjectStoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return open_local(tmp_path / "objects", "kds")


class TestSyncedFolder(ObjectStoreSuite):
    """What survives a power cut has the same manners."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return open_local(tmp_path / "objects", "kds", is_synced=True)


class TestMemory(ObjectStoreSuite):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return open_memory("kds")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An S3 emulator on a free port."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket; credentials come from the environment, as boto3 finds them."""
    import boto3

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    name = f"bucket-{uuid.uuid4().hex}"
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=name)
    return name


class TestS3(ObjectStoreSuite):
    is_atomic_under_race = False
    comings_and_goings = 8

    @pytest.fixture
    def store(self, bucket: str, endpoint: str) -> ObjectStore:
        return open_s3(bucket, "kds", endpoint_url=endpoint, region="us-east-1")


def test_s29_pipelines_in_one_folder_do_not_see_each_other(tmp_path: Path) -> None:
    """The prefix is the pipeline; one name may begin with the other."""
    one, other = open_local(tmp_path, "kds"), open_local(tmp_path, "kds2")
    one.create("outbox/b", b"1")
    other.create("outbox/b", b"2")
    other.create("outbox/c", b"2")
    assert [info.key for info in one.scan("outbox/")] == ["outbox/b"]
    assert one.get("outbox/b") == b"1"


def test_addresses_are_what_people_and_warehouses_use(tmp_path: Path, bucket: str, endpoint: str) -> None:
    """A path that opens, or an s3 address with the prefix in it."""
    local = open_local(tmp_path, "kds")
    local.create("raw/a%3Ab/1.parquet", b"rows")
    assert Path(local.uri("raw/a%3Ab/1.parquet")).read_bytes() == b"rows"
    s3 = open_s3(bucket, "kds", endpoint_url=endpoint)
    assert s3.uri("raw/x/1.parquet") == f"s3://{bucket}/kds/raw/x/1.parquet"
    assert open_memory("kds").uri("a") == "memory:///kds/a"


def test_a_missing_bucket_is_the_deployers_error(endpoint: str, bucket: str) -> None:
    """It is named, and not retried as if it would go away."""
    store = open_s3("no-such-bucket", "kds", endpoint_url=endpoint)
    with pytest.raises(SettingsError, match="no-such-bucket"):
        store.create("a", b"x")
    with pytest.raises(SettingsError, match="no-such-bucket"):
        list(store.scan("journal/"))


def test_no_credentials_are_the_deployers_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said at start, not at the first put."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(SettingsError, match="credentials"):
        open_s3("bucket", "kds", region="us-east-1")


def test_a_folder_that_cannot_be_written_is_transient_and_short(tmp_path: Path) -> None:
    """The cause is one line with the object's address; obstore's debug pages stay out."""
    (tmp_path / "kds").write_text("a file where a folder belongs")
    with pytest.raises(TransientError, match="kds/a/b") as caught:
        open_local(tmp_path, "kds").create("a/b", b"x")
    assert "\n" not in str(caught.value)


_WRITER = """
import sys
from pathlib import Path
from kds_cdc_dagster.adapters.object_store import open_local
from kds_cdc_dagster.errors import ObjectExists
store = open_local(Path(sys.argv[1]), "kds", is_synced=sys.argv[4] == "True")
body = sys.argv[2].encode() * 500_000
print("ready", flush=True)
won = 0
for n in range(int(sys.argv[3])):
    try:
        store.create(f"journal/c/{n:020d}", body)
    except ObjectExists:
        continue
    print(n, flush=True)
"""


def _writer(folder: Path, letter: str, objects: int, *, is_synced: bool) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _WRITER, str(folder), letter, str(objects), str(is_synced)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _is_whole(store: FolderStore, key: str) -> bool:
    body = store.get(key)
    return len(body) == 500_000 and len(set(body)) == 1


@pytest.mark.parametrize("is_synced", [False, True])
def test_s27_a_writer_killed_at_any_moment_leaves_whole_objects_or_none(tmp_path: Path, *, is_synced: bool) -> None:
    """Kill -9 in the middle of half-megabyte puts, six times; a successor can still create every key."""
    for turn in range(6):
        writer = _writer(tmp_path / str(turn), "a", 100_000, is_synced=is_synced)
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.02 + 0.003 * turn)
            os.kill(writer.pid, signal.SIGKILL)
            told = [int(line) for line in writer.communicate()[0].split()]
        finally:
            writer.kill()
        store = open_local(tmp_path / str(turn), "kds")
        found = [info.key for info in store.scan("journal/c/")]
        assert len(found) >= len(told)
        assert all(_is_whole(store, key) for key in found)
        store.create(f"journal/c/{len(found):020d}", b"next")


@pytest.mark.parametrize("is_synced", [False, True])
def test_s07_processes_that_race_for_keys_have_one_winner_each(tmp_path: Path, *, is_synced: bool) -> None:
    """Three processes create the same sixty keys: each key is claimed once and holds its winner's bytes."""
    writers = {letter: _writer(tmp_path, letter, 60, is_synced=is_synced) for letter in "abc"}
    try:
        won = {letter: writer.communicate(timeout=60)[0].split()[1:] for letter, writer in writers.items()}
    finally:
        for writer in writers.values():
            writer.kill()
    owners = {int(n): letter for letter, numbers in won.items() for n in numbers}
    assert sum(map(len, won.values())) == len(owners) == 60
    store = open_local(tmp_path, "kds")
    for n, letter in owners.items():
        assert store.get(f"journal/c/{n:020d}") == letter.encode() * 500_000
        with pytest.raises(ObjectExists):
            store.create(f"journal/c/{n:020d}", b"")


def test_a_synced_put_is_on_the_disk_before_it_can_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content, then the name, then the folder; and every folder on the way, once. Without the setting, nothing."""
    journal, calls = tmp_path / "kds" / "journal" / "c", []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        calls.append((Path(f"/proc/self/fd/{descriptor}").readlink(), (journal / "2").exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    store = open_local(tmp_path, "kds", is_synced=True)
    store.create("journal/c/1", b"first")
    assert {path for path, _ in calls} >= {tmp_path, tmp_path / "kds", journal.parent, journal}
    calls.clear()
    store.create("journal/c/2", b"second")
    ((content, is_seen), (folder, is_seen_then)) = calls
    assert (content.name.startswith("2#"), is_seen, folder, is_seen_then) == (True, False, journal, True)
    calls.clear()
    assert store.swap("pointer", b"3", expected=None)
    assert len(calls) == 2
    calls.clear()
    open_local(tmp_path, "kds").create("journal/c/4", b"unsynced")
    assert calls == []


def test_a_synced_put_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk refuses: the key stays free, no staging file stays, and the error is a passing one."""
    store = open_local(tmp_path, "kds", is_synced=True)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", _full)
        with pytest.raises(TransientError, match="a/b"):
            store.create("a/b", b"x")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    store.create("a/b", b"y")
    assert store.get("a/b") == b"y"


def _full(_: int) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")
