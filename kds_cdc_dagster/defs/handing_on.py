"""What a tick hands on: sealed batches without a live run, and exports that are due."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kds_cdc_dagster.defs.runs import DagsterRuns
from kds_cdc_dagster.intake.offers import Offer, OutboxReport, RunState, affected, look
from kds_cdc_dagster.load import dirty
from kds_cdc_dagster.load.dirty import ExportRhythm

if TYPE_CHECKING:
    from kds_cdc_dagster.wiring import Pipeline


@dataclass(slots=True)
class Work:
    """What to request now, and what waits."""

    outbox: OutboxReport
    exports: list[str] = field(default_factory=list)
    """Targets to export in a run of their own."""
    deferred: set[str] = field(default_factory=set)
    """Targets whose export is behind and not requested now."""
    with_batch: dict[str, list[str]] = field(default_factory=dict)
    """Batch -> targets whose export its run includes."""

    @property
    def is_empty(self) -> bool:
        """Nothing to request."""
        return not self.outbox.offers and not self.exports

    def exports_of(self, offer: Offer) -> list[str]:
        """Targets whose export the batch's run includes."""
        return self.with_batch.get(offer.manifest.batch, [])


def waiting_work(parts: Pipeline, runs: DagsterRuns) -> Work:
    """Look through outbox and dirty targets; bounded by their size, never by history."""
    settings = parts.settings
    outbox = look(
        parts.store,
        runs,
        parts.clock,
        offers_max=settings.run_requests_max,
        attempts_max=settings.run_attempts_max,
    )
    work = Work(outbox)
    rhythm = ExportRhythm(parts.store, parts.catalogue, settings.export_every_seconds)
    _export_with_batches(parts, work, rhythm)
    _export_alone(parts, work, rhythm, runs)
    return work


def _export_with_batches(parts: Pipeline, work: Work, rhythm: ExportRhythm) -> None:
    """A due export rides with the batch that changes its target; of several batches, with the first."""
    now, taken = parts.clock.now(), set()
    for offer in work.outbox.offers:
        for target in affected(offer.manifest, parts.catalogue).targets:
            if target not in taken and rhythm.is_due(target, now):
                work.with_batch.setdefault(offer.manifest.batch, []).append(target)
                if rhythm.seconds(target):
                    taken.add(target)


def _export_alone(parts: Pipeline, work: Work, rhythm: ExportRhythm, runs: DagsterRuns) -> None:
    """Exports that no batch's run will do: deferred by earlier runs, or lost with one that failed."""
    marked = dirty.marked(parts.store, parts.catalogue)
    riding = {target for targets in work.with_batch.values() for target in targets}
    is_end = parts.is_draining and not work.outbox.offers and not work.outbox.live
    now = parts.clock.now()
    due = [
        target
        for target, batches in marked.items()
        if target not in riding
        and (is_end or rhythm.is_due(target, now))
        and runs.runs(batches[0]).state is not RunState.LIVE  # its own run may still export it
    ]
    if due and (parts.is_driven or runs.may_export()):
        work.exports = due
    work.deferred = set(marked) - riding - set(work.exports)
