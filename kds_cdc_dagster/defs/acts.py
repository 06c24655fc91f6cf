"""What the repair jobs do, as plain calls on the pipeline's parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import dagster as dg
import msgspec

from kds_cdc_dagster.defs import checks
from kds_cdc_dagster.errors import ObjectExists, SettingsError
from kds_cdc_dagster.intake import release as releases
from kds_cdc_dagster.intake.rebuild import rebuild as rebuild_store
from kds_cdc_dagster.journal import keys, outbox
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.load import compare as comparing
from kds_cdc_dagster.load import replay as replaying
from kds_cdc_dagster.load.finding import Finding
from kds_cdc_dagster.load.layout import Layout
from kds_cdc_dagster.load.loader import code_version
from kds_cdc_dagster.load.merge import MergeReport
from kds_cdc_dagster.load.redrive import Actor, Edit, Quarantine, RedriveReport, Selection
from kds_cdc_dagster.load.replay import ReplayReport, Scope
from kds_cdc_dagster.load.schema import ensure_schema

if TYPE_CHECKING:
    from kds_cdc_dagster.wiring import Pipeline


def moment(text: str) -> datetime | None:
    """An ISO time, UTC unless it says otherwise; None for nothing. Raises SettingsError."""
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError as error:
        raise SettingsError("not an ISO time", value=text, hint="2026-11-30T12:00") from error
    return found.replace(tzinfo=found.tzinfo or UTC) if found else None


def scope(
    batches: Sequence[str], received_from: str, received_to: str, streams: Sequence[str], targets: Sequence[str]
) -> Scope:
    """A replay's scope from its config."""
    start, end = (
        None if at is None else int(at.timestamp() * 1000) for at in map(moment, (received_from, received_to))
    )
    return Scope(tuple(batches), start, end, tuple(streams), tuple(targets))


def manifests(parts: Pipeline) -> Iterator[Manifest]:
    """Every sealed batch that is not wholly pruned: as many reads as batches, so for jobs, never for ticks."""
    for info in parts.store.scan("batches/"):
        yield msgspec.json.decode(parts.store.get(info.key), type=Manifest)


class ReplayOrder(NamedTuple):
    """What the launchpad asks for beside the scope."""

    replay: str
    """Id: the run's."""
    schema_name: str
    changes_per_second: float
    signed_off_by: str


def replay(parts: Pipeline, chosen: Scope, order: ReplayOrder, say: Callable[..., object]) -> ReplayReport:
    """Replay into isolated schemas; the report is kept as an object."""
    _refuse_unknown(parts, chosen.targets)
    schemas = replaying.isolated_schemas(order.schema_name, parts.schemas)
    known = manifests(parts) if not chosen.batches else map(parts.loader.manifest, chosen.batches)
    ports = (parts.warehouse, parts.store, parts.catalogue, schemas, parts.clock)
    replayer = replaying.Replayer(
        *ports,
        code_version(parts.catalogue),
        chosen,
        on_batch=lambda manifest: say("replayed %s: %d changes", manifest.batch, manifest.accepted),
    )
    report = ReplayReport(order.replay, order.schema_name, chosen, parts.clock.now(), order.signed_off_by)
    pace = replaying.Pace(order.changes_per_second)
    replayer.run(report, replaying.chosen(known, chosen), pace, parts.schemas)
    with suppress(ObjectExists):  # a retried step: the first report stands
        parts.store.create(keys.replay_report(order.replay), msgspec.json.format(msgspec.json.encode(report)))
    return report


def replay_metadata(parts: Pipeline, report: ReplayReport) -> dict[str, Any]:
    """The report in the UI: numbers that matter as numbers, the whole as JSON, and where it is kept."""
    document = msgspec.to_builtins(report)
    return {
        "report": dg.MetadataValue.json(document),
        "dagster/uri": parts.store.uri(keys.replay_report(report.replay)),
        "is_reconciled": report.is_reconciled,
        "batches": report.batches,
        "gaps": len(report.gaps),
        **{f"count.{name}": number for name, number in document["counts"].items()},
    }


def _refuse_unknown(parts: Pipeline, targets: Sequence[str]) -> None:
    for target in targets:
        if target not in parts.catalogue.target_by_name:
            raise SettingsError("no such target in the catalogue", target=target)


