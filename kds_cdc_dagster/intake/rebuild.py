"""Rebuild the state store from durable records, after it was emptied.

Every open log is closed first, so that no segment decided in the lost life can still appear. Then
`committed` comes from the unsealed segments and the manifests' lanes (in this order: a batch sealed in
between is seen twice rather than never), markers from the unsealed segments only (the index answers for
the rest), holds from the outstanding parked pointers, after the unsealed segments got theirs (their rounds
may have died before). Everything is loaded into the life in which the
rebuild began, and into no later one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from kds_cdc_dagster.intake.settling import Content, point_at_parked, settle_calls
from kds_cdc_dagster.journal import claims, parked
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.logs import closed_tail, sealed_slot
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.ports import Marker, ObjectStore, StateStore, StreamRecord

CHUNK = 500
"""Streams (and markers) loaded per call."""

Streams = dict[tuple[str, str], StreamRecord]


def rebuild(state: StateStore, store: ObjectStore) -> str | None:
    """Rebuild and open a new life; None when another worker's rebuild overtook this one."""
    life = state.begin_life()
    streams: Streams = {}
    markers = list(_add_tails(streams, store))
    for manifest in _manifests(store):
        _add_manifest(streams, manifest)
    for source, stream in parked.held_streams(store):
        record = streams.get((source, stream), StreamRecord(source, stream))
        streams[source, stream] = replace(record, hold="parked deliveries wait for release")
    if not _load(state, life, list(streams.values()), markers):
        return None
    return life if state.finish_life(life) else None


def _load(state: StateStore, life: str, streams: list[StreamRecord], markers: list[Marker]) -> bool:
    for at in range(0, max(len(streams), len(markers)), CHUNK):
        if not state.load(life, streams[at : at + CHUNK], markers[at : at + CHUNK]):
            return False
    return True


def _manifests(store: ObjectStore) -> Iterator[Manifest]:
    for info in store.scan("batches/"):
        yield msgspec.json.decode(store.get(info.key), type=Manifest)


def _add_manifest(streams: Streams, manifest: Manifest) -> None:
    for lane in manifest.lanes:
        _raise(
            streams,
            StreamRecord(lane.source, lane.stream, lane.last_order, lane.row_position, lane.lineage),
        )


def _add_tails(streams: Streams, store: ObjectStore) -> Iterator[Marker]:
    for heartbeat in claims.open_claims(store):
        start = sealed_slot(store, heartbeat.claim, heartbeat.sealed_slot)
        for segment in closed_tail(store, heartbeat.claim, start).segments():
            content = Content.of(segment)
            point_at_parked(store, segment.id, content.records)
            yield from _add_segment(streams, segment.id, content)


def _add_segment(streams: Streams, id_: SegmentId, content: Content) -> Iterator[Marker]:
    for call in settle_calls(id_, content, worker="", now=0.0):
        _raise(streams, StreamRecord(call.source, call.stream, call.committed, call.row_position, call.lineage))
        yield from (Marker(call.source, call.stream, *marker) for marker in call.markers)


def _raise(streams: Streams, found: StreamRecord) -> None:
    """Keep the highest of everything, and the lineage of the highest order."""
    known = streams.get((found.source, found.stream))
    if known is None:
        streams[found.source, found.stream] = found
        return
    is_newer = found.committed >= known.committed
    streams[found.source, found.stream] = replace(
        known,
        committed=max(known.committed, found.committed),
        row_position=max(known.row_position, found.row_position),
        lineage=(found.lineage or known.lineage) if is_newer else (known.lineage or found.lineage),
    )
