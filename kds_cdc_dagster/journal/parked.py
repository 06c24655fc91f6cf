"""Parked pointers: which segments hold parked deliveries of a held stream.

A pointer is created before the deliveries are acknowledged and becomes a released pointer when they have
been taken in. A stream with an outstanding pointer is held: this is the durable truth of a hold, from
which a wiped state store is rebuilt. The slot 0 of the pseudo claim `operator` marks a hold that was set
by hand before anything was parked.
"""

from __future__ import annotations

from collections.abc import Iterator

from kds_cdc_dagster.errors import ObjectExists
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.ports import ObjectStore

BY_OPERATOR = SegmentId("operator", 0)


def point(store: ObjectStore, source: str, stream: str, segment: SegmentId, reason: str) -> None:
    """Create the pointer; repeating it changes nothing, also after the release.

    A settle is repeated by recovery, adoption and doubts, at any time later.
    """
    if not is_released(store, source, stream, segment):
        _create(store, keys.pointer(keys.parked(source, stream), segment), reason)


def is_released(store: ObjectStore, source: str, stream: str, segment: SegmentId) -> bool:
    """Whether the segment's parked deliveries of the stream were taken in: a pointer is void from then on."""
    return store.exists(keys.pointer(keys.released(source, stream), segment))


def is_pointed_at(store: ObjectStore, source: str, stream: str, segment: SegmentId) -> bool:
    """Whether a release of the stream would find the segment."""
    return store.exists(keys.pointer(keys.parked(source, stream), segment))


def outstanding(store: ObjectStore, source: str, stream: str) -> list[SegmentId]:
    """Segments whose parked deliveries of the stream are not released yet."""
    pointers = [_segment(info.key) for info in store.scan(keys.parked(source, stream))]
    return [segment for segment in pointers if not is_released(store, source, stream, segment)]


def mark_released(store: ObjectStore, source: str, stream: str, segments: list[SegmentId]) -> None:
    """Turn pointers into released ones (created first, then the old ones are removed)."""
    for segment in segments:
        if segment != BY_OPERATOR:  # an operator may hold the stream again
            _create(store, keys.pointer(keys.released(source, stream), segment), "")
    store.delete([keys.pointer(keys.parked(source, stream), segment) for segment in segments])


def held_streams(store: ObjectStore) -> Iterator[tuple[str, str]]:
    """(source, stream) of every stream with an outstanding pointer."""
    for source in map(keys.unpart, store.folders("parked/")):
        for stream in map(keys.unpart, store.folders(f"parked/{keys.part(source)}/")):
            if outstanding(store, source, stream):
                yield source, stream


def _segment(key: str) -> SegmentId:
    claim, slot = key.split("/")[-2:]
    return SegmentId(keys.unpart(claim), int(slot))


def _create(store: ObjectStore, key: str, text: str) -> None:
    try:
        store.create(key, text.encode())
    except ObjectExists:
        return
