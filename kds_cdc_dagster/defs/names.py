"""Asset keys, tags and names, in one place."""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

from kds_cdc_dagster.intake.offers import Affected

TAG_BATCH = "kds/batch"
TAG_ATTEMPT = "kds/attempt"
TAG_ENTITIES = "kds/entities"
TAG_CLOSE_REASON = "kds/close_reason"
TAG_REPLAY = "kds/replay"

BATCH_JOB = "load_batch"

QUARANTINE = dg.AssetKey(["ops", "quarantine"])


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