def _layouts(parts: Pipeline, name: str, targets: Sequence[str]) -> list[tuple[Layout, Layout]]:
    _refuse_unknown(parts, targets)
    schemas = replaying.isolated_schemas(name, parts.schemas)
    replayed = replaying.replayed_targets(parts.store, name)
    if not replayed or not replayed.issuperset(targets):
        missing = ", ".join(sorted({*targets} - replayed)) or "anything"
        raise SettingsError(
            f"no replay of this name has loaded {missing}", schema=name, hint="run the job replay first"
        )
    ensure_schema(parts.warehouse, parts.catalogue, schemas)
    parts.loader.ensure()
    return [
        (Layout.of(parts.catalogue, target.name, parts.schemas), Layout.of(parts.catalogue, target.name, schemas))
        for target in parts.catalogue.targets
        if target.name in (targets or replayed)
    ]


def compare(parts: Pipeline, name: str, targets: Sequence[str]) -> list[comparing.Comparison]:
    """Compare the replayed targets with live."""
    return [comparing.compare(parts.warehouse, live, mine) for live, mine in _layouts(parts, name, targets)]


def swap(parts: Pipeline, name: str, targets: Sequence[str], label: str) -> list[MergeReport]:
    """Swap the replayed targets in, one transaction each; exports follow by themselves."""
    version, found = code_version(parts.catalogue), []
    for live, mine in _layouts(parts, name, targets):
        found.append(comparing.swap(parts.warehouse, live, mine, label=label, code_version=version))
        parts.loader.mark_dirty(live.target.name, found[-1].batch)
    return found


def selection(
    chosen: Sequence[str],
    reason: str,
    source: str,
    entity: str,
    rows_max: int,
    received: tuple[datetime | None, datetime | None],
) -> Selection:
    """A selection of quarantine rows."""
    return Selection(tuple(chosen), reason, source, entity, *received, rows_max)


def redrive(
    parts: Pipeline, chosen: Selection, actor: tuple[str, str], bodies: Mapping[str, str], group_id: str
) -> RedriveReport:
    """Send quarantined deliveries again."""
    return _quarantine(parts).redrive(chosen, parts.outbound, Actor(*actor), Edit(bodies, group_id))


def discard(parts: Pipeline, chosen: Selection, actor: tuple[str, str]) -> RedriveReport:
    """Close quarantine rows."""
    return _quarantine(parts).discard(chosen, Actor(*actor))


def _quarantine(parts: Pipeline) -> Quarantine:
    parts.loader.ensure()
    return Quarantine(parts.warehouse, parts.store, parts.schemas, parts.clock)


def park(parts: Pipeline, source: str, stream: str, reason: str) -> None:
    """Hold one stream."""
    intake = parts.intake("operator")
    releases.park_stream(intake, _known(parts, source), stream, reason)
    intake.close()


def release(parts: Pipeline, source: str, stream: str) -> dict[str, int]:
    """Release one stream under an intake of its own."""
    intake = parts.intake("operator")
    counts = releases.release_stream(intake, _known(parts, source), stream)
    intake.close()
    parts.loader.close_released()
    return counts


def open_epoch(parts: Pipeline, source: str, reason: str, by: str) -> dict[str, int]:
    """Open the next epoch; returns the counts of what was released, and the epoch."""
    intake = parts.intake("operator")
    counts = releases.open_epoch(intake, _known(parts, source), reason, by)
    intake.close()
    parts.loader.close_released()
    return counts | {"epoch": intake.epochs[source].number}


def _known(parts: Pipeline, source: str) -> str:
    if source not in parts.catalogue.source_by_id:
        raise SettingsError("no such source in the catalogue", source=source)
    return source


def rebuild(parts: Pipeline) -> str | None:
    """Rebuild the state store; the new life, or None if another rebuild overtook."""
    return rebuild_store(parts.state, parts.store)


def check_all(parts: Pipeline, instance: dg.DagsterInstance, batches_max: int) -> list[Finding]:
    """Run all checks and record each as an evaluation of its asset; returns those that failed as errors."""
    findings = list(checks.all_findings(parts, newest_loaded(parts, batches_max)))
    for finding in findings:
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                asset_key=dg.AssetKey(list(finding.asset)),
                check_name=finding.check,
                passed=finding.has_passed,
                severity=checks.severity(finding),
                metadata=checks.metadata(finding),
            )
        )
    return checks.failed(findings)


def newest_loaded(parts: Pipeline, batches_max: int) -> list[Manifest]:
    """The newest batches that are done, oldest first."""
    infos = sorted(parts.store.scan("done/"), key=lambda info: info.modified_at)[-batches_max:] if batches_max else []
    found = (outbox.sealed(parts.store, keys.unpart(info.key.removeprefix("done/"))) for info in infos)
    return [manifest for manifest in found if manifest is not None]
