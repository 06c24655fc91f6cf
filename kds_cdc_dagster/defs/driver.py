"""Drives the real sensors and runs inside one process, without a daemon: `kds-cdc run`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import dagster as dg

from kds_cdc_dagster.defs import names
from kds_cdc_dagster.defs.resources import PipelineResource
from kds_cdc_dagster.defs.runs import this_process
from kds_cdc_dagster.intake import counts as counting
from kds_cdc_dagster.intake.tick import TickReport
from kds_cdc_dagster.wiring import Pipeline

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""The runs' events are in the instance; the terminal belongs to the command."""


@dataclass(slots=True)
class RunOutcome:
    """One executed run."""

    batch: str
    """Empty for a run of exports alone."""
    attempt: int
    is_success: bool
    failed_steps: list[str] = field(default_factory=list)
    error: str = ""


class Driver:
    """Evaluates the intake sensor and executes what it requests."""

    def __init__(self, parts: Pipeline, instance: dg.DagsterInstance, definitions: dg.Definitions) -> None:
        self._parts = parts
        self._instance = instance
        self._definitions = definitions
        self._sensor = definitions.get_repository_def().get_sensor_def("intake_1")
        self.counts: dict[str, int] = {}
        self.failure = ""
        parts.is_driven = True
        parts.ticker("intake_1").on_report = self._note

    def _note(self, report: TickReport) -> None:
        self.failure = report.failure
        self.counts = counting.total(self.counts, report.counts)

    def tick(self) -> list[dg.RunRequest]:
        """One evaluation of the sensor; its partitions are added. A failed tick requests nothing."""
        context = dg.build_sensor_context(
            instance=self._instance,
            instance_ref=self._instance.get_ref(),
            definitions=self._definitions,
            resources={"pipeline": PipelineResource()},
        )
        try:
            result = self._sensor.evaluate_tick(context)
        except Exception as error:
            if not self.failure:
                raise
            self.failure = str(error.__cause__ or error)
            return []
        for added in result.dynamic_partitions_requests or ():
            self._instance.add_dynamic_partitions(added.partitions_def_name, list(added.partition_keys))
        return list(result.run_requests or ())

    def execute(self, requests: list[dg.RunRequest]) -> Iterator[RunOutcome]:
        """Execute requested runs one after the other."""
        for request in requests:
            result = self._definitions.resolve_job_def(request.job_name or names.BATCH_JOB).execute_in_process(
                instance=self._instance,
                partition_key=request.partition_key,
                asset_selection=request.asset_selection,
                tags={**request.tags, names.TAG_PROCESS: this_process()},
                run_config=_QUIET,
                raise_on_error=False,
            )
            failures = [event for event in result.all_events if event.is_step_failure]
            yield RunOutcome(
                batch=request.tags.get(names.TAG_BATCH, ""),
                attempt=int(request.tags.get(names.TAG_ATTEMPT, "1")),
                is_success=result.success,
                failed_steps=[event.step_key or "" for event in failures],
                error=_why(failures),
            )


def _why(failures: list[dg.DagsterEvent]) -> str:
    for event in failures:
        error = event.step_failure_data.error
        while error is not None and error.cause is not None:
            error = error.cause
        if error is not None:
            return error.message.strip()
    return ""
