"""Metadata: numbers that plot, links, schemas and a small preview. Row values go to the UI only, never to logs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
import msgspec

from kds_cdc_dagster.core.catalogue import Entity
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.load.batch import SCHEMA
from kds_cdc_dagster.load.layout import Layout, listed
from kds_cdc_dagster.load.raw import RawArtifact

if TYPE_CHECKING:
    from kds_cdc_dagster.wiring import Pipeline

PREVIEW_ROWS = 5
PREVIEW_CHARACTERS = 80
"""Of one value: the preview is stored in the event."""
LISTED_MAX = 20
"""Slices and names shown of a longer list."""


class Stopwatch:
    """How long a step took."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def metadata(self) -> dict[str, Any]:
        """Seconds since the start."""
        return {"seconds": round(time.monotonic() - self._started, 3)}


def column_schema(entity: Entity) -> dg.TableSchema:
    """The entity's columns as the UI shows them."""
    keys_ = set(entity.primary_key)
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name,
                column.type,
                column.description or None,
                constraints=dg.TableColumnConstraints(nullable=column.name not in keys_),
            )
            for column in entity.columns
        ]
    )


def raw_schema() -> dg.TableSchema:
    """Columns of every raw artifact: the delivery as received, and what was decided about it."""
    return dg.TableSchema(columns=[dg.TableColumn(field.name, str(field.type)) for field in SCHEMA])


def of_table(entity: Entity, table: str, warehouse: str) -> dict[str, Any]:
    """What the definition of a table's asset says."""
    return {
        "dagster/column_schema": column_schema(entity),
        "dagster/table_name": table,
        "dagster/storage_kind": warehouse,
    }


def of_batches(
    parts: Pipeline,
    key: dg.AssetKey,
    manifests: Sequence[Manifest],
    reports: Sequence[msgspec.Struct],
    counted: Iterable[str],
) -> dict[str, Any]:
    """Numbers of a step, summed over its batches; of one batch also what it is, and where."""
    documents = [msgspec.to_builtins(report) for report in reports]
    found: dict[str, Any] = {name: sum(document.get(name) or 0 for document in documents) for name in counted}
    if len(documents) == 1:
        found |= _shown(documents[0]) | _of_batch(manifests[0]) | _of_place(parts, key, manifests[0], reports[0])
    written = found.get("rows", found.get("applied"))
    if written is not None:
        found["dagster/partition_row_count"] = written
    return found | {"batches": len(manifests)}


def _of_batch(manifest: Manifest) -> dict[str, Any]:
    filled = manifest.sealed_at_ms - manifest.first_received_ms
    return {
        "lanes": len(manifest.lanes),
        "lanes_flagged": sum(lane.flagged > 0 for lane in manifest.lanes),
        "batch_slices": len(manifest.slices),
        "batch_changes": manifest.accepted,
        "closed_by": manifest.close_reason,
        "filled_seconds": round(filled / 1000, 3),
        "waited_seconds": round(max(0.0, time.time() - manifest.sealed_at_ms / 1000), 3),
        "sealed_at": dg.MetadataValue.timestamp(manifest.sealed_at_ms / 1000),
    }


def _of_place(parts: Pipeline, key: dg.AssetKey, manifest: Manifest, report: msgspec.Struct) -> dict[str, Any]:
    stage, name = key.path
    manifest_uri = {"manifest": dg.MetadataValue.path(parts.store.uri(keys.manifest(manifest.batch)))}
    if isinstance(report, RawArtifact):
        return manifest_uri | {"dagster/uri": parts.store.uri(report.key)}
    if stage == "curated":
        return manifest_uri | preview(parts, Layout.of(parts.catalogue, name, parts.schemas), manifest.batch)
    return manifest_uri


def of_export(parts: Pipeline, target: str, report: msgspec.Struct) -> dict[str, Any]:
    """Numbers of an export and where its pointer is."""
    found = _shown(msgspec.to_builtins(report))
    return found | {"dagster/uri": parts.store.uri(keys.current_export(target)), "dagster/row_count": found["rows"]}


def preview(parts: Pipeline, layout: Layout, batch: str) -> dict[str, Any]:
    """A few of the rows that the batch wrote, shortened."""
    columns = [*layout.columns, "_is_deleted"]
    query = f"SELECT {listed(columns)} FROM {layout.rows} WHERE _batch_id = ? LIMIT {PREVIEW_ROWS}"
    rows = parts.warehouse.run(lambda tx: tx.rows(query, (batch,)))
    if not rows:
        return {}
    records = [dg.TableRecord({name: _text(value) for name, value in zip(columns, row, strict=True)}) for row in rows]
    schema = dg.TableSchema(columns=[dg.TableColumn(name, "string") for name in columns])
    return {"preview": dg.MetadataValue.table(records, schema=schema)}


def _text(value: object) -> str:
    text = str(value)
    return text if len(text) <= PREVIEW_CHARACTERS else text[: PREVIEW_CHARACTERS - 1] + "…"


def _shown(document: Mapping[str, Any]) -> dict[str, Any]:
    """Values in a form that the UI shows: lists as JSON, cut; what is empty is left out. Zero is a number."""
    return {
        name: dg.MetadataValue.json(list(value)[:LISTED_MAX]) if isinstance(value, list | tuple) else value
        for name, value in document.items()
        if value is not None and value not in ("", {}, [], ())
    }
