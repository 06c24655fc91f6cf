"""Checks of a batch on its way: do counts close, are lanes in order, is what was written still what was meant?

Each function reads durable objects and tables and returns findings; none repairs anything. Facts are counts
and names only. Sources of the rules: invariants 2 and 5 of docs/INVARIANTS.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

import msgspec

from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.errors import KdsCdcError, ObjectMissing
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.load import landing
from kds_cdc_dagster.load.batch import read_batch
from kds_cdc_dagster.load.finding import Fact, Finding
from kds_cdc_dagster.load.layout import Schemas, listed, staged_columns
from kds_cdc_dagster.load.quarantine import SCOPE
from kds_cdc_dagster.load.raw import RawArtifact
from kds_cdc_dagster.ports import LoadArtifact, ObjectStore, Transaction, Warehouse

COUNTS_CLOSE, LANE_ORDER, CHECKSUM = "counts_close", "lane_order", "artifact_checksum"
AS_ARTIFACT, COMPLETE = "staging_equals_artifact", "quarantine_complete"


class BatchChecks:
    """Checks of raw artifacts, staging and quarantine of one batch."""

    def __init__(self, warehouse: Warehouse, store: ObjectStore, catalogue: Catalogue, schemas: Schemas) -> None:
        self._warehouse = warehouse
        self._store = store
        self._catalogue = catalogue
        self._schemas = schemas

    def raw(self, entity: str, manifest: Manifest, gaps: Mapping[str, int]) -> list[Finding]:
        """Conservation, lane order and checksum of one raw artifact.

        `gaps`: where the manifest's counts do not close, and by how much (`intake.counts.imbalance`).
        """
        sidecar = self._sidecar(entity, manifest.batch)
        findings = [
            self._counts_close(entity, manifest, sidecar, gaps),
            self._lane_order(entity, manifest),
            self._checksum(sidecar),
        ]
        return [self._about(("raw", entity), manifest, finding) for finding in findings]

    def _about(self, asset: tuple[str, str], manifest: Manifest, finding: Finding) -> Finding:
        return msgspec.structs.replace(finding, asset=asset, batch=manifest.batch)

    def _sidecar(self, entity: str, batch: str) -> RawArtifact | None:
        try:
            return msgspec.json.decode(self._store.get(keys.raw_sidecar(entity, batch)), type=RawArtifact)
        except ObjectMissing:
            return None

    def _counts_close(
        self, entity: str, manifest: Manifest, sidecar: RawArtifact | None, gaps: Mapping[str, int]
    ) -> Finding:
        """Received = Σ outcomes in the manifest; accepted of the entity = raw rows + repeats = Σ slices + repeats."""
        sealed = sum(found.changes for found in manifest.slices if found.entity == entity)
        rows, repeats = (sidecar.rows, sidecar.repeats) if sidecar else (0, 0)
        sliced = sum(found.rows for found in sidecar.slices) if sidecar else 0
        is_whole = sum(found.changes for found in manifest.slices) == manifest.accepted
        facts: dict[str, Fact] = {"sealed": sealed, "raw_rows": rows, "repeats": repeats, "in_slices": sliced}
        facts |= {f"off_by.{where}": gap for where, gap in gaps.items()}
        return _finding(COUNTS_CLOSE, not gaps and is_whole and sealed == rows + repeats and rows == sliced, facts)

    def _lane_order(self, entity: str, manifest: Manifest) -> Finding:
        """In the journal's order, the stream order of unflagged changes never falls, and streams are the lanes'."""
        try:
            rows = read_batch(self._store, manifest).accepted(entity)
        except ObjectMissing:
            return _finding(LANE_ORDER, has_passed=True, facts={"skipped": "the journal of this batch is pruned"})
        except KdsCdcError as error:
            return _finding(LANE_ORDER, has_passed=False, facts={"error": error.what})
        lanes = {(lane.source, lane.stream) for lane in manifest.lanes}
        last: dict[tuple[str, str], str] = {}
        disorder = strangers = 0
        columns = (rows[name].to_pylist() for name in ("source", "stream", "stream_order", "flag"))
        for source, stream, order, flag in zip(*columns, strict=True):
            strangers += (source, stream) not in lanes
            if order and not flag:
                disorder += order < last.get((source, stream), "")
                last[source, stream] = max(order, last.get((source, stream), ""))
        facts = {"lanes": len(last), "out_of_order": disorder, "outside_lanes": strangers}
        return _finding(LANE_ORDER, not disorder and not strangers, facts)

    def _checksum(self, sidecar: RawArtifact | None) -> Finding:
        try:
            body = self._store.get(sidecar.key) if sidecar else b""
        except ObjectMissing:
            body = b""
        is_same = sidecar is not None and sha256(body).hexdigest() == sidecar.sha256
        return _finding(
            CHECKSUM, is_same, {"size_bytes": len(body), "expected_bytes": sidecar.size_bytes if sidecar else 0}
        )

    def staging(self, entity: str, manifest: Manifest) -> list[Finding]:
        """Every raw row is staged or refused, and the staged rows are those of the load artifact, value by value."""
        sidecar = self._sidecar(entity, manifest.batch)
        found = self._warehouse.run(lambda tx: self._staged(tx, entity, manifest.batch))
        facts: dict[str, Fact] = {"raw_rows": sidecar.rows if sidecar else 0, **found}
        is_whole = facts["raw_rows"] == found.get("artifact_rows", 0) + found.get("refused", 0)
        is_same = found.get("staged_rows") == found.get("artifact_rows") and not found.get("different")
        return [self._about(("staging", entity), manifest, _finding(AS_ARTIFACT, is_whole and is_same, facts))]

    def _staged(self, tx: Transaction, entity: str, batch: str) -> dict[str, int]:
        query = (
            f"SELECT checksum, rows_staged, rows_refused FROM {self._schemas.op('staged')} "
            "WHERE entity = ? AND batch_id = ?"
        )
        recorded = tx.rows(query, (entity, batch))
        if not recorded:
            return {}
        checksum, rows, refused = recorded[0]
        table = f"{self._schemas.staging}.{entity}"
        ((staged,),) = tx.rows(f"SELECT COUNT(*) FROM {table} WHERE _batch_id = ?", (batch,))
        artifact = self._artifact(entity, batch, str(checksum), int(rows))
        counts = {"staged_rows": int(staged), "artifact_rows": int(rows), "refused": int(refused)}
        return counts | ({"different": self._different(tx, entity, batch, artifact)} if artifact else {})

    def _artifact(self, entity: str, batch: str, checksum: str, rows: int) -> LoadArtifact | None:
        """None where the artifact was pruned (it can be made again from raw)."""
        prefix = keys.load(entity, batch)
        key = f"{prefix}{checksum}.parquet"
        sizes = [info.size_bytes for info in self._store.scan(prefix) if info.key == key]
        return LoadArtifact(key, f"{prefix}{checksum}.manifest", checksum, rows, sizes[0]) if sizes else None

    def _different(self, tx: Transaction, entity: str, batch: str, artifact: LoadArtifact) -> int:
        """Rows of the artifact that staging has not, and the other way round."""
        columns = staged_columns(self._catalogue.entity_by_name[entity])
        landed = landing.land(tx, columns, artifact)
        # SUPER does not compare; text and DuckDB's JSON do.
        compared = [c for c in columns if c[1] != "json" or tx.dialect.column_type("json") != "SUPER"]
        written = f"SELECT {', '.join(tx.dialect.landed(name, kind) for name, kind in compared)} FROM {landed}"
        staged = (
            f"SELECT {listed(name for name, _ in compared)} FROM {self._schemas.staging}.{entity} WHERE _batch_id = ?"
        )
        ((lost,),) = tx.rows(f"SELECT COUNT(*) FROM ({written} EXCEPT {staged}) d", (batch,))
        ((strange,),) = tx.rows(f"SELECT COUNT(*) FROM ({staged} EXCEPT {written}) d", (batch,))
        tx.unland(landed)
        return int(lost) + int(strange)

    def quarantine(self, manifest: Manifest) -> list[Finding]:
        """Every rejected and parked delivery of the batch is in the quarantine table."""
        set_aside = manifest.rejected + manifest.parked
        query = f"SELECT rows_refused FROM {self._schemas.op('staged')} WHERE entity = ? AND batch_id = ?"
        found = self._warehouse.run(lambda tx: tx.rows(query, (SCOPE, manifest.batch)))
        rows = int(found[0][0]) if found else 0
        finding = _finding(COMPLETE, rows == set_aside, {"sealed": set_aside, "recorded": rows})
        return [self._about(("ops", "quarantine"), manifest, finding)]


def _finding(check: str, has_passed: bool, facts: Mapping[str, Fact]) -> Finding:  # noqa: FBT001
    return Finding(("", ""), check, has_passed, dict(facts))
