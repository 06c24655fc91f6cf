"""Jobs: the batch load that the sensors request."""

from __future__ import annotations

import dagster as dg

from kds_cdc_dagster.defs import names


def batch_job() -> dg.UnresolvedAssetJobDefinition:
    """Loads a batch: the sensors select only the affected assets. In one process: a run is short."""
    return dg.define_asset_job(
        names.BATCH_JOB,
        selection=dg.AssetSelection.groups("raw", "staging", "curated", "export", "ops"),
        executor_def=dg.in_process_executor,
        description="Loads one sealed batch: raw → staging → curated → export, only what it touches.",
    )
