"""The object store of the simulation: a dict with sorted keys. Listings are walked lazily, as pages are."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

from kds_cdc_dagster.errors import ObjectExists, ObjectMissing
from kds_cdc_dagster.ports import Clock, ObjectInfo


class DictStore:
    """Port ObjectStore; each call, and each step of a listing, is atomic."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.objects: dict[str, bytes] = {}
        self._times: dict[str, float] = {}
        self._keys: list[str] = []

    def copy(self) -> DictStore:
        """An independent store with the same objects."""
        twin = DictStore(self._clock)
        twin.objects, twin._times, twin._keys = dict(self.objects), dict(self._times), list(self._keys)
        return twin

    def create(self, key: str, body: bytes) -> None:
        if key in self.objects:
            raise ObjectExists("exists", key=key)
        self.overwrite(key, body)

    def get(self, key: str) -> bytes:
        try:
            return self.objects[key]
        except KeyError:
            raise ObjectMissing("missing", key=key) from None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if key not in self.objects:
            raise ObjectMissing("missing", key=key)
        return self.objects[key][start : start + length]

    def exists(self, key: str) -> bool:
        return key in self.objects

    def scan(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        last = after
        at = bisect_right(self._keys, last) if last > prefix else bisect_left(self._keys, prefix)
        while at < len(self._keys) and self._keys[at].startswith(prefix):
            last = self._keys[at]
            yield ObjectInfo(last, len(self.objects[last]), self._times[last])
            at = bisect_right(self._keys, last)

    def folders(self, prefix: str) -> list[str]:
        rests = (key[len(prefix) :] for key in self._keys if key.startswith(prefix))
        return sorted({rest.split("/", 1)[0] for rest in rests if "/" in rest})

    def overwrite(self, key: str, body: bytes) -> None:
        if key not in self.objects:
            insort(self._keys, key)
        self.objects[key] = body
        self._times[key] = self._clock.now()

    def swap(self, key: str, body: bytes, *, expected: bytes | None) -> bool:
        if self.objects.get(key) != expected:
            return False
        self.overwrite(key, body)
        return True

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            if self.objects.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    def uri(self, key: str) -> str:
        return f"memory://{key}"
