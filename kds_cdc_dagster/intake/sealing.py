"""Open batches and their sealing: a run of settled segments of one log becomes a manifest.

Settle, then seal. Written in this order: outbox entry (void without its manifest), identity index,
manifest (create-only, keyed by the first slot: each segment is in one batch whatever two workers think).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kds_cdc_dagster.core.batch import CloseReason, LaneEvidence
from kds_cdc_dagster.core.change import Outcome
from kds_cdc_dagster.intake import counts as names
from kds_cdc_dagster.intake.round import Written
from kds_cdc_dagster.intake.settling import SLICE_COLUMNS, Content, slices_of
from kds_cdc_dagster.journal import index, keys, manifest, outbox
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.manifest import Lane, Manifest, Slice
from kds_cdc_dagster.journal.segment import Segment
from kds_cdc_dagster.ports import Clock, ObjectStore


class OpenBatch:
    """Consecutive settled segments of one log, with the evidence of each lane."""

    def __init__(self, claim: str, first_slot: int) -> None:
        self.claim = claim
        self.first_slot = first_slot
        self.last_slot = first_slot - 1
        self.records = 0
        self.size_bytes = 0
        self.first_received_ms = 0
        self.last_received_ms = 0
        self.counts: dict[str, int] = {}
        self.identities: list[tuple[str, str]] = []
        self._slices: Counter[tuple[str, str, str]] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._lanes: dict[tuple[str, str], LaneEvidence] = {}

    @property
    def is_empty(self) -> bool:
        """No segment yet."""
        return self.last_slot < self.first_slot

    def age_seconds(self, now: float) -> float:
        """Age since its first record was received."""
        return 0.0 if self.is_empty else now - self.first_received_ms / 1000

    def add(self, written: Written) -> None:
        """Take in the log's next segment."""
        self.last_slot = written.segment.slot
        self.records += written.content.outcomes.total()
        self.size_bytes += written.size_bytes
        self.first_received_ms = self.first_received_ms or written.first_received_ms
        self.last_received_ms = written.last_received_ms
        self.counts = names.total(self.counts, written.counts)
        self._slices.update(written.slices)
        self._outcomes.update(written.content.outcomes)
        for lane in written.content.lanes:
            self._lanes.setdefault((lane.source, lane.stream), LaneEvidence()).follow(lane.evidence)
            self.identities += lane.markers

    def manifest(self, *, reason: CloseReason, worker: str, now: float) -> Manifest:
        """The manifest, each lane proven again; a lane that fails makes it a held one."""
        disorder = [f"{s}|{t}: {lane.disorder}" for (s, t), lane in self._lanes.items() if lane.disorder]
        gaps = [f"counts of {where} are off by {gap}" for where, gap in names.imbalance(self.counts).items()]
        return Manifest(
            batch=keys.batch_id(SegmentId(self.claim, self.first_slot)),
            claim=self.claim,
            first_slot=self.first_slot,
            last_slot=self.last_slot,
            lanes=tuple(_lane(s, t, lane) for (s, t), lane in sorted(self._lanes.items())),
            slices=tuple(Slice(c, t, e, n) for (c, t, e), n in sorted(self._slices.items())),
            entities=tuple(sorted({entity for _, _, entity in self._slices})),
            accepted=self._outcomes[Outcome.ACCEPTED],
            rejected=self._outcomes[Outcome.REJECTED],
            parked=self._outcomes[Outcome.PARKED],
            counts=self.counts,
            size_bytes=self.size_bytes,
            close_reason=reason,
            first_received_ms=self.first_received_ms,
            last_received_ms=self.last_received_ms,
            sealed_at_ms=int(now * 1000),
            worker=worker,
            held="; ".join(disorder + gaps),
        )


def _lane(source: str, stream: str, lane: LaneEvidence) -> Lane:
    return Lane(
        source=source,
        stream=stream,
        changes=lane.changes,
        first_order=lane.first_order,
        last_order=lane.last_order,
        first_sequence=lane.first_sequence,
        last_sequence=lane.last_sequence,
        row_position=lane.row_position,
        lineage=lane.lineage,
        flagged=lane.flagged,
    )


def seal(store: ObjectStore, batch: OpenBatch, *, reason: CloseReason, worker: str, clock: Clock) -> Manifest:
    """Seal the batch; returns the manifest that won, which may be another worker's and end elsewhere."""
    mine = batch.manifest(reason=reason, worker=worker, now=clock.now())
    outbox.announce(store, mine.batch)
    index.write(store, index.key_of_batch(batch.claim, batch.first_slot, batch.last_slot), batch.identities)
    if manifest.write(store, mine):
        return mine
    return manifest.read(store, mine.batch)


def written_again(segment: Segment) -> Written:
    """A segment read back, in the form that an open batch takes in."""
    columns = {name: segment.rows.column(name).to_pylist() for name in SLICE_COLUMNS}
    received = segment.rows.column("received_at_ms").to_pylist()
    counts, size = dict(segment.counts), segment.size_bytes
    return Written(segment.id, Content.of(segment), counts, size, received[0], received[-1], slices_of(columns))


def seal_all(  # noqa: PLR0913 - a log's segments, its bounds and who seals
    store: ObjectStore,
    claim: str,
    segments: Sequence[Written],
    *,
    records_max: int,
    reason: CloseReason,
    worker: str,
    clock: Clock,
) -> list[Manifest]:
    """Seal a whole run of segments in batches of about `records_max`, stepping over others' seals."""
    sealed: list[Manifest] = []
    at = 0
    while at < len(segments):
        batch = OpenBatch(claim, segments[at].segment.slot)
        for written in segments[at:]:
            batch.add(written)
            if batch.records >= records_max:
                break
        winner = seal(store, batch, reason=reason, worker=worker, clock=clock)
        sealed.append(winner)
        while at < len(segments) and segments[at].segment.slot <= winner.last_slot:
            at += 1
    return sealed
