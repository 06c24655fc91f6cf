"""Hold, release and park: what an operator does with a stream or a source.

A release takes the parked deliveries in, in queue order, through the same rounds as everything else; the
stream stays held meanwhile, so that new messages keep queueing up behind. The hold ends only if nothing
was parked since the release looked.
"""

from __future__ import annotations

from collections.abc import Iterator

from kds_cdc_dagster.core.change import Delivery, Outcome
from kds_cdc_dagster.errors import InvariantBroken
from kds_cdc_dagster.intake import counts as names
from kds_cdc_dagster.intake.engine import Intake
from kds_cdc_dagster.journal import epochs, parked, segment
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.segment import Segment
from kds_cdc_dagster.ports import ObjectStore

CHUNK = 1_000
"""Parked deliveries taken in per round."""
TURNS_MAX = 1_000


def park_stream(intake: Intake, source: str, stream: str, reason: str) -> None:
    """Hold a stream by hand. The pointer makes the hold durable before it begins."""
    life = intake.ready()
    parked.point(intake.ports.store, source, stream, parked.BY_OPERATOR, reason)
    intake.ports.state.hold(life, source, stream, reason)


def release_stream(intake: Intake, source: str, stream: str) -> dict[str, int]:
    """Take the stream's parked deliveries in and end its hold; returns the counts.

    Raises GivenUp when a round fails: repeat the release, what was taken in is a safe duplicate then.
    """
    counts: dict[str, int] = {}
    for _ in range(TURNS_MAX):
        life = intake.ready()
        record = intake.ports.state.stream(source, stream)
        for claim, slot in record.parkers.items() if record else ():
            intake.resolver.resolve(life, SegmentId(claim, slot))
        counts = names.total(counts, _take_parked(intake, source, stream))
        version = record.hold_version if record else 0
        if intake.ports.state.unhold(life, source, stream, version):
            return counts
    raise InvariantBroken("a stream is parked faster than it is released", source=source, stream=stream)


def open_epoch(intake: Intake, source: str, reason: str, by: str) -> dict[str, int]:
    """Open the source's next epoch and release all of its held streams; returns the counts."""
    store = intake.ports.store
    intake.ready()
    number = epochs.current(store, source).number
    epochs.open_next(store, source, number, reason=reason, by=by, at=intake.ports.clock.now())
    intake.read_epochs()
    counts: dict[str, int] = {}
    held = [record.stream for record in intake.ports.state.streams(held_only=True) if record.source == source]
    for stream in sorted(held):
        counts = names.total(counts, release_stream(intake, source, stream))
    return counts


def _take_parked(intake: Intake, source: str, stream: str) -> dict[str, int]:
    """One pass over what is parked now."""
    store = intake.ports.store
    pointers = parked.outstanding(store, source, stream)
    deliveries = sorted(_deliveries(store, source, stream, pointers), key=lambda d: int(d.sequence_number))
    counts: dict[str, int] = {}
    for at in range(0, len(deliveries), CHUNK):
        counts = names.total(counts, intake.take_released(deliveries[at : at + CHUNK]))
    intake.write_counts()  # of rounds without a segment, too: what was released adds up from durable records
    parked.mark_released(store, source, stream, pointers)
    return counts


def _deliveries(store: ObjectStore, source: str, stream: str, pointers: list[SegmentId]) -> Iterator[Delivery]:
    for id_ in pointers:
        found = segment.read(store, id_) if id_ != parked.BY_OPERATOR else None
        if found is not None:
            yield from parked_deliveries(found, source, stream)


def parked_deliveries(found: Segment, source: str, stream: str) -> Iterator[Delivery]:
    """The parked deliveries of a stream in a segment, as they were received."""
    for row in found.rows.to_pylist():
        if (row["outcome"], row["source"], row["stream"]) == (Outcome.PARKED, source, stream):
            yield Delivery(
                body=row["body"],
                group_id=row["group_id"],
                sequence_number=row["sequence_number"],
                message_id=row["message_id"],
                receipt="",
                receive_count=1,
                sent_at_ms=row["sent_at_ms"],
            )
