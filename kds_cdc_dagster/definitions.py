"""The Dagster code location. Importing it reads settings and catalogue and opens no connection."""

from __future__ import annotations

import warnings
from functools import lru_cache

import dagster as dg

from kds_cdc_dagster.catalogue import load_catalogue
from kds_cdc_dagster.defs.assets import batch_assets
from kds_cdc_dagster.defs.jobs import batch_job, export_job
from kds_cdc_dagster.defs.repairs import prune_schedule, repair_jobs
from kds_cdc_dagster.defs.resources import PipelineResource
from kds_cdc_dagster.defs.sensors import intake_sensor
from kds_cdc_dagster.settings import read_settings

warnings.filterwarnings("ignore", category=dg.BetaWarning)
warnings.filterwarnings("ignore", category=dg.PreviewWarning)


@lru_cache(maxsize=1)
def definitions() -> dg.Definitions:
    """All assets, sensors, jobs and resources of this process's settings."""
    settings = read_settings()
    catalogue = load_catalogue(settings.catalogue)
    jobs = [batch_job(), export_job()]
    is_on = settings.intake == "on"
    return dg.Definitions(
        assets=batch_assets(catalogue, settings),
        jobs=[*jobs, *repair_jobs()],
        schedules=[prune_schedule(is_on=is_on)],
        sensors=[intake_sensor(number, jobs, is_on=is_on) for number in range(1, settings.intake_sensors + 1)],
        resources={"pipeline": PipelineResource()},
    )


@dg.definitions
def defs() -> dg.Definitions:
    """Entry point of the code location."""
    return definitions()
