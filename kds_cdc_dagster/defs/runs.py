"""Dagster's runs as the outbox sees them."""

from __future__ import annotations

import os
import socket

import dagster as dg
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES, DagsterRunStatsSnapshot

from kds_cdc_dagster.defs.names import TAG_ATTEMPT, TAG_BATCH, TAG_KIND, TAG_PROCESS
from kds_cdc_dagster.intake.offers import Runs, RunState
from kds_cdc_dagster.processes import is_running

EXPORT_PAUSE_SECONDS = 60.0
"""After an export run that failed."""


NOTED_WITHIN_SECONDS = 60.0
"""A run notes its process as the first thing it does after its start (`defs.resources`)."""
QUEUED_WITHIN_SECONDS = 600.0
"""A daemon that died between creating a run and queueing it goes on with it when it is back; not for ever."""


def this_process() -> str:
    """Value of the tag that tells which process executes a run."""
    return f"{socket.gethostname()}:{os.getpid()}"


class DagsterRuns:
    """Looks runs up by tag. Replays and materializations by hand do not count: they carry no attempt."""

    def __init__(self, instance: dg.DagsterInstance, now: float) -> None:
        self._instance = instance
        self._now = now

    def runs(self, batch: str) -> Runs:
        """See `intake.offers.RunView`."""
        found = self._instance.get_run_records(filters=dg.RunsFilter(tags={TAG_BATCH: batch}))
        own = [record for record in found if TAG_ATTEMPT in record.dagster_run.tags]
        if not own:
            return Runs(RunState.NONE, 0)
        attempts = max(int(record.dagster_run.tags[TAG_ATTEMPT]) for record in own)
        live = [self._is_live(record) for record in own]  # every one: each that is dead is reported
        if any(live):
            return Runs(RunState.LIVE, attempts)
        return Runs(RunState.ENDED, attempts, sum(self._failed_by_itself(record) for record in own))

    def _failed_by_itself(self, record: dg.RunRecord) -> bool:
        """Whether a step failed, or all went well and yet did not load the batch; else its process died."""
        run = record.dagster_run
        if run.status == dg.DagsterRunStatus.SUCCESS:
            return True
        stats = self._instance.get_run_stats(run.run_id)
        return isinstance(stats, DagsterRunStatsSnapshot) and stats.steps_failed > 0

    def may_export(self) -> bool:
        """Whether no run of exports alone is live, and the last one did not just fail."""
        found = self._instance.get_run_records(filters=dg.RunsFilter(tags={TAG_KIND: "export"}), limit=1)
        if not found:
            return True
        (last,) = found
        if self._is_live(last):
            return False
        is_good = last.dagster_run.status == dg.DagsterRunStatus.SUCCESS
        return is_good or self._now - (last.end_time or 0.0) > EXPORT_PAUSE_SECONDS

    def _is_live(self, record: dg.RunRecord) -> bool:
        """Whether the run may still do something; one whose process died unseen is reported as failed.

        The default launcher watches its processes only as long as the code server lives (facts: no health check).
        """
        run = record.dagster_run
        if run.status not in NOT_FINISHED_STATUSES:
            return False
        if not self._is_gone(record):
            return True
        again = self._instance.get_run_by_id(run.run_id)  # it may have ended well since it was read
        if again is not None and again.status in NOT_FINISHED_STATUSES:
            self._instance.report_run_failed(again, "The process that executed this run is gone.")
        return False

    def _is_gone(self, record: dg.RunRecord) -> bool:
        host, _, process_id = record.dagster_run.tags.get(TAG_PROCESS, "").rpartition(":")
        if process_id:
            return host == socket.gethostname() and not is_running(int(process_id))
        if record.dagster_run.status == dg.DagsterRunStatus.NOT_STARTED:  # and nobody put it into the queue
            return self._now - record.create_timestamp.timestamp() > QUEUED_WITHIN_SECONDS
        # It started and died before it could say who it is. Queued and starting ones are Dagster's to watch.
        return self._now - (record.start_time or self._now) > NOTED_WITHIN_SECONDS
