"""Intake sensors: drain for a bounded time, then hand on what waits in the outbox."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import dagster as dg

from kds_cdc_dagster.defs import names
from kds_cdc_dagster.defs.handing_on import Work, waiting_work
from kds_cdc_dagster.defs.partitions import BATCHES
from kds_cdc_dagster.defs.resources import PipelineResource
from kds_cdc_dagster.defs.runs import DagsterRuns
from kds_cdc_dagster.errors import KdsCdcError
from kds_cdc_dagster.intake.offers import Offer, affected
from kds_cdc_dagster.intake.tick import TickReport

if TYPE_CHECKING:
    from kds_cdc_dagster.wiring import Pipeline

INTERVAL_SECONDS = 5
"""As often as Dagster's sensor daemon looks."""
SENSOR_WAIT_SECONDS = 2.0
"""Long poll inside a sensor: short, because all sensors of a code server share its threads."""


class IntakeFailed(Exception):
    """The tick accepted nothing; shown by the daemon as a failed tick."""


def intake_sensor(number: int, jobs: Iterable[dg.UnresolvedAssetJobDefinition], *, is_on: bool) -> dg.SensorDefinition:
    """Sensor `intake_<number>`. Only the first one hands batches on: run keys are unique per sensor."""

    @dg.sensor(
        name=f"intake_{number}",
        jobs=list(jobs),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Drains the queue into micro-batches" + (" and requests a run for each." if number == 1 else "."),
    )
    def intake(context: dg.SensorEvaluationContext, pipeline: PipelineResource) -> dg.SensorResult:
        parts = pipeline.parts()
        if not (is_on or parts.is_driven):
            return dg.SensorResult(skip_reason="intake is off here: set KDS_CDC_INTAKE=on where sensors may drain")
        report = _tick(parts, f"intake_{number}")
        if not parts.is_driven:
            context.log.info("%s", report.line())
        return hand_on(context, parts, report) if number == 1 else _nothing(report)

    return intake


def _tick(parts: Pipeline, name: str) -> TickReport:
    """One tick. What stops the intake must not stop the loading of what is sealed: it becomes the report's failure."""
    settings = parts.settings
    # Only a local queue says at once that it is empty; of another, an early end would cut a batch from every round.
    is_at_once = parts.is_draining and settings.queue == "local"
    wait = 0.0 if is_at_once else min(settings.wait_seconds, SENSOR_WAIT_SECONDS)
    try:
        return parts.ticker(name).tick(
            budget_seconds=settings.tick_seconds,
            wait_seconds=wait,
            is_draining=parts.is_draining,
            again_seconds=0.0 if parts.is_driven else INTERVAL_SECONDS + settings.tick_seconds,
            backlog_seconds=settings.longest_tick_seconds,
        )
    except KdsCdcError as error:
        return TickReport(failure=f"{type(error).__name__}: {error}")


def hand_on(context: dg.SensorEvaluationContext, parts: Pipeline, report: TickReport) -> dg.SensorResult:
    """Request a run for every batch that waits without one, and for exports that are due; a bounded number a tick."""
    work = waiting_work(parts, DagsterRuns(context.instance, parts.clock.now()))
    for batch in [] if parts.is_driven else [*work.outbox.failed, *work.outbox.held]:
        context.log.error("batch %s is not handed on any more: see `kds-cdc status`", batch)
    if work.is_empty:
        return _nothing(report, work)
    if report.failure and not parts.is_driven:
        context.log.error("the intake failed, sealed batches are handed on all the same: %s", report.failure)
    batches = [offer.manifest.batch for offer in work.outbox.offers]
    requests = [_batch_request(parts, offer, work.exports_of(offer)) for offer in work.outbox.offers]
    return dg.SensorResult(
        run_requests=requests + ([_export_request(work.exports)] if work.exports else []),
        dynamic_partitions_requests=[BATCHES.build_add_request(batches)] if batches else [],
    )


def _batch_request(parts: Pipeline, offer: Offer, exports: Iterable[str]) -> dg.RunRequest:
    """A run over only the assets that the batch touches."""
    manifest = offer.manifest
    return dg.RunRequest(
        job_name=names.BATCH_JOB,
        run_key=offer.run_key,
        partition_key=manifest.batch,
        asset_selection=names.affected_assets(affected(manifest, parts.catalogue), exports),
        tags={
            **names.run_tags("live"),
            names.TAG_BATCH: manifest.batch,
            names.TAG_ATTEMPT: str(offer.attempt),
            names.TAG_ENTITIES: _short(manifest.entities),
            names.TAG_CLOSE_REASON: manifest.close_reason,
        },
    )


def _export_request(targets: Iterable[str]) -> dg.RunRequest:
    """A run of exports alone: deferred by earlier runs and due now. It belongs to no batch."""
    return dg.RunRequest(
        job_name=names.EXPORT_JOB,
        asset_selection=[names.export(target) for target in targets],
        tags=names.run_tags("export"),
    )


def _nothing(report: TickReport, work: Work | None = None) -> dg.SensorResult:
    """No run to request: say why, or fail visibly."""
    if report.failure:
        raise IntakeFailed(report.failure)
    if report.is_overlap:
        return dg.SensorResult(skip_reason="the last tick of this worker still runs")
    said = [f"{name} {number}" for name, number in sorted(report.counts.items())] or ["the queue gave nothing"]
    if work is not None and work.outbox.waiting:
        said.append(f"{work.outbox.waiting} batches wait, {work.outbox.live} of them in live runs")
    if work is not None and work.deferred:
        said.append(f"exports to come: {', '.join(sorted(work.deferred))}")
    return dg.SensorResult(skip_reason="; ".join(said))


def _short(words: Iterable[str], limit: int = 60) -> str:
    text = ".".join(words)  # a tag's value takes no comma
    return text if len(text) <= limit else text[: limit - 1] + "-"
