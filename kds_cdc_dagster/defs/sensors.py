"""Intake sensors: drain for a bounded time, then hand on what waits in the outbox."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from kds_cdc_dagster.defs import names
from kds_cdc_dagster.defs.partitions import BATCHES
from kds_cdc_dagster.defs.resources import PipelineResource
from kds_cdc_dagster.defs.runs import DagsterRuns
from kds_cdc_dagster.intake.offers import Offer, OutboxReport, affected, look
from kds_cdc_dagster.intake.tick import TickReport

if TYPE_CHECKING:
    from kds_cdc_dagster.wiring import Pipeline

INTERVAL_SECONDS = 5
"""As often as Dagster's sensor daemon looks."""
LIVE_PRIORITY = "10"
"""Of runs with fresh batches; replays run at 0."""
SENSOR_WAIT_SECONDS = 2.0
"""Long poll inside a sensor: short, because all sensors of a code server share its threads."""


class IntakeFailed(Exception):
    """The tick accepted nothing; shown by the daemon as a failed tick."""


def intake_sensor(number: int, job: dg.UnresolvedAssetJobDefinition, *, is_on: bool) -> dg.SensorDefinition:
    """Sensor `intake_<number>`. Only the first one hands batches on: run keys are unique per sensor."""

    @dg.sensor(
        name=f"intake_{number}",
        job=job,
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
    settings = parts.settings
    wait = 0.0 if parts.is_draining else min(settings.wait_seconds, SENSOR_WAIT_SECONDS)
    ticker = parts.ticker(name)
    return ticker.tick(budget_seconds=settings.tick_seconds, wait_seconds=wait, is_draining=parts.is_draining)


def hand_on(context: dg.SensorEvaluationContext, parts: Pipeline, report: TickReport) -> dg.SensorResult:
    """Request a run for every batch that waits without one, a bounded number a tick."""
    settings = parts.settings
    waiting = look(
        parts.store,
        DagsterRuns(context.instance),
        parts.clock,
        offers_max=settings.run_requests_max,
        attempts_max=settings.run_attempts_max,
    )
    for batch in [] if parts.is_driven else [*waiting.failed, *waiting.held]:
        context.log.error("batch %s is not handed on any more: see `kds-cdc status`", batch)
    if not waiting.offers:
        return _nothing(report, waiting)
    return dg.SensorResult(
        run_requests=[request(parts, offer) for offer in waiting.offers],
        dynamic_partitions_requests=[BATCHES.build_add_request([o.manifest.batch for o in waiting.offers])],
    )


def request(parts: Pipeline, offer: Offer) -> dg.RunRequest:
    """A run over only the assets that the batch touches."""
    manifest = offer.manifest
    touched = affected(manifest, parts.catalogue)
    return dg.RunRequest(
        run_key=offer.run_key,
        partition_key=manifest.batch,
        asset_selection=names.affected_assets(touched, _exported(parts, touched.targets)),
        tags={
            names.TAG_BATCH: manifest.batch,
            names.TAG_ATTEMPT: str(offer.attempt),
            names.TAG_ENTITIES: _short(manifest.entities),
            names.TAG_CLOSE_REASON: manifest.close_reason,
            "dagster/priority": LIVE_PRIORITY,
        },
    )


def _exported(parts: Pipeline, targets: Sequence[str]) -> list[str]:
    return [name for name in targets if parts.catalogue.target_by_name[name].export is not None]


def _nothing(report: TickReport, waiting: OutboxReport | None = None) -> dg.SensorResult:
    """No run to request: say why, or fail visibly."""
    if report.failure:
        raise IntakeFailed(report.failure)
    if report.is_overlap:
        return dg.SensorResult(skip_reason="the last tick of this worker still runs")
    said = [f"{name} {number}" for name, number in sorted(report.counts.items())] or ["the queue gave nothing"]
    if waiting is not None and waiting.waiting:
        said.append(f"{waiting.waiting} batches wait, {waiting.live} of them in live runs")
    return dg.SensorResult(skip_reason="; ".join(said))


def _short(words: Iterable[str], limit: int = 60) -> str:
    text = "_".join(words)
    return text if len(text) <= limit else text[: limit - 1] + "-"
