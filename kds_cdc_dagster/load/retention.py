"""Retention in the warehouse and of exports: staging rows of old batches, and versions nobody points at."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256

import msgspec

from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.errors import ObjectMissing
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.load.export import current_export
from kds_cdc_dagster.load.layout import Schemas
from kds_cdc_dagster.load.raw import RawArtifact
from kds_cdc_dagster.ports import ObjectStore, Transaction, Warehouse

EXPORT_GRACE_SECONDS = 2 * 86_400.0
"""A consumer that read the pointer may still read the files it named."""


def is_raw_good(store: ObjectStore, manifest: Manifest) -> bool:
    """Whether every entity of the batch has its raw artifact, with the checksum that its sidecar says."""
    try:
        for entity in manifest.entities:
            sidecar = msgspec.json.decode(store.get(keys.raw_sidecar(entity, manifest.batch)), type=RawArtifact)
            if sha256(store.get(sidecar.key)).hexdigest() != sidecar.sha256:
                return False
    except ObjectMissing:
        return False
    return True


def quarantined_segments(warehouse: Warehouse, schemas: Schemas) -> Iterator[SegmentId]:
    """Segments that hold the original bytes of open quarantine rows."""
    query = f"SELECT DISTINCT segment FROM {schemas.op('quarantine')} WHERE status = 'open'"
    return (SegmentId.parse(str(segment)) for (segment,) in warehouse.run(lambda tx: tx.rows(query)))


def prune_staging(warehouse: Warehouse, catalogue: Catalogue, schemas: Schemas, before: float) -> int:
    """Remove rows staged before a moment and forget that they were staged; returns how many batches and entities.

    Materializing such a batch again stages it again. Each entity goes in a transaction of its own.
    """
    at = datetime.fromtimestamp(before, UTC)
    return sum(
        warehouse.run(
            lambda tx, name=entity.name: _prune_entity(tx, schemas, name, at),  # type: ignore[misc]
            lock=f"{schemas.staging}.{entity.name}",
        )
        for entity in catalogue.entities
    )


def _prune_entity(tx: Transaction, schemas: Schemas, entity: str, before: datetime) -> int:
    old = f"SELECT batch_id FROM {schemas.op('staged')} WHERE entity = ? AND staged_at < ?"
    ((batches,),) = tx.rows(f"SELECT COUNT(*) FROM ({old}) o", (entity, before))
    if batches:
        tx.execute(f"DELETE FROM {schemas.staging}.{entity} WHERE _batch_id IN ({old})", (entity, before))
        tx.execute(f"DELETE FROM {schemas.op('staged')} WHERE entity = ? AND staged_at < ?", (entity, before))
    return int(batches)


def prune_exports(store: ObjectStore, catalogue: Catalogue, now: float) -> int:
    """Remove files of old export versions that the current export does not name; returns how many."""
    gone = 0
    for target in catalogue.targets:
        current = current_export(store, target.name)
        if current is None:
            continue
        named = {file.key for files in current.files.values() for file in files}
        named |= {keys.current_export(target.name), f"{keys.exports(target.name)}{current.version}/index.json"}
        old = [
            info.key
            for info in store.scan(keys.exports(target.name))
            if info.key not in named and info.modified_at < now - EXPORT_GRACE_SECONDS
        ]
        store.delete(old)
        gone += len(old)
    return gone
