"""Keeps Dagster's own metadata bounded: a partition key goes together with its runs, so no page shows half of it.

A pruned batch is not lost: its manifest and raw artifacts live on, `replay` reads them, and the job
`restore_partitions` adds the keys again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.storage.dagster_run import FINISHED_STATUSES
from dagster._core.storage.tags import PARTITION_NAME_TAG

from kds_cdc_dagster.defs.partitions import BATCHES
from kds_cdc_dagster.intake.prune import DAY_SECONDS, Pruned, Pruner, Retention
from kds_cdc_dagster.journal import outbox
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.load import retention

if TYPE_CHECKING:
    from kds_cdc_dagster.wiring import Pipeline

KEYS_PER_PASS = 500
"""Bounds one pass: a run takes about 50 ms to delete."""
FILLED = 0.9
"""A pass leaves this much of `partition_keys_max`, so that the next batches find room."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What went from Dagster."""

    keys: int
    runs: int
    keys_left: int


def forget_partitions(parts: Pipeline, instance: dg.DagsterInstance, keys_per_pass: int = KEYS_PER_PASS) -> Forgotten:
    """Remove the oldest keys beyond `partition_keys_max`, and those of batches whose journal is over, with their runs.

    Never the key of a batch that is not loaded, or that has a live run.
    """
    live = instance.get_dynamic_partitions(str(BATCHES.name))
    surplus = len(live) - int(parts.settings.partition_keys_max * FILLED)
    before = (parts.clock.now() - parts.settings.journal_days * DAY_SECONDS) * 1000
    gone = runs = 0
    for place, batch in enumerate(live):
        if gone >= keys_per_pass or not (place < surplus or _sealed_ms(parts, batch) < before):
            break  # in the order of adding: what follows is younger
        if outbox.is_done(parts.store, batch):
            deleted = _delete_runs(instance, batch)
            if deleted is not None:
                instance.delete_dynamic_partition(str(BATCHES.name), batch)
                gone, runs = gone + 1, runs + deleted
    return Forgotten(gone, runs, len(live) - gone)


def _sealed_ms(parts: Pipeline, batch: str) -> float:
    manifest = outbox.sealed(parts.store, batch)
    return manifest.sealed_at_ms if manifest is not None else 0.0


def _delete_runs(instance: dg.DagsterInstance, batch: str) -> int | None:
    """Delete the partition's runs; None, with nothing deleted, while one is live."""
    found = instance.get_runs(filters=dg.RunsFilter(tags={PARTITION_NAME_TAG: batch}))
    if any(run.status not in FINISHED_STATUSES for run in found):
        return None
    for run in found:
        instance.delete_run(run.run_id)
    return len(found)


def prune_objects(parts: Pipeline) -> dict[str, int]:
    """Apply retention to the object store and the warehouse; returns counts of what went."""
    settings, now = parts.settings, parts.clock.now()
    parts.loader.ensure()
    parts.loader.close_released()
    needed = retention.quarantined_segments(parts.warehouse, parts.schemas)
    pruned: Pruned = Pruner(
        parts.store,
        Retention(settings.journal_days, settings.raw_days),
        now,
        lambda manifest: _is_raw_good(parts, manifest),
    ).prune(needed)
    before = now - settings.journal_days * DAY_SECONDS
    return {
        "segments": pruned.segments,
        "manifests": pruned.manifests,
        "index_files": pruned.index_files,
        "other_objects": pruned.others,
        "batches_kept_back": pruned.kept_back,
        "stagings": retention.prune_staging(parts.warehouse, parts.catalogue, parts.schemas, before),
        "export_files": retention.prune_exports(parts.store, parts.catalogue, now),
    }


def _is_raw_good(parts: Pipeline, manifest: Manifest) -> bool:
    return retention.is_raw_good(parts.store, manifest)


def restore(parts: Pipeline, instance: dg.DagsterInstance, batches: list[str]) -> list[str]:
    """Add the keys of sealed batches again, so that they can be materialized from the UI; returns those added."""
    known = [batch for batch in batches if outbox.sealed(parts.store, batch) is not None]
    instance.add_dynamic_partitions(str(BATCHES.name), known)
    return known
