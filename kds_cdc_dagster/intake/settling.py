"""Settle: pending -> committed, from a durable segment. It never voids anything: a durable record counts.

The same function serves a round, recovery, adoption and the resolution of a doubt on an owner's behalf.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kds_cdc_dagster.core.change import Outcome
from kds_cdc_dagster.core.decide import SettleCall
from kds_cdc_dagster.core.position import EPOCH_DIGITS
from kds_cdc_dagster.intake.item import Item
from kds_cdc_dagster.journal import parked
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.segment import Segment
from kds_cdc_dagster.ports import ObjectStore, StateStore

_COLUMNS = (
    "outcome",
    "source",
    "stream",
    "identity",
    "content_hash",
    "stream_order",
    "row_position",
    "lineage",
    "message_id",
    "sequence_number",
    "flag",
    "reason",
)

Record = tuple[str, str, str, str, str, str, str, str, str, str, str, str]
"""The columns above of one row of a segment."""


def records_of(segment: Segment) -> list[Record]:
    """The rows of a segment as far as ordering needs them."""
    columns: list[Any] = [segment.rows.column(name).to_pylist() for name in _COLUMNS]
    return list(zip(*columns, strict=True))


def records_of_items(items: Sequence[Item]) -> list[Record]:
    """The same for items of a round that were just written."""
    return [_record(item) for item in items]


def _record(item: Item) -> Record:
    change, delivery = item.change, item.delivery
    rejected = item.rejection
    source = change.source if change else (rejected.source if rejected else "")
    stream = change.stream if change else (rejected.stream if rejected else "")
    return (
        str(item.outcome),
        source,
        stream,
        change.identity if change else "",
        change.content_hash if change else "",
        item.stream_order,
        item.row_position,
        change.lineage if change else "",
        delivery.message_id,
        delivery.sequence_number,
        item.flag,
        item.reason,
    )


class _Lane:
    __slots__ = ("committed", "last", "lineage", "markers", "row_position")

    def __init__(self) -> None:
        self.markers: list[tuple[str, str]] = []
        self.committed = ""
        self.row_position = ""
        self.lineage = ""
        self.last: Record | None = None


def settle_calls(segment: SegmentId, records: Sequence[Record], worker: str, now: float) -> Iterator[SettleCall]:
    """One call per stream with accepted records."""
    lanes: dict[tuple[str, str], _Lane] = {}
    for record in records:
        if record[0] == Outcome.ACCEPTED:
            _add(lanes.setdefault((record[1], record[2]), _Lane()), record)
    for (source, stream), lane in lanes.items():
        last = lane.last
        yield SettleCall(
            source=source,
            stream=stream,
            segment=str(segment),
            markers=tuple(lane.markers),
            committed=lane.committed,
            row_position=lane.row_position,
            lineage=lane.lineage,
            message_id=last[8] if last else "",
            sequence_number=last[9] if last else "",
            worker=worker,
            settled_at_ms=int(now * 1000),
        )


def _add(lane: _Lane, record: Record) -> None:
    lane.markers.append((record[3], record[4]))
    lane.last = record
    order = record[5]
    if order:  # snapshot reads move nothing
        lane.committed = max(lane.committed, order)
        lane.row_position = max(lane.row_position, row_position_of(record))
        lane.lineage = record[7] or lane.lineage


def settle(  # noqa: PLR0913 - the segment, its records and the ports it goes to
    state: StateStore,
    store: ObjectStore,
    life: str,
    segment: SegmentId,
    records: Sequence[Record],
    *,
    worker: str,
    now: float,
) -> None:
    """Make every accepted record of a durable segment count, and every parked one findable."""
    state.settle(life, list(settle_calls(segment, records, worker, now)))
    point_at_parked(store, segment, records)


def point_at_parked(store: ObjectStore, segment: SegmentId, records: Sequence[Record]) -> None:
    """Create the pointers of the segment's parked records."""
    reasons = {(record[1], record[2]): record[11] for record in records if record[0] == Outcome.PARKED}
    for (source, stream), reason in reasons.items():
        parked.point(store, source, stream, segment, reason)


def row_position_of(record: Record) -> str:
    """Epoch and row position: what state and manifests keep as the stream's highest, comparable across epochs."""
    return record[5][:EPOCH_DIGITS] + record[6]
