"""A round: one receive made durable, settled and acknowledged.

Steps and rules: docs/INVARIANTS.md, "A round". Nothing is deleted before every settle of the round is
done; when anything is unclear the round is given up, nothing is deleted, and the worker goes on under a
new claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.core.change import Change, Delivery, Outcome, Rejection
from kds_cdc_dagster.core.contracts import Parser
from kds_cdc_dagster.errors import InvariantBroken, ObjectExists, SlotTaken, TransientError
from kds_cdc_dagster.intake import counts as names
from kds_cdc_dagster.intake.claim import Claim
from kds_cdc_dagster.intake.item import Item, segment_columns
from kds_cdc_dagster.intake.judge import Judge
from kds_cdc_dagster.intake.settling import Content, settle, slices_of
from kds_cdc_dagster.intake.stream_work import StreamWork
from kds_cdc_dagster.journal import keys, segment
from kds_cdc_dagster.journal.epochs import SourceEpoch
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.ports import Clock, ObjectStore, StateStore
from kds_cdc_dagster.processes import without_collection

PUT_TRIES = 3


@dataclass(slots=True)
class Written:
    """A segment that was put and settled: what the open batch takes in."""

    segment: SegmentId
    content: Content
    counts: dict[str, int]
    size_bytes: int
    first_received_ms: int
    last_received_ms: int
    slices: Counter[tuple[str, str, str]] = field(default_factory=Counter)


@dataclass(slots=True)
class RoundResult:
    """What one round did. `receipts` may be acknowledged: everything before is durable and settled."""

    counts: dict[str, int]
    receipts: list[str]
    written: Written | None


class Round:
    """Takes deliveries through parse, decide, put and settle. Acknowledging is the caller's last step."""

    def __init__(  # noqa: PLR0913 - one object per worker, built in one place
        self,
        *,
        parser: Parser,
        catalogue: Catalogue,
        state: StateStore,
        store: ObjectStore,
        judge: Judge,
        clock: Clock,
        worker: str,
    ) -> None:
        self._parser = parser
        self._catalogue = catalogue
        self._state = state
        self._store = store
        self._judge = judge
        self._clock = clock
        self._worker = worker

    @without_collection()
    def run(
        self,
        deliveries: Sequence[Delivery],
        *,
        claim: Claim,
        life: str,
        epochs: dict[str, SourceEpoch],
        carried: dict[str, int],
        is_release: bool = False,
    ) -> RoundResult:
        """One round under `claim`; `carried` are counts of earlier rounds that wrote no segment.

        Raises SlotTaken, LineageBroken, StateUnavailable, StateNotReady or TransientError: the round
        must then be given up and the claim with it.
        """
        received_ms = int(self._clock.now() * 1000)
        controls: Counter[str] = Counter()
        items = self._parse(deliveries, received_ms, controls)
        works = self._works(items, epochs)
        self._judge.judge(works, life=life, segment=claim.segment, floors=claim.floors, is_release=is_release)
        tally = _tally(items, controls, names.RELEASE if is_release else "")
        kept = [item for item in items if item.outcome is not Outcome.SAFE_DUPLICATE]
        written = self._write(kept, claim, names.total(carried, tally)) if kept else None
        if written is not None:
            settle(
                self._state,
                self._store,
                life,
                written.segment,
                written.content,
                worker=self._worker,
                now=self._clock.now(),
            )
        return RoundResult(tally, [delivery.receipt for delivery in deliveries], written)

    def _parse(self, deliveries: Sequence[Delivery], received_ms: int, controls: Counter[str]) -> list[Item]:
        items = []
        for delivery in deliveries:
            parsed = self._parser.parse(delivery)
            if isinstance(parsed, Change):
                item = Item(delivery, parsed, received_ms)
            elif isinstance(parsed, Rejection):
                item = Item(delivery, None, received_ms, parsed)
                item.reject(parsed.reason, parsed.detail)
            else:
                controls[parsed.kind] += 1
                continue
            items.append(item)
        return items

    def _works(self, items: Sequence[Item], epochs: dict[str, SourceEpoch]) -> list[StreamWork]:
        works: dict[tuple[str, str], StreamWork] = {}
        for item in items:
            change = item.change
            if change is None:
                continue
            work = works.get((change.source, change.stream))
            if work is None:
                work = works[change.source, change.stream] = self._new_work(change, epochs)
            work.items.append(item)
        return list(works.values())

    def _new_work(self, change: Change, epochs: dict[str, SourceEpoch]) -> StreamWork:
        epoch = epochs.get(change.source, SourceEpoch())
        return StreamWork(self._catalogue.source_by_id[change.source], change.stream, epoch.number, epoch.hold)

    def _write(self, kept: Sequence[Item], claim: Claim, tally: dict[str, int]) -> Written:
        columns = segment_columns(kept)
        body = segment.encode(columns, tally)
        id_ = claim.segment
        self._put(keys.segment(id_), body)
        claim.next_slot += 1
        content = Content(columns)
        _raise_floors(claim, content)
        return Written(
            id_,
            content,
            tally,
            len(body),
            kept[0].received_at_ms,
            kept[-1].received_at_ms,
            slices_of(columns),
        )

    def _put(self, key: str, body: bytes) -> None:
        """Create-only put; one's own bytes already there are success, anything else is a death sentence."""
        for last in (False,) * (PUT_TRIES - 1) + (True,):
            try:
                self._store.create(key, body)
            except ObjectExists as error:
                if self._store.get(key) != body:
                    raise SlotTaken("this claim was judged dead", key=key) from error
            except TransientError:
                if last:
                    raise
                continue
            return


def _raise_floors(claim: Claim, content: Content) -> None:
    for lane in content.lanes:
        stream = (lane.source, lane.stream)
        if lane.evidence.last_order > claim.floors.get(stream, ""):
            claim.floors[stream] = lane.evidence.last_order


def _tally(items: Sequence[Item], controls: Counter[str], prefix: str) -> dict[str, int]:
    tally: Counter[str] = Counter()
    outcomes = Counter([item.outcome for item in items])
    for outcome, number in outcomes.items():
        if outcome is None:
            raise InvariantBroken("deliveries left a round without an outcome", messages=number)
        if outcome is not Outcome.REJECTED:
            tally[outcome.value] = number
    if outcomes[Outcome.REJECTED]:
        tally.update([names.REJECTED + item.reason for item in items if item.outcome is Outcome.REJECTED])
    for kind, number in controls.items():
        tally[names.CONTROL + kind] += number
    tally[names.RECEIVED] = len(items) + controls.total()
    return {prefix + name: number for name, number in tally.items()}
