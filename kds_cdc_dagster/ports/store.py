"""The object store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Key, size and time (seconds since the epoch) of a stored object."""

    key: str
    size_bytes: int
    modified_at: float


@runtime_checkable
class ObjectStore(Protocol):
    """Immutable objects under a prefix. Keys use '/', each part percent-encoded by the caller."""

    def create(self, key: str, body: bytes) -> None:
        """Create-only put: exactly one winner per key. Raises ObjectExists."""
        ...

    def get(self, key: str) -> bytes:
        """Whole object. Raises ObjectMissing."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """A range of the object. Raises ObjectMissing."""
        ...

    def exists(self, key: str) -> bool:
        """Whether the object is there."""
        ...

    def scan(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Objects whose key starts with `prefix`, sorted by key, after key `after`.

        `prefix` ends with '/' or is a whole key part; sees every create that returned before.
        """
        ...

    def folders(self, prefix: str) -> list[str]:
        """Names of the immediate folders under `prefix` (which ends with '/'), sorted."""
        ...

    def overwrite(self, key: str, body: bytes) -> None:
        """Unconditional put, for heartbeats only: nobody's correctness rests on it."""
        ...

    def swap(self, key: str, body: bytes, *, expected: bytes | None) -> bool:
        """Compare and swap of a small pointer: False if the object is not `expected` (None: absent)."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; missing ones are no error. Only outbox entries, pointers and pruning use it."""
        ...

    def uri(self, key: str) -> str:
        """Address of the object as people and warehouses name it (s3://…, file path)."""
        ...
