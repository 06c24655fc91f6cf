"""Asset checks: which ones each stage has, and their findings as Dagster shows them.

They run inside the step that materializes the asset, so a batch costs no further steps, and a blocking one
stops what comes after it. The job `check_all` and `kds-cdc checks` run all of them on what is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg

from kds_cdc_dagster.defs.partitions import BATCHES
from kds_cdc_dagster.intake.counts import imbalance
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.load import reconcile, reconcile_curated
from kds_cdc_dagster.load.finding import Finding
from kds_cdc_dagster.load.layout import Layout
from kds_cdc_dagster.load.reconcile import BatchChecks
from kds_cdc_dagster.load.reconcile_curated import curated_findings, export_findings

if TYPE_CHECKING:
    from kds_cdc_dagster.wiring import Pipeline

_BLOCKING: dict[str, dict[str, str]] = {
    "raw": {
        reconcile.COUNTS_CLOSE: "Every accepted change of the batch is in the artifact or counted as a repeat.",
        reconcile.LANE_ORDER: "Within each stream, changes stand in the order of the source.",
        reconcile.CHECKSUM: "The artifact is byte for byte what was written.",
    },
    "staging": {
        reconcile.AS_ARTIFACT: "Every raw row is staged or refused; staged rows equal the load artifact's.",
    },
    "curated": {
        reconcile_curated.UNIQUE: "No key stands twice.",
        reconcile_curated.NEWEST: "No row is missing or older than its newest staged change.",
        reconcile_curated.VALUES: "Every column is what the change that set it says.",
    },
    "export": {
        reconcile_curated.AS_CURATED: "The export holds the live rows at its watermark, and all its files exist.",
    },
    "ops": {
        reconcile.COMPLETE: "Every rejected and parked delivery of the batch has its quarantine row.",
    },
}
_WARNING = {"curated": {reconcile_curated.FRESH: "Sent → curated took at most a quarter of an hour."}}


def specs(asset: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """Check specs of an asset, by its stage."""
    stage = asset.path[0]
    partitions = None if stage == "export" else BATCHES
    return [
        dg.AssetCheckSpec(name, asset=asset, description=text, blocking=is_blocking, partitions_def=partitions)
        for kind, is_blocking in ((_BLOCKING, True), (_WARNING, False))
        for name, text in kind.get(stage, {}).items()
    ]


def batch_findings(parts: Pipeline, asset: dg.AssetKey, manifest: Manifest) -> list[Finding]:
    """What the checks of one asset find for one batch."""
    stage, name = asset.path
    checks = BatchChecks(parts.warehouse, parts.store, parts.catalogue, parts.schemas)
    match stage:
        case "raw":
            return checks.raw(name, manifest, imbalance(manifest.counts))
        case "staging":
            return checks.staging(name, manifest)
        case "ops":
            return checks.quarantine(manifest)
    return curated_findings(parts.warehouse, Layout.of(parts.catalogue, name, parts.schemas), manifest.batch)


def all_findings(parts: Pipeline, manifests: Iterable[Manifest]) -> Iterator[Finding]:
    """All checks: of the given loaded batches, then of every curated table and export as it is now."""
    parts.loader.ensure()
    for manifest in manifests:
        assets = [(stage, entity) for entity in manifest.entities for stage in ("raw", "staging")]
        assets += [("ops", "quarantine")] if manifest.rejected + manifest.parked else []
        for asset in assets:
            yield from batch_findings(parts, dg.AssetKey(list(asset)), manifest)
    for target in parts.catalogue.targets:
        layout = Layout.of(parts.catalogue, target.name, parts.schemas)
        yield from curated_findings(parts.warehouse, layout)
        yield from export_findings(parts.warehouse, parts.store, layout)


def results(findings: Iterable[Finding]) -> list[dg.AssetCheckResult]:
    """Findings as results: one per check, of several batches the first that failed."""
    chosen: dict[str, Finding] = {}
    for finding in findings:
        if finding.check not in chosen or (chosen[finding.check].has_passed and not finding.has_passed):
            chosen[finding.check] = finding
    return [
        dg.AssetCheckResult(
            check_name=finding.check,
            passed=finding.has_passed,
            severity=severity(finding),
            metadata=metadata(finding),
        )
        for finding in chosen.values()
    ]


def severity(finding: Finding) -> dg.AssetCheckSeverity:
    """Blocking checks fail as errors, the others as warnings."""
    return dg.AssetCheckSeverity.ERROR if finding.is_blocking else dg.AssetCheckSeverity.WARN


def metadata(finding: Finding) -> dict[str, Any]:
    """Facts of the finding, with the batch, which the UI shows for checks of any kind."""
    return {**finding.facts, **({"batch": finding.batch} if finding.batch else {})}


def failed(findings: Iterable[Finding]) -> list[Finding]:
    """Those that must make a job fail: warnings do not."""
    return [finding for finding in findings if not finding.has_passed and finding.is_blocking]


def export_of(parts: Pipeline, target: str) -> list[Finding]:
    """What the checks of an export find."""
    return export_findings(parts.warehouse, parts.store, Layout.of(parts.catalogue, target, parts.schemas))
