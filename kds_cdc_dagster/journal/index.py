"""The identity index: "did we ever take this change, and with which content?"

An index file is a flat run of 24-byte records (16 bytes identity, 8 bytes content hash), sorted. The
identities are hashes, so they are uniform: where one must lie can be computed, and one range read
answers. Files are merged in levels of `FAN` like a log-structured tree, so their number grows with the
logarithm of the batches ever made.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kds_cdc_dagster.errors import ObjectExists, ObjectMissing
from kds_cdc_dagster.journal.keys import SLOT_DIGITS, part
from kds_cdc_dagster.ports import ObjectInfo, ObjectStore

PREFIX = "index/"
RECORD = 24
IDENTITY = 16
FAN = 16
"""Files of one level that are merged into one of the next."""
MERGE_BYTES_MAX = 256 << 20
"""Files of a level that would merge into more than this stay as they are."""
WHOLE_READ_BYTES = 1 << 20
"""Files up to this size are read whole and cached."""
CACHE_BYTES = 64 << 20


def encode(entries: Iterable[tuple[str, str]]) -> bytes:
    """Index file of (identity, content hash) pairs, both hex text."""
    return bytes.fromhex("".join(sorted([identity + content_hash for identity, content_hash in entries])))


def key_of_batch(claim: str, first_slot: int, last_slot: int) -> str:
    """Key of the level-0 file of a batch. The last slot is in it: two workers may disagree about it."""
    return f"{PREFIX}0/{part(claim)}-{first_slot:0{SLOT_DIGITS}d}-{last_slot:0{SLOT_DIGITS}d}"


def write(store: ObjectStore, key: str, entries: Iterable[tuple[str, str]]) -> None:
    """Create an index file; one that is there already holds the same."""
    body = encode(entries)
    if body:
        _create(store, key, body)


class IdentityIndex:
    """Looks identities up in the index files of a store, with a bounded cache of small files."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cached_bytes = 0

    def find(self, identities: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """Identity -> content hashes it was accepted with; identities never taken are absent."""
        wanted = {bytes.fromhex(identity): identity for identity in identities}
        while wanted:
            try:
                return self._find(wanted)
            except ObjectMissing:
                continue  # merged away between the listing and the read: list again
        return {}

    def _find(self, wanted: Mapping[bytes, str]) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for info in self._store.scan(PREFIX):
            for raw, identity in wanted.items():
                hashes = self._hashes(info, raw)
                if hashes:
                    found.setdefault(identity, set()).update(hashes)
        return {identity: frozenset(hashes) for identity, hashes in found.items()}

    def _hashes(self, info: ObjectInfo, raw: bytes) -> list[str]:
        if info.size_bytes <= WHOLE_READ_BYTES:
            return _matches(self._whole(info.key), raw)
        start, length = _window(info.size_bytes, raw)
        while True:
            body = self._store.get_range(info.key, start, length)
            if _covers(body, raw, start, info.size_bytes):
                return _matches(body, raw)
            start, length = max(0, start - length), min(length * 3, info.size_bytes)
            length = min(length, info.size_bytes - start)

    def _whole(self, key: str) -> bytes:
        body = self._cache.get(key)
        if body is None:
            body = self._cache[key] = self._store.get(key)
            self._cached_bytes += len(body)
            while self._cached_bytes > CACHE_BYTES and len(self._cache) > 1:
                self._cached_bytes -= len(self._cache.popitem(last=False)[1])
        else:
            self._cache.move_to_end(key)
        return body


def _window(size_bytes: int, raw: bytes) -> tuple[int, int]:
    """Where the record of a uniform hash is expected: mean, give or take eight deviations."""
    records = size_bytes // RECORD
    middle = int.from_bytes(raw[:8], "big") * records >> 64
    reach = 4 * int(records**0.5) + 16
    first = max(0, middle - reach)
    return first * RECORD, (min(records, middle + reach) - first) * RECORD


def _covers(body: bytes, raw: bytes, start: int, size_bytes: int) -> bool:
    reaches_down = start == 0 or body[:IDENTITY] < raw
    reaches_up = start + len(body) >= size_bytes or body[-RECORD : -RECORD + IDENTITY] > raw
    return reaches_down and reaches_up


def _matches(body: bytes, raw: bytes) -> list[str]:
    records = range(len(body) // RECORD)
    at = bisect_left(records, raw, key=lambda i: body[i * RECORD : i * RECORD + IDENTITY])
    found = []
    while body[at * RECORD : at * RECORD + IDENTITY] == raw:
        found.append(body[at * RECORD + IDENTITY : (at + 1) * RECORD].hex())
        at += 1
    return found


def compact(store: ObjectStore) -> int:
    """Merge full levels; returns how many files went. Safe side by side and when it dies half way."""
    gone = 0
    levels: dict[int, list[ObjectInfo]] = {}
    for info in store.scan(PREFIX):
        levels.setdefault(int(info.key.split("/")[1]), []).append(info)
    for level, files in sorted(levels.items()):
        for start in range(0, len(files) - FAN + 1, FAN):
            chosen = files[start : start + FAN]
            if sum(info.size_bytes for info in chosen) <= MERGE_BYTES_MAX:
                gone += _merge(store, level, chosen)
    return gone


def _merge(store: ObjectStore, level: int, files: Sequence[ObjectInfo]) -> int:
    names = [info.key for info in files]
    try:
        body = b"".join(store.get(name) for name in names)
    except ObjectMissing:
        return 0  # another worker merged them
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=12).hexdigest()
    _create(store, f"{PREFIX}{level + 1}/{digest}", _sorted(body))
    store.delete(names)
    return len(names)


def _sorted(body: bytes) -> bytes:
    buffers = [None, pa.py_buffer(body)]
    records = pa.Array.from_buffers(pa.binary(RECORD), len(body) // RECORD, buffers)
    distinct = pc.unique(records)
    ordered = distinct.take(pc.sort_indices(distinct))
    return bytes(ordered.buffers()[1])[: len(ordered) * RECORD]


def _create(store: ObjectStore, key: str, body: bytes) -> None:
    try:
        store.create(key, body)
    except ObjectExists:
        return
