"""Repairs and replays as jobs: one op each, typed config in the launchpad, numbers as metadata of its output.

Bodies are a call and its metadata; what they do is in `load.replay`, `load.compare`, `load.redrive` and
`intake.release`. Every one is safe to repeat.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import dagster as dg
import msgspec
from pydantic import Field

from kds_cdc_dagster.defs import acts, names, upkeep
from kds_cdc_dagster.defs.resources import PipelineResource
from kds_cdc_dagster.errors import SettingsError


class ReplayConfig(dg.Config):
    """Which durable range to load again, where to, and how fast. Empty fields do not restrict."""

    schema_name: str = Field("replay", description="Curated schema of the replay; its staging and ops schemas follow.")
    batches: list[str] = Field(default_factory=list, description="Batch ids (partition keys).")
    received_from: str = Field("", description="ISO time, UTC if it says nothing else; inclusive.")
    received_to: str = Field("", description="ISO time; exclusive.")
    streams: list[str] = Field(default_factory=list, description="Stream keys, account:store.")
    targets: list[str] = Field(default_factory=list, description="Curated targets; all if empty.")
    changes_per_second: float = Field(2000.0, gt=0, description="Rate limit.")
    signed_off_by: str = Field("", description="Who answers for this replay; goes into the report.")


class SwapConfig(dg.Config):
    """Compare a replay with live; swap it in if asked."""

    schema_name: str = Field("replay", description="Curated schema of the replay.")
    targets: list[str] = Field(default_factory=list, description="All if empty.")
    is_swapped: bool = Field(False, description="Bring the replay's rows in; otherwise only compare.")
    keys_only_live_max: int = Field(-1, description="Refuse to swap if more live keys are not in the replay (-1: any).")


class SelectionConfig(dg.Config):
    """Open quarantine rows, and why something is done with them. At least one restriction must be given."""

    why: str = Field(description="Goes into ops.quarantine_actions.")
    by: str = Field("operator", description="Who acts.")
    keys: list[str] = Field(default_factory=list, description="ops.quarantine.key")
    reason: str = ""
    source: str = ""
    entity: str = ""
    received_from: str = ""
    received_to: str = ""
    rows_max: int = Field(1000, ge=1, le=100_000)


class RedriveConfig(SelectionConfig):
    """Send them again, as they are or edited."""

    bodies: dict[str, str] = Field(default_factory=dict, description="Quarantine key → whole new body.")
    group_id: str = Field("", description="Another message group for all of them, after group_mismatch.")


class StreamConfig(dg.Config):
    """One stream."""

    source: str = Field(description="Source id of the catalogue.")
    stream: str = Field(description="Stream key, account:store.")


class ParkConfig(StreamConfig):
    """A stream to hold."""

    reason: str = Field("parked in the UI", description="Stands beside the hold until it is released.")


class EpochConfig(dg.Config):
    """A source that began anew."""

    source: str = Field(description="Source id of the catalogue.")
    reason: str = "opened in the UI"
    by: str = "operator"


class PruneConfig(dg.Config):
    """Bounds of one pass."""

    keys_per_pass: int = Field(upkeep.KEYS_PER_PASS, ge=1, le=10_000)


class BatchesConfig(dg.Config):
    """Batches by id."""

    batches: list[str]


class ChecksConfig(dg.Config):
    """How far back."""

    batches_max: int = Field(50, ge=0, description="Newest loaded batches; tables and exports are checked whole.")


@dg.op(description="Load a durable range again into schemas of its own; live is untouched, exports do not run.")
def replay(context: dg.OpExecutionContext, config: ReplayConfig, pipeline: PipelineResource) -> None:
    """See `load.replay`."""
    scope = acts.scope(config.batches, config.received_from, config.received_to, config.streams, config.targets)
    order = acts.ReplayOrder(context.run_id, config.schema_name, config.changes_per_second, config.signed_off_by)
    report = acts.replay(pipeline.parts(), scope, order, context.log.info)
    context.add_output_metadata(acts.replay_metadata(pipeline.parts(), report))
    if not report.is_reconciled:
        raise dg.Failure("the replay does not reconcile: see gaps and counts", allow_retries=False)


@dg.op(description="Compare a replay with live, in keys and values; with `is_swapped`, bring it in atomically.")
def compare_and_swap(context: dg.OpExecutionContext, config: SwapConfig, pipeline: PipelineResource) -> None:
    """See `load.compare`."""
    found = acts.compare(pipeline.parts(), config.schema_name, config.targets)
    metadata = {f"compared.{c.target}": dg.MetadataValue.json(msgspec.to_builtins(c)) for c in found}
    context.add_output_metadata(metadata)
    limit = config.keys_only_live_max
    if not config.is_swapped:
        return
    if limit >= 0 and any(comparison.only_live > limit for comparison in found):
        raise dg.Failure(
            "live holds more keys that the replay has not than allowed; nothing swapped", metadata=metadata
        )
    swapped = acts.swap(pipeline.parts(), config.schema_name, config.targets, context.run_id)
    reports = {f"swapped.{r.target}": dg.MetadataValue.json(msgspec.to_builtins(r)) for r in swapped}
    context.add_output_metadata(metadata | reports)


@dg.op(description="Send quarantined deliveries to the queue again, as they are or edited, in their old order.")
def redrive_quarantine(context: dg.OpExecutionContext, config: RedriveConfig, pipeline: PipelineResource) -> None:
    """See `load.redrive`."""
    report = acts.redrive(pipeline.parts(), _selection(config), (config.by, config.why), config.bodies, config.group_id)
    context.add_output_metadata(msgspec.to_builtins(report))


@dg.op(description="Close quarantine rows without sending them, with a reason.")
def discard_quarantine(context: dg.OpExecutionContext, config: SelectionConfig, pipeline: PipelineResource) -> None:
    """See `load.redrive`."""
    report = acts.discard(pipeline.parts(), _selection(config), (config.by, config.why))
    context.add_output_metadata(msgspec.to_builtins(report))


@dg.op(description="Hold a stream: its new changes are parked, durably and in order, until `release_stream`.")
def park_stream(context: dg.OpExecutionContext, config: ParkConfig, pipeline: PipelineResource) -> None:
    """See `intake.release`."""
    acts.park(pipeline.parts(), config.source, config.stream, config.reason)
    context.add_output_metadata({"held": config.stream, "reason": config.reason})


@dg.op(description="Take a held stream's parked deliveries in, in order, and let it flow again.")
def release_stream(context: dg.OpExecutionContext, config: StreamConfig, pipeline: PipelineResource) -> None:
    """See `intake.release`."""
    context.add_output_metadata(acts.release(pipeline.parts(), config.source, config.stream))


@dg.op(description="Open the next epoch of a source whose positions began anew, and release its held streams.")
def open_epoch(context: dg.OpExecutionContext, config: EpochConfig, pipeline: PipelineResource) -> None:
    """See `intake.release`."""
    context.add_output_metadata(acts.open_epoch(pipeline.parts(), config.source, config.reason, config.by))


@dg.op(description="Rebuild the ordering and duplicate state from durable records, under a new life.")
def rebuild_state(context: dg.OpExecutionContext, pipeline: PipelineResource) -> None:
    """See `intake.rebuild`."""
    context.add_output_metadata(
        {"life": acts.rebuild(pipeline.parts()) or "another worker's rebuild overtook this one"}
    )


@dg.op(description="Retention: journal, index, staging, exports, and partition keys together with their runs.")
def prune(context: dg.OpExecutionContext, config: PruneConfig, pipeline: PipelineResource) -> None:
    """See `defs.upkeep`."""
    parts = pipeline.parts()
    counts = upkeep.prune_objects(parts)
    forgotten = upkeep.forget_partitions(parts, context.instance, config.keys_per_pass)
    context.add_output_metadata(
        {**counts, "keys": forgotten.keys, "runs": forgotten.runs, "keys_left": forgotten.keys_left}
    )


@dg.op(description="Add pruned batches' partition keys again, so that they can be materialized.")
def restore_partitions(context: dg.OpExecutionContext, config: BatchesConfig, pipeline: PipelineResource) -> None:
    """See `defs.upkeep`."""
    restored = upkeep.restore(pipeline.parts(), context.instance, config.batches)
    context.add_output_metadata({"restored": len(restored), "unknown": len(config.batches) - len(restored)})


@dg.op(description="Every check of the newest batches, of all curated tables and exports; fails if one fails.")
def check_all(context: dg.OpExecutionContext, config: ChecksConfig, pipeline: PipelineResource) -> None:
    """See `defs.checks`."""
    failed = acts.check_all(pipeline.parts(), context.instance, config.batches_max)
    context.add_output_metadata({"failed": len(failed)})
    if failed:
        raise dg.Failure("\n".join(finding.line() for finding in failed), allow_retries=False)


def _selection(config: SelectionConfig) -> Any:
    chosen = (config.keys, config.reason, config.source, config.entity, config.received_from, config.received_to)
    if not any(chosen):
        raise SettingsError("name at least one of keys, reason, source, entity, received_from, received_to")
    return acts.selection(config.keys, config.reason, config.source, config.entity, config.rows_max, _range(config))


def _range(config: SelectionConfig) -> tuple[datetime | None, datetime | None]:
    return acts.moment(config.received_from), acts.moment(config.received_to)


_OPS: dict[names.Kind, tuple[Callable[..., Any], ...]] = {
    "replay": (replay, compare_and_swap),
    "operate": (
        redrive_quarantine,
        discard_quarantine,
        park_stream,
        release_stream,
        open_epoch,
        rebuild_state,
        prune,
        restore_partitions,
        check_all,
    ),
}


def repair_jobs() -> list[dg.JobDefinition]:
    """One job per op, of the op's name, with the tags of its kind."""
    return [_job(op, kind) for kind, ops in _OPS.items() for op in ops]  # type: ignore[arg-type]


def _job(op: dg.OpDefinition, kind: names.Kind) -> dg.JobDefinition:
    graph = dg.GraphDefinition(name=f"{op.name}_graph", node_defs=[op], description=op.description)
    return graph.to_job(name=op.name, executor_def=dg.in_process_executor, tags=names.run_tags(kind))


def prune_schedule(*, is_on: bool) -> dg.ScheduleDefinition:
    """Hourly, where sensors are on."""
    status = dg.DefaultScheduleStatus.RUNNING if is_on else dg.DefaultScheduleStatus.STOPPED
    return dg.ScheduleDefinition(
        name="prune_hourly",
        job_name="prune",
        cron_schedule="17 * * * *",
        default_status=status,
        description="Applies retention to the journal, staging, exports and the partition keys of old batches.",
    )
