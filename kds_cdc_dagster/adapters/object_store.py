"""The object store over obstore: a local folder, memory, or S3; one port, the same answers.

Create-only puts are atomic on all three: S3 by `If-None-Match: *`; the local folder writes a staging file and
links it under the key, so a key shows a whole object or nothing, whenever the writer dies (staging names hold a
`#`, which keys never do, and listings skip them); memory under a lock.

A synced folder has file and name on the disk before a put returns; obstore does not sync, so `local_write` writes.
Source: https://docs.rs/object_store/latest/object_store/enum.PutMode.html
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import LocalStore, MemoryStore, S3Store

from kds_cdc_dagster.adapters.local_write import SyncedFolder
from kds_cdc_dagster.errors import ObjectExists, ObjectMissing, SettingsError, TransientError
from kds_cdc_dagster.ports import ObjectInfo

_REQUEST_SECONDS = 60.0
"""One request, upload of a large artifact included."""
_RETRIES: Any = {
    "max_retries": 6,
    "retry_timeout": timedelta(seconds=30),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=5), "base": 2},
}
"""S3 requests are repeated inside the adapter that often and that long; then TransientError."""
_CREDENTIALS_FRESH_SECONDS = 300.0
"""How long credentials are used before boto3 is asked again; it renews them ten minutes before they expire."""


class BucketStore:
    """Port ObjectStore over an obstore store whose conditional puts know etags: S3 and memory.

    All methods raise TransientError when the store fails, SettingsError when it refuses us.
    """

    def __init__(self, raw: Any, prefix: str, *, root_uri: str) -> None:
        self._raw = raw
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._root_uri = root_uri

    def create(self, key: str, body: bytes) -> None:
        """Create-only put: exactly one winner per key. Raises ObjectExists."""
        with self._translated("create", key):
            obstore.put(self._raw, self._prefix + key, body, mode="create", use_multipart=False)

    def get(self, key: str) -> bytes:
        """Whole object. Raises ObjectMissing."""
        with self._translated("get", key):
            return bytes(obstore.get(self._raw, self._prefix + key).bytes())

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """`length` bytes from `start` on, fewer at the object's end. Raises ObjectMissing."""
        with self._translated("get_range", key):
            return bytes(obstore.get_range(self._raw, self._prefix + key, start=start, length=length))

    def exists(self, key: str) -> bool:
        """Whether the object is there."""
        try:
            with self._translated("exists", key):
                obstore.head(self._raw, self._prefix + key)
        except ObjectMissing:
            return False
        return True

    def scan(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Objects under `prefix`, sorted by key, after key `after`."""
        offset = self._prefix + after if after else None
        with self._translated("scan", prefix):
            for page in obstore.list(self._raw, self._prefix + prefix, offset=offset):
                for found in page:
                    yield self._info(found)

    def _info(self, found: Any) -> ObjectInfo:
        key = found["path"].removeprefix(self._prefix)
        return ObjectInfo(key, found["size"], found["last_modified"].timestamp())

    def folders(self, prefix: str) -> list[str]:
        """Names of the immediate folders under `prefix`, sorted."""
        with self._translated("folders", prefix):
            found = obstore.list_with_delimiter(self._raw, self._prefix + prefix)["common_prefixes"]
        return sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in found)

    def overwrite(self, key: str, body: bytes) -> None:
        """Unconditional put."""
        with self._translated("overwrite", key):
            obstore.put(self._raw, self._prefix + key, body, use_multipart=False)

    def swap(self, key: str, body: bytes, *, expected: bytes | None) -> bool:
        """Compare and swap: False if the object is not `expected` (None: absent).

        True is proof. False after a lost reply may have been our own success: read the pointer to know.
        """
        current, etag = self._current(key)
        if current != expected:
            return False
        mode: Any = "create" if etag is None else {"e_tag": etag}
        try:
            with self._translated("swap", key):
                obstore.put(self._raw, self._prefix + key, body, mode=mode, use_multipart=False)
        except (ObjectExists, ObjectMissing):
            return False
        return True

    def _current(self, key: str) -> tuple[bytes | None, str | None]:
        try:
            with self._translated("swap", key):
                found = obstore.get(self._raw, self._prefix + key)
                return bytes(found.bytes()), found.meta["e_tag"]
        except ObjectMissing:
            return None, None

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; missing ones are no error."""
        if paths := [self._prefix + key for key in keys]:
            with self._translated("delete", paths[0]):
                obstore.delete(self._raw, paths)

    def uri(self, key: str) -> str:
        """Address of the object: `s3://bucket/…`, or a file path."""
        return f"{self._root_uri}/{self._prefix}{key}"

    @contextmanager
    def _translated(self, step: str, key: str) -> Iterator[None]:
        """Foreign errors become ours, here and nowhere else."""
        where = {"step": step, "object": self.uri(key)}
        try:
            yield
        except (AlreadyExistsError, PreconditionError, FileExistsError) as error:
            raise ObjectExists("an object of this key exists", **where) from error
        except FileNotFoundError as error:
            if step in {"create", "overwrite", "scan", "folders"}:
                raise SettingsError("the bucket or folder is not there", **where) from error
            raise ObjectMissing("no object of this key", **where) from error
        except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
            raise SettingsError("the object store refuses access", **where, cause=_first_line(error)) from error
        except (BaseError, OSError) as error:
            if "<Code>NoSuchBucket</Code>" in str(error):
                raise SettingsError("the bucket is not there", **where) from error
            raise TransientError("the object store failed", **where, cause=_first_line(error)) from error


class FolderStore(BucketStore):
    """Port ObjectStore over a local folder: safe between threads and processes of one machine.

    `is_synced`: what is created, overwritten or swapped survives a power cut.
    """

    def __init__(self, folder: Path, prefix: str, *, is_synced: bool = False) -> None:
        root = folder.resolve()
        root.mkdir(parents=True, exist_ok=True)
        super().__init__(LocalStore(root), prefix, root_uri=str(root))
        self._lock_path = root / f".{prefix.strip('/').replace('/', '-')}.swap-lock"
        self._synced = SyncedFolder(root / self._prefix) if is_synced else None

    def create(self, key: str, body: bytes) -> None:
        """Create-only put: exactly one winner per key. Raises ObjectExists."""
        if self._synced is None:
            super().create(key, body)
        else:
            with self._translated("create", key):
                self._synced.create(key, body)

    def overwrite(self, key: str, body: bytes) -> None:
        """Unconditional put."""
        if self._synced is None:
            super().overwrite(key, body)
        else:
            with self._translated("overwrite", key):
                self._synced.overwrite(key, body)

    def scan(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Objects under `prefix`, sorted by key, after key `after`; a folder is listed in no order, so all at once."""
        return iter(sorted(super().scan(prefix, after=after), key=lambda info: info.key))

    def folders(self, prefix: str) -> list[str]:
        """Names of the immediate folders under `prefix` that hold an object at any depth, sorted.

        Emptied folders stay on disk: removing them would race with a create that makes them anew.
        """
        scan = super().scan
        return [name for name in super().folders(prefix) if any(scan(f"{prefix}{name}/"))]

    def swap(self, key: str, body: bytes, *, expected: bytes | None) -> bool:
        """Compare and swap under a lock of the operating system, which a dying process gives back."""
        with self._lock_path.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._current(key)[0] != expected:
                return False
            self.overwrite(key, body)
            return True

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; missing ones are no error."""
        for key in keys:
            try:
                super().delete([key])
            except ObjectMissing:
                continue


def open_local(folder: Path, prefix: str, *, is_synced: bool = False) -> FolderStore:
    """Objects as files under `folder/prefix`."""
    return FolderStore(folder, prefix, is_synced=is_synced)


def open_memory(prefix: str) -> BucketStore:
    """A new, empty store in this process's memory."""
    return BucketStore(MemoryStore(), prefix, root_uri="memory://")


def open_s3(bucket: str, prefix: str, *, endpoint_url: str = "", region: str = "") -> BucketStore:
    """Objects in an S3 bucket, with credentials as boto3 finds them (variables, profile, role, instance)."""
    import boto3
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = boto3.session.Session(region_name=region or None)
    try:
        credentials = Boto3CredentialProvider(session, ttl=timedelta(seconds=_CREDENTIALS_FRESH_SECONDS))
    except ValueError as error:
        raise SettingsError("boto3 finds no AWS credentials", bucket=bucket, hint="profile, role or AWS_*") from error
    raw = S3Store(
        bucket,
        region=session.region_name or "us-east-1",
        config={"endpoint": endpoint_url} if endpoint_url else {},
        credential_provider=credentials,
        client_options={"allow_http": endpoint_url.startswith("http:"), "timeout": timedelta(seconds=_REQUEST_SECONDS)},
        retry_config=_RETRIES,
    )
    return BucketStore(raw, prefix, root_uri=f"s3://{bucket}")


def _first_line(error: Exception) -> str:
    """The message without the pages of debug text that obstore adds."""
    return str(error).split("\n", 1)[0][:300]
