"""Dagster's runs as the outbox sees them."""

from __future__ import annotations

import dagster as dg
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from kds_cdc_dagster.defs.names import TAG_ATTEMPT, TAG_BATCH
from kds_cdc_dagster.intake.offers import Runs, RunState


class DagsterRuns:
    """Looks the runs of a batch up by tag. Replays do not count: they carry no attempt."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance

    def runs(self, batch: str) -> Runs:
        """See `intake.offers.RunView`."""
        found = self._instance.get_runs(filters=dg.RunsFilter(tags={TAG_BATCH: batch}))
        own = [run for run in found if TAG_ATTEMPT in run.tags]
        if not own:
            return Runs(RunState.NONE, 0)
        is_live = any(run.status in NOT_FINISHED_STATUSES for run in own)
        attempts = max(int(run.tags[TAG_ATTEMPT]) for run in own)
        return Runs(RunState.LIVE if is_live else RunState.ENDED, attempts)
