"""Settle: pending -> committed, from a durable segment. It never voids anything: a durable record counts.

The same function serves a round, recovery, adoption and the resolution of a doubt on an owner's behalf.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, groupby
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
Columns = Mapping[str, Sequence[Any]]
"""A segment's columns by name (`journal.segment.SCHEMA`), at least those above."""


def records_of(segment: Segment) -> list[Record]:
    """The rows of a segment as far as ordering needs them."""
    return _records(_columns_of(segment))


def _columns_of(segment: Segment) -> Columns:
    return {name: segment.rows.column(name).to_pylist() for name in _COLUMNS}


def _records(columns: Columns) -> list[Record]:
    return list(zip(*(columns[name] for name in _COLUMNS), strict=True))


class SegmentLane:
    """One stream's accepted records in a segment: what its settle call and the batch's evidence say of them."""

    __slots__ = ("evidence", "markers", "message_id", "sequence_number", "source", "stream")

    def __init__(self, columns: Columns, runs: Sequence[slice]) -> None:
        def part(name: str) -> Sequence[str]:
            if len(runs) == 1:  # its messages stood together, as a queue hands them over
                return columns[name][runs[0]]
            return list(chain.from_iterable(columns[name][run] for run in runs))

        last = runs[-1].stop - 1
        self.source: str = columns["source"][last]
        self.stream: str = columns["stream"][last]
        self.message_id: str = columns["message_id"][last]
        self.sequence_number: str = columns["sequence_number"][last]
        self.markers = tuple(zip(part("identity"), part("content_hash"), strict=True))
        self.evidence = LaneEvidence.of(
            part("stream_order"),
            part("row_position"),
            sequences=part("sequence_number"),
            flags=part("flag"),
            lineages=part("lineage"),
        )


class Content:
    """What a segment holds, as far as ordering needs it. Grouped by stream once, for settle and seal."""

    __slots__ = ("_columns", "lanes", "outcomes")

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self.outcomes = Counter(columns["outcome"])
        runs: dict[tuple[str, str], list[slice]] = {}
        at = 0
        for (outcome, *stream), run in groupby(zip(*(columns[name] for name in _COLUMNS[:3]), strict=True)):
            start, at = at, at + len(list(run))
            if outcome == _ACCEPTED:
                runs.setdefault((stream[0], stream[1]), []).append(slice(start, at))
        self.lanes = [SegmentLane(columns, found) for found in runs.values()]

    @classmethod
    def of(cls, segment: Segment) -> Content:
        """Of a segment that was read back."""
        return cls(_columns_of(segment))

    @property
    def records(self) -> list[Record]:
        """Its rows."""
        return _records(self._columns)


SLICE_COLUMNS = ("outcome", "company", "tenant", "entity")


def slices_of(columns: Columns) -> Counter[tuple[str, str, str]]:
    """How many accepted records a segment's columns hold of each company, tenant and entity."""
    slices: Counter[tuple[str, str, str]] = Counter()
    owners = Counter(zip(*(columns[name] for name in SLICE_COLUMNS), strict=True))
    for (outcome, company, tenant, entity), count in owners.items():
        if outcome == Outcome.ACCEPTED:
            slices[company or "", tenant or "", entity] += count
    return slices


def settle_calls(segment: SegmentId, content: Content, worker: str, now: float) -> list[SettleCall]:
    """One call per stream with accepted records."""
    name, at_ms = str(segment), int(now * 1000)
    return [
        SettleCall(
            source=lane.source,
            stream=lane.stream,
            segment=name,
            markers=lane.markers,
            committed=lane.evidence.last_order,
            row_position=lane.evidence.row_position,
            lineage=lane.evidence.lineage,
            message_id=lane.message_id,
            sequence_number=lane.sequence_number,
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
    point_at_parked(store, segment, content)


def point_at_parked(store: ObjectStore, segment: SegmentId, content: Content) -> None:
    """Create the pointers of the segment's parked records."""
    if not content.outcomes[Outcome.PARKED]:
        return
    reasons = {(record[1], record[2]): record[11] for record in content.records if record[0] == Outcome.PARKED}
    for (source, stream), reason in reasons.items():
        parked.point(store, source, stream, segment, reason)
