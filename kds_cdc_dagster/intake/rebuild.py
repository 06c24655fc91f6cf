"""Rebuild the state store from durable records, after it was emptied.

Every open log is closed first, so that no segment decided in the lost life can still appear. Then
`committed` comes from the unsealed segments and the sealed batches' lanes (in this order: a batch sealed in
between is seen twice rather than never), markers from the unsealed segments only (the index answers for
the rest), holds from the outstanding parked pointers, after the unsealed segments got theirs (their rounds
may have died before). Everything is loaded into the life in which the rebuild began, and into no later one.

Of workers that find the store empty at once one rebuilds, under a lease that it renews while it reads; the
others wait, and take over when the lease runs out. A rebuild that is overtaken all the same loads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kds_cdc_dagster.intake.settling import Content, point_at_parked, settle_calls
from kds_cdc_dagster.journal import checkpoint, claims, parked
from kds_cdc_dagster.journal.checkpoint import Ends, LaneEnd
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.logs import closed_tail, sealed_slot
from kds_cdc_dagster.ports import Marker, ObjectStore, StateStore, StreamRecord

CHUNK = 500
"""Streams (and markers) loaded per call."""
RENEWED_AFTER_READS = 20
"""Objects read between two renewals of the lease: well under its time also against a slow store."""

OnRead = Callable[[], None]


class _OvertakenError(Exception):
    """Another life has begun."""


def rebuild(state: StateStore, store: ObjectStore, *, is_yielding: bool = False) -> str | None:
    """Rebuild and open a new life; None when another worker's rebuild overtook this one.

    `is_yielding`: None, too, when a life is finished by now or another worker is at it.
    """
    life = state.begin_life(is_yielding=is_yielding)
    if life is None:
        return None
    try:
        _rebuild(state, store, life)
    except _OvertakenError:
        return None
    return life if state.finish_life(life) else None


def _rebuild(state: StateStore, store: ObjectStore, life: str) -> None:
    on_read = _renewing(state, life)
    ends = Ends()
    markers = list(_add_tails(ends, store, on_read))
    for stream, end in checkpoint.sealed(store, on_read).ends.items():
        ends.add(*stream, end)
    held = set(parked.held_streams(store))
    streams = [
        _record(stream, ends.get(stream, LaneEnd()), is_held=stream in held) for stream in sorted(ends.keys() | held)
    ]
    for at in range(0, max(len(streams), len(markers)), CHUNK):
        _load(state, life, streams[at : at + CHUNK], markers[at : at + CHUNK])


def _load(state: StateStore, life: str, streams: list[StreamRecord], markers: list[Marker]) -> None:
    if not state.load(life, streams, markers):
        raise _OvertakenError


def _renewing(state: StateStore, life: str) -> OnRead:
    """Renews the lease now and then."""
    reads = 0

    def on_read() -> None:
        nonlocal reads
        reads += 1
        if reads % RENEWED_AFTER_READS == 0:
            _load(state, life, [], [])

    return on_read


def _record(stream: tuple[str, str], end: LaneEnd, *, is_held: bool) -> StreamRecord:
    hold = "parked deliveries wait for release" if is_held else ""
    return StreamRecord(*stream, end.order, end.row_position, end.lineage, hold)


def _add_tails(ends: Ends, store: ObjectStore, on_read: OnRead) -> Iterator[Marker]:
    for heartbeat in claims.open_claims(store):
        start = sealed_slot(store, heartbeat.claim, heartbeat.sealed_slot)
        for segment in closed_tail(store, heartbeat.claim, start).segments():
            content = Content.of(segment)
            point_at_parked(store, segment.id, content)
            on_read()
            yield from _add_segment(ends, segment.id, content)


def _add_segment(ends: Ends, id_: SegmentId, content: Content) -> Iterator[Marker]:
    for call in settle_calls(id_, content, worker="", now=0.0):
        ends.add(call.source, call.stream, LaneEnd(call.committed, call.row_position, call.lineage))
        yield from (Marker(call.source, call.stream, *marker) for marker in call.markers)
