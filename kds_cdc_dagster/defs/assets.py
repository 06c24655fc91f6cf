"""Assets by factory from the catalogue: raw → staging per entity, curated → export per target.

One asset per (stage, entity), so that one entity's failure leaves the other chains going. Every body works
over `partition_keys`, so that a backfill may run a range in one run. An export is of no batch: it is the
target as it is now, and several batches share one.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, Self

import dagster as dg
import msgspec

from kds_cdc_dagster.core.catalogue import Catalogue, Entity, Target
from kds_cdc_dagster.defs import checks, names, showing
from kds_cdc_dagster.defs.partitions import BATCHES
from kds_cdc_dagster.defs.resources import PipelineResource
from kds_cdc_dagster.errors import TransientError
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.load.dirty import ExportRhythm
from kds_cdc_dagster.settings import Settings
from kds_cdc_dagster.wiring import Pipeline

RETRIES = 3
RETRY_SECONDS = 2.0
POOL_COPY, POOL_MERGE, POOL_UNLOAD = "kds_copy", "kds_merge", "kds_unload"
FRESHNESS = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=6), warn_window=timedelta(hours=1))
"""Of curated assets: a table of a kitchen that works is merged into at least hourly."""

Load = Callable[[Pipeline, Manifest], msgspec.Struct]


class Place(NamedTuple):
    """Where tables and files are, as the UI's kinds say it."""

    warehouse: str
    files: str

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """From the settings."""
        return cls(settings.warehouse, {"s3": "s3", "local": "file"}[settings.store])


def batch_assets(catalogue: Catalogue, settings: Settings) -> list[dg.AssetsDefinition]:
    """Every asset of the catalogue."""
    place = Place.of(settings)
    found = [_quarantine(catalogue, place, settings)]
    for entity in catalogue.entities:
        found += [_raw(entity, place), _staging(entity, place, settings)]
    for target in catalogue.targets:
        found.append(_curated(catalogue, target, place, settings))
        if target.export is not None:
            found.append(_export(catalogue, target, place))
    return found


