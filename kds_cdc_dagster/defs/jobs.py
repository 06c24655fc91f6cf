"""Jobs over assets: the batch load and the exports that the sensors request. In one process: a run is short."""

from __future__ import annotations

import dagster as dg

from kds_cdc_dagster.defs import names


def batch_job() -> dg.UnresolvedAssetJobDefinition:
    """Loads a batch: the sensors select only the affected assets."""
    return dg.define_asset_job(
        names.BATCH_JOB,
        selection=dg.AssetSelection.groups("raw", "staging", "curated", "export", "ops"),
        executor_def=dg.in_process_executor,
        description="Loads one sealed batch: raw → staging → curated → export, only what it touches.",
    )


def export_job() -> dg.UnresolvedAssetJobDefinition:
    """Exports targets as they are now, apart from any batch."""
    return dg.define_asset_job(
        names.EXPORT_JOB,
        selection=dg.AssetSelection.groups("export"),
        executor_def=dg.in_process_executor,
        tags=names.run_tags("export"),
        description="Exports targets that changed since their last export, as they are now.",
    )
