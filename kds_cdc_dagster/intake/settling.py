"""Settle: pending -> committed, from a durable segment. It never voids anything: a durable record counts.

The same function serves a round, recovery, adoption and the resolution of a doubt on an owner's behalf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kds_cdc_dagster.core.batch import LaneEvidence
from kds_cdc_dagster.core.change import Outcome
from kds_cdc_dagster.core.decide import SettleCall
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

_ACCEPTED = Outcome.ACCEPTED.value
Record = tuple[str, str, str, str, str, str, str, str, str, str, str, str]
"""The columns above of one row of a segment."""


def records_of(segment: Segment) -> list[Record]:
    """The rows of a segment as far as ordering needs them."""
    columns: list[Any] = [segment.rows.column(name).to_pylist() for name in _COLUMNS]
    return list(zip(*columns, strict=True))


def records_of_columns(columns: Mapping[str, Sequence[Any]]) -> list[Record]:
    """The same from a segment's columns that were just written."""
    return list(zip(*(columns[name] for name in _COLUMNS), strict=True))


class SegmentLane:
    """One stream's accepted records in a segment: what its settle call and the batch's evidence say of them."""

    __slots__ = ("evidence", "last", "markers", "source", "stream")

    def __init__(self, records: Sequence[Record]) -> None:
        self.last = records[-1]
        self.source, self.stream = self.last[1:3]
        columns = list(zip(*records, strict=True))
        self.markers = list(zip(columns[3], columns[4], strict=True))
        self.evidence = LaneEvidence.of(
            columns[5], columns[6], sequences=columns[9], flags=columns[10], lineages=columns[7]
        )


class Content:
    """What a segment holds, as far as ordering needs it. Grouped by stream once, for settle and seal."""

    __slots__ = ("lanes", "records")

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        by_stream: dict[tuple[str, str], list[Record]] = {}
        for record in records:
            if record[0] == _ACCEPTED:
                by_stream.setdefault(record[1:3], []).append(record)
        self.lanes = [SegmentLane(found) for found in by_stream.values()]

    @classmethod
    def of(cls, segment: Segment) -> Content:
        """Of a segment that was read back."""
        return cls(records_of(segment))


def settle_calls(segment: SegmentId, content: Content, worker: str, now: float) -> list[SettleCall]:
    """One call per stream with accepted records."""
    name, at_ms = str(segment), int(now * 1000)
    return [
        SettleCall(
            source=lane.source,
            stream=lane.stream,
            segment=name,
            markers=tuple(lane.markers),
            committed=lane.evidence.last_order,
            row_position=lane.evidence.row_position,
            lineage=lane.evidence.lineage,
            message_id=lane.last[8],
            sequence_number=lane.last[9],
            worker=worker,
            settled_at_ms=at_ms,
        )
        for lane in content.lanes
    ]


def settle(  # noqa: PLR0913 - the segment, its records and the ports it goes to
    state: StateStore,
    store: ObjectStore,
    life: str,
    segment: SegmentId,
    content: Content,
    *,
    worker: str,
    now: float,
) -> None:
    """Make every accepted record of a durable segment count, and every parked one findable."""
    state.settle(life, settle_calls(segment, content, worker, now))
    point_at_parked(store, segment, content.records)


def point_at_parked(store: ObjectStore, segment: SegmentId, records: Sequence[Record]) -> None:
    """Create the pointers of the segment's parked records."""
    reasons = {(record[1], record[2]): record[11] for record in records if record[0] == Outcome.PARKED}
    for (source, stream), reason in reasons.items():
        parked.point(store, source, stream, segment, reason)
