"""Assets by factory from the catalogue: raw → staging per entity, curated → export per target.

One asset per (stage, entity), so that one entity's failure leaves the other chains going. Every body works
over `partition_keys`, so that a backfill may run a range in one run. Metadata are numbers, which plot.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import dagster as dg
import msgspec

from kds_cdc_dagster.core.catalogue import Catalogue, Entity, Target
from kds_cdc_dagster.defs import names
from kds_cdc_dagster.defs.partitions import BATCHES
from kds_cdc_dagster.defs.resources import PipelineResource
from kds_cdc_dagster.errors import TransientError
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.load.loader import Loader

RETRIES = 3
RETRY_SECONDS = 2.0
POOL_COPY, POOL_MERGE, POOL_UNLOAD = "kds_copy", "kds_merge", "kds_unload"

_SINGLE_RUN = dg.BackfillPolicy.single_run()


def batch_assets(catalogue: Catalogue) -> list[dg.AssetsDefinition]:
    """Every asset of the catalogue."""
    found = [_quarantine()]
    for entity in catalogue.entities:
        found += [_raw(entity), _staging(entity)]
    for target in catalogue.targets:
        found.append(_curated(catalogue, target))
        if target.export is not None:
            found.append(_export(catalogue, target))
    return found


def _raw(entity: Entity) -> dg.AssetsDefinition:
    @dg.asset(
        key=names.raw(entity.name),
        partitions_def=BATCHES,
        backfill_policy=_SINGLE_RUN,
        group_name="raw",
        kinds={"parquet"},
        owners=list(entity.owners),
        description=f"Changes of `{entity.name}` as received, per batch: the replay truth.\n\n{entity.description}",
    )
    def raw(context: dg.AssetExecutionContext, pipeline: PipelineResource) -> dg.MaterializeResult[Any]:
        loader = pipeline.parts().loader
        return _each(
            context, loader, lambda manifest: loader.raw(entity.name, manifest), ("rows", "size_bytes", "repeats")
        )

    return raw


def _staging(entity: Entity) -> dg.AssetsDefinition:
    @dg.asset(
        key=names.staging(entity.name),
        deps=[names.raw(entity.name)],
        partitions_def=BATCHES,
        backfill_policy=_SINGLE_RUN,
        group_name="staging",
        kinds={"table"},
        owners=list(entity.owners),
        pool=POOL_COPY,
        metadata={"dagster/column_schema": column_schema(entity)},
        description=f"Typed changes of `{entity.name}`, with the batch they came in.",
    )
    def staging(context: dg.AssetExecutionContext, pipeline: PipelineResource) -> dg.MaterializeResult[Any]:
        loader = pipeline.parts().loader
        return _each(
            context, loader, lambda manifest: loader.stage(entity.name, manifest), ("rows", "refused", "size_bytes")
        )

    return staging


def _curated(catalogue: Catalogue, target: Target) -> dg.AssetsDefinition:
    entity = catalogue.target_entity(target)

    @dg.asset(
        key=names.curated(target.name),
        deps=[names.staging(name) for name in target.from_],
        partitions_def=BATCHES,
        backfill_policy=_SINGLE_RUN,
        group_name="curated",
        kinds={"table"},
        owners=list(target.owners or entity.owners),
        pool=POOL_MERGE,
        metadata={"dagster/column_schema": column_schema(entity)},
        description=f"{target.description or entity.description}\n\nThe newest version of every row, tombstones kept.",
    )
    def curated(context: dg.AssetExecutionContext, pipeline: PipelineResource) -> dg.MaterializeResult[Any]:
        loader = pipeline.parts().loader
        counted = ("changes", "applied", "stale", "deleted", "truncated")
        return _each(context, loader, lambda manifest: loader.merge(target.name, manifest), counted)

    return curated


def _export(catalogue: Catalogue, target: Target) -> dg.AssetsDefinition:
    entity = catalogue.target_entity(target)

    @dg.asset(
        key=names.export(target.name),
        deps=[names.curated(target.name)],
        partitions_def=BATCHES,
        backfill_policy=_SINGLE_RUN,
        group_name="export",
        kinds={"parquet"},
        owners=list(target.owners or entity.owners),
        pool=POOL_UNLOAD,
        metadata={"dagster/column_schema": column_schema(entity)},
        description=f"`{target.name}` as Parquet files by tenant; `current.json` names the files that are current.",
    )
    def export(context: dg.AssetExecutionContext, pipeline: PipelineResource) -> dg.MaterializeResult[Any]:
        loader = pipeline.parts().loader
        started = time.monotonic()
        report = _retried(lambda: loader.export(target.name))
        return dg.MaterializeResult(metadata=_metadata(context, [report], (), started))

    return export


def _quarantine() -> dg.AssetsDefinition:
    @dg.asset(
        key=names.QUARANTINE,
        partitions_def=BATCHES,
        backfill_policy=_SINGLE_RUN,
        group_name="ops",
        kinds={"table"},
        description="Rejected and parked deliveries with their reason: one row each, however often redelivered.",
    )
    def quarantine(context: dg.AssetExecutionContext, pipeline: PipelineResource) -> dg.MaterializeResult[Any]:
        loader = pipeline.parts().loader
        return _each(context, loader, loader.quarantine, ("rejected", "parked", "new_rows"))

    return quarantine


def column_schema(entity: Entity) -> dg.TableSchema:
    """The entity's columns as the UI shows them."""
    keys = set(entity.primary_key)
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name, column.type, constraints=dg.TableColumnConstraints(nullable=column.name not in keys)
            )
            for column in entity.columns
        ]
    )


def _each(
    context: dg.AssetExecutionContext,
    loader: Loader,
    load: Callable[[Manifest], msgspec.Struct],
    counted: Iterable[str],
) -> dg.MaterializeResult[Any]:
    """Load every batch of the run in order; numbers are summed over them."""
    started = time.monotonic()
    manifests = [loader.manifest(batch) for batch in sorted(context.partition_keys)]
    reports = [_retried(partial(load, manifest)) for manifest in manifests]
    return dg.MaterializeResult(metadata=_metadata(context, reports, counted, started))


def _retried(load: Callable[[], msgspec.Struct]) -> msgspec.Struct:
    """Only transient errors are worth a retry; adapters have already tried a few times quickly."""
    try:
        return load()
    except TransientError as error:
        raise dg.RetryRequested(max_retries=RETRIES, seconds_to_wait=RETRY_SECONDS) from error


def _metadata(
    context: dg.AssetExecutionContext, reports: list[msgspec.Struct], counted: Iterable[str], started: float
) -> Mapping[str, Any]:
    documents = [msgspec.to_builtins(report) for report in reports]
    found: dict[str, Any] = {name: sum(document.get(name) or 0 for document in documents) for name in counted}
    if len(documents) == 1:
        found |= {name: _shown(value) for name, value in documents[0].items() if value not in (None, "", {}, [], ())}
    found |= {"batches": len(context.partition_keys), "seconds": round(time.monotonic() - started, 3)}
    if "rows" in found:
        found["dagster/partition_row_count"] = found["rows"]
    return found


def _shown(value: Any) -> Any:
    """A value in a form that Dagster's UI shows: tables and lists as JSON."""
    return dg.MetadataValue.json(list(value)) if isinstance(value, list | tuple) else value
