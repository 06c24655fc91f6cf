"""Audit: prove from durable objects that nothing is missing, and name what does not add up.

Looked at are the manifests sealed since a moment with their segments, the unsealed tails of the open logs, and
the counts of rounds that wrote no segment. What must hold: docs/INVARIANTS.md, "Counts".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from kds_cdc_dagster.core.change import Outcome
from kds_cdc_dagster.errors import ObjectMissing
from kds_cdc_dagster.intake import counts as names
from kds_cdc_dagster.intake.count_log import read_counts
from kds_cdc_dagster.journal import claims, keys, parked, segment
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.logs import Tail, sealed_slot
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.journal.segment import Segment
from kds_cdc_dagster.ports import ObjectStore

_COUNTED = {Outcome.ACCEPTED: names.ACCEPTED, Outcome.REJECTED: names.REJECTED, Outcome.PARKED: names.PARKED}
"""Outcomes that leave rows in a segment, and the (family of) counts that must equal them."""


@dataclass(slots=True)
class AuditReport:
    """What was looked at, its totals, and every problem found (none: everything adds up)."""

    batches: int = 0
    segments: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """Sum of all counts looked at (`intake.counts`)."""
    accepted_sealed: int = 0
    """Accepted changes in sealed batches."""
    accepted_unsealed: dict[str, int] = field(default_factory=dict)
    """Claim of an open log -> accepted changes that wait for their batch."""
    parked_outstanding: int = 0
    """Parked deliveries that wait for a release."""
    parked_released: int = 0
    problems: list[str] = field(default_factory=list)

    def json(self) -> str:
        """For machines."""
        return msgspec.json.format(msgspec.json.encode(self)).decode()

    def text(self) -> str:
        """For people: totals, then every problem."""
        unsealed = sum(self.accepted_unsealed.values())
        lines = [
            f"batches {self.batches}, segments {self.segments}",
            f"accepted: {self.accepted_sealed} in sealed batches, {unsealed} in open logs",
            f"parked: {self.parked_outstanding} outstanding, {self.parked_released} released",
            *(f"{name}: {number}" for name, number in sorted(self.counts.items())),
            *(f"PROBLEM {problem}" for problem in self.problems),
        ]
        return "\n".join([*lines, "everything adds up" if not self.problems else f"{len(self.problems)} problems"])


def audit(store: ObjectStore, since: datetime | None = None) -> AuditReport:
    """Audit the pipeline, or what was sealed or counted since a moment (UTC). Changes nothing."""
    return _Audit(store, since).run()


class _Audit:
    def __init__(self, store: ObjectStore, since: datetime | None) -> None:
        self._store = store
        self._since = since
        self._report = AuditReport()

    def run(self) -> AuditReport:
        report = self._report
        ends: dict[str, int] = {}
        for manifest in self._manifests():
            report.batches += 1
            self._neighbours(ends, manifest)
            self._batch(manifest)
        self._tails(ends)
        for counts in read_counts(self._store, self._since):
            self._count("an object of counts", counts)
        if self._since is None:
            self._released()
        return report

    def _blame(self, where: object, what: str) -> None:
        self._report.problems.append(f"{where}: {what}")

    def _manifests(self) -> Iterator[Manifest]:
        """In log order, those that were written since the moment."""
        for info in self._store.scan("batches/"):
            if self._since is None or info.modified_at >= self._since.timestamp():
                yield msgspec.json.decode(self._store.get(info.key), type=Manifest)

    def _neighbours(self, ends: dict[str, int], manifest: Manifest) -> None:
        """Each segment in one batch: a batch begins where the one before it in its log ended."""
        due = ends.get(manifest.claim, 0 if self._since is None else manifest.first_slot - 1) + 1
        if manifest.first_slot != due:
            what = "are in no batch" if manifest.first_slot > due else "are in two batches"
            low, high = sorted((due, manifest.first_slot))
            self._blame(manifest.batch, f"slots {low} to {high - 1} of its log {what}")
        ends[manifest.claim] = manifest.last_slot

    # --- batches -----------------------------------------------------------------------------

    def _batch(self, manifest: Manifest) -> None:
        rows: Counter[str] = Counter()
        lanes: Counter[tuple[str, str]] = Counter()
        slices: Counter[tuple[str, str, str]] = Counter()
        counted: dict[str, int] = {}
        for id_ in manifest.segments:
            found = self._read(id_)
            if found is None:
                self._blame(manifest.batch, f"segment {id_} is missing")
                continue
            counted = names.total(counted, found.counts)
            self._segment(found, rows, lanes, slices)
        self._compare_batch(manifest, rows, counted)
        self._compare(manifest.batch, "lane", lanes, {(x.source, x.stream): x.changes for x in manifest.lanes})
        claimed = {(x.company, x.tenant, x.entity): x.changes for x in manifest.slices}
        self._compare(manifest.batch, "slice", slices, claimed)
        self._report.accepted_sealed += rows[Outcome.ACCEPTED]

    def _read(self, id_: SegmentId) -> Segment | None:
        try:
            return segment.read(self._store, id_)
        except ObjectMissing:
            return None

    def _compare_batch(self, manifest: Manifest, rows: Counter[str], counted: dict[str, int]) -> None:
        claimed = {"accepted": manifest.accepted, "rejected": manifest.rejected, "parked": manifest.parked}
        self._compare(manifest.batch, "outcome", rows, claimed)
        self._compare(manifest.batch, "count", counted, manifest.counts)

    def _compare(self, batch: str, kind: str, found: object, claimed: object) -> None:
        """Both map names to numbers; a name that is missing stands for 0."""
        actual, said = dict(found), dict(claimed)  # type: ignore[call-overload]
        for name in sorted({*actual, *said}):
            gap = said.get(name, 0) - actual.get(name, 0)
            if gap:
                self._blame(batch, f"{kind} {name} of the manifest is off by {gap} against its segments")

    # --- segments ----------------------------------------------------------------------------

    def _segment(
        self,
        found: Segment,
        rows: Counter[str],
        lanes: Counter[tuple[str, str]],
        slices: Counter[tuple[str, str, str]],
    ) -> None:
        """Add a segment's rows up, and hold them against the counts that ride in it."""
        self._report.segments += 1
        own: Counter[str] = Counter()
        parked_rows: Counter[tuple[str, str]] = Counter()
        wanted = ("outcome", "source", "stream", "company", "tenant", "entity")
        columns = (found.rows.column(name).to_pylist() for name in wanted)
        for outcome, source, stream, company, tenant, entity in zip(*columns, strict=True):
            own[outcome] += 1
            if outcome == Outcome.ACCEPTED:
                lanes[source, stream] += 1
                slices[company or "", tenant or "", entity] += 1
            elif outcome == Outcome.PARKED:
                parked_rows[source, stream] += 1
        rows.update(own)
        self._counted(found, own)
        self._parked(found.id, parked_rows)

    def _counted(self, found: Segment, own: Counter[str]) -> None:
        self._count(found.id, dict(found.counts))
        for outcome, name in _COUNTED.items():
            total = sum(names.family_total(found.counts, prefix + name) for prefix in ("", names.RELEASE))
            if total != own[outcome]:
                self._blame(found.id, f"counts {total} {outcome} deliveries and holds {own[outcome]}")

    def _count(self, where: object, counts: dict[str, int]) -> None:
        for which, gap in names.imbalance(counts).items():
            self._blame(where, f"received and outcomes from the {which.rstrip('.')} differ by {gap}")
        self._report.counts = names.total(self._report.counts, counts)

    def _parked(self, id_: SegmentId, parked_rows: Counter[tuple[str, str]]) -> None:
        """Parked deliveries are outstanding or released, by their pointer."""
        for (source, stream), number in parked_rows.items():
            if parked.is_released(self._store, source, stream, id_):
                self._report.parked_released += number
            elif parked.is_pointed_at(self._store, source, stream, id_):
                self._report.parked_outstanding += number
            elif id_.claim not in self._report.accepted_unsealed:  # else its settle is still to come
                self._blame(id_, f"{number} parked deliveries of {source}|{stream} can be found by no release")

    def _released(self) -> None:
        """What releases took in covers everything that is marked as released."""
        counts = self._report.counts
        taken = counts.get(names.RELEASE + names.RECEIVED, 0)
        taken -= names.family_total(counts, names.RELEASE + names.GIVEN_UP)
        if taken < self._report.parked_released:
            short = self._report.parked_released - taken
            self._blame("releases", f"{short} deliveries are marked as released and were not taken in")

    # --- tails -------------------------------------------------------------------------------

    def _tails(self, ends: dict[str, int]) -> None:
        """Unsealed segments: named, if their log is open; else nobody will ever seal them."""
        open_logs = {heartbeat.claim: heartbeat.sealed_slot for heartbeat in claims.open_claims(self._store)}
        logs = set(open_logs)
        if self._since is None:
            logs |= {keys.unpart(name) for name in self._store.folders("journal/")}
        for claim in sorted(logs):
            start = sealed_slot(self._store, claim, max(ends.get(claim, 0), open_logs.get(claim, 0)))
            tail = Tail(self._store, claim, start)
            if claim in open_logs:
                self._report.accepted_unsealed[claim] = 0
            elif tail.slots:
                self._blame(claim, f"slots {tail.slots[0]} to {tail.slots[-1]} are in no batch and the log is not open")
            self._tail(tail)

    def _tail(self, tail: Tail) -> None:
        rows: Counter[str] = Counter()
        for found in tail.segments():
            self._segment(found, rows, Counter(), Counter())
        if tail.claim in self._report.accepted_unsealed:
            self._report.accepted_unsealed[tail.claim] = rows[Outcome.ACCEPTED]