def _batch_asset(key: dg.AssetKey, load: Load, counted: tuple[str, ...], **arguments: Any) -> dg.AssetsDefinition:
    """An asset with a partition per batch: load each batch of the run, check it, show its numbers."""
    decorated: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.asset(
        key=key,
        partitions_def=BATCHES,
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=key.path[0],
        check_specs=checks.specs(key),
        **arguments,
    )

    def body(context: dg.AssetExecutionContext, pipeline: PipelineResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        parts = pipeline.parts()
        stopwatch = showing.Stopwatch()
        manifests = [parts.loader.manifest(batch) for batch in sorted(context.partition_keys)]
        reports = [_retried(partial(load, parts, manifest)) for manifest in manifests]
        findings = [finding for manifest in manifests for finding in checks.batch_findings(parts, key, manifest)]
        return dg.MaterializeResult(
            metadata=showing.of_batches(parts, key, manifests, reports, counted) | stopwatch.metadata(),
            check_results=checks.results(findings),
        )

    return decorated(body)


def _raw(entity: Entity, place: Place) -> dg.AssetsDefinition:
    return _batch_asset(
        names.raw(entity.name),
        lambda parts, manifest: parts.loader.raw(entity.name, manifest),
        ("rows", "size_bytes", "repeats"),
        kinds={place.files, "parquet"},
        owners=list(entity.owners),
        metadata={"dagster/column_schema": showing.raw_schema()},
        description=f"Changes of `{entity.name}` as received, per batch: the replay truth.\n\n{entity.description}",
    )


def _staging(entity: Entity, place: Place, settings: Settings) -> dg.AssetsDefinition:
    return _batch_asset(
        names.staging(entity.name),
        lambda parts, manifest: parts.loader.stage(entity.name, manifest),
        ("rows", "refused", "size_bytes"),
        deps=[names.raw(entity.name)],
        kinds={place.warehouse, "table"},
        owners=list(entity.owners),
        pool=POOL_COPY,
        metadata=showing.of_table(entity, f"{settings.schema_staging}.{entity.name}", place.warehouse),
        description=f"Typed changes of `{entity.name}`, with the batch they came in.",
    )


def _curated(catalogue: Catalogue, target: Target, place: Place, settings: Settings) -> dg.AssetsDefinition:
    entity = catalogue.target_entity(target)
    return _batch_asset(
        names.curated(target.name),
        lambda parts, manifest: parts.loader.merge(target.name, manifest),
        ("changes", "applied", "stale", "deleted", "truncated"),
        deps=[names.staging(name) for name in target.from_],
        kinds={place.warehouse, "table"},
        owners=list(target.owners or entity.owners),
        pool=POOL_MERGE,
        freshness_policy=FRESHNESS,
        metadata=showing.of_table(entity, f"{settings.schema_curated}.{target.name}", place.warehouse),
        description=f"{target.description or entity.description}\n\nThe newest version of every row, tombstones kept.",
    )


def _quarantine(catalogue: Catalogue, place: Place, settings: Settings) -> dg.AssetsDefinition:
    return _batch_asset(
        names.QUARANTINE,
        lambda parts, manifest: parts.loader.quarantine(manifest),
        ("rejected", "parked", "new_rows"),
        kinds={place.warehouse, "table"},
        owners=sorted({owner for entity in catalogue.entities for owner in entity.owners}),
        metadata={"dagster/table_name": f"{settings.schema_ops}.quarantine"},
        description="Rejected and parked deliveries with their reason: one row each, however often redelivered.\n\n"
        "Act on them with the jobs `redrive_quarantine`, `discard_quarantine` and `release_stream`.",
    )


def _export(catalogue: Catalogue, target: Target, place: Place) -> dg.AssetsDefinition:
    entity = catalogue.target_entity(target)
    key = names.export(target.name)

    @dg.asset(
        key=key,
        deps=[names.curated(target.name)],
        output_required=False,
        group_name="export",
        check_specs=checks.specs(key),
        kinds={place.files, "parquet"},
        owners=list(target.owners or entity.owners),
        pool=POOL_UNLOAD,
        metadata={"dagster/column_schema": showing.column_schema(entity)},
        description=f"`{target.name}` as Parquet files by tenant; `current.json` names the files that are current.",
    )
    def export(context: dg.AssetExecutionContext, pipeline: PipelineResource):  # type: ignore[no-untyped-def] # noqa: ANN202 - Dagster refuses an annotated generator with checks
        parts = pipeline.parts()
        if names.TAG_ATTEMPT in context.run.tags and not _is_due(parts, target.name):
            context.log.info("exported a moment ago by another run; the next due export takes this batch along")
            yield from checks.results(checks.export_of(parts, target.name))  # a blocking check must have a result
            return
        yield _exported(parts, target.name)

    return export


def _exported(parts: Pipeline, target: str) -> dg.MaterializeResult[Any]:
    stopwatch = showing.Stopwatch()
    report = _retried(lambda: parts.loader.export(target))
    return dg.MaterializeResult(
        metadata=showing.of_export(parts, target, report) | stopwatch.metadata(),
        check_results=checks.results(checks.export_of(parts, target)),
    )


def _is_due(parts: Pipeline, target: str) -> bool:
    """Looked at again in the run: while it was queued, another run may have exported."""
    rhythm = ExportRhythm(parts.store, parts.catalogue, parts.settings.export_every_seconds)
    return rhythm.is_due(target, parts.clock.now())


def _retried(load: Callable[[], msgspec.Struct]) -> msgspec.Struct:
    """Only transient errors are worth a retry; adapters have already tried a few times quickly."""
    try:
        return load()
    except TransientError as error:
        raise dg.RetryRequested(max_retries=RETRIES, seconds_to_wait=RETRY_SECONDS) from error
