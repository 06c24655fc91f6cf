"""Asset keys, tags and names, in one place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import dagster as dg

from kds_cdc_dagster.intake.offers import Affected

TAG_BATCH = "kds/batch"
TAG_ATTEMPT = "kds/attempt"
TAG_ENTITIES = "kds/entities"
TAG_CLOSE_REASON = "kds/close_reason"
TAG_KIND = "kds/kind"
"""live | export | replay | operate: what the queue's concurrency limits look at."""
TAG_PROCESS = "kds/process"
"""`<host>:<process id>` of the process that executes the run."""

BATCH_JOB = "load_batch"
EXPORT_JOB = "export_targets"

PRIORITY = {"live": "10", "export": "5", "operate": "5", "replay": "0"}
"""Of queued runs: live traffic before everything else."""
RUN_SECONDS_MAX = {"live": 3600, "export": 3600, "operate": 6 * 3600, "replay": 24 * 3600}
"""Run monitoring ends a run that takes longer."""

QUARANTINE = dg.AssetKey(["ops", "quarantine"])

Kind = Literal["live", "export", "operate", "replay"]


def run_tags(kind: Kind) -> dict[str, str]:
    """Tags of every run of this kind."""
    return {
        TAG_KIND: kind,
        "dagster/priority": PRIORITY[kind],
        "dagster/max_runtime": str(RUN_SECONDS_MAX[kind]),
    }


def raw(entity: str) -> dg.AssetKey:
    """Raw artifact of an entity."""
    return dg.AssetKey(["raw", entity])


def staging(entity: str) -> dg.AssetKey:
    """Staging table of an entity."""
    return dg.AssetKey(["staging", entity])


def curated(target: str) -> dg.AssetKey:
    """Curated table of a target."""
    return dg.AssetKey(["curated", target])


def export(target: str) -> dg.AssetKey:
    """Export of a target."""
    return dg.AssetKey(["export", target])


def affected_assets(affected: Affected, exports: Iterable[str]) -> list[dg.AssetKey]:
    """Keys of the assets that a batch touches; `exports` are the targets whose export is due."""
    keys = [key(entity) for entity in affected.entities for key in (raw, staging)]
    keys += [curated(target) for target in affected.targets]
    keys += [export(target) for target in exports]
    return keys + ([QUARANTINE] if affected.has_quarantine else [])
