"""The end of a batch: `done/<batch>` once everything of it is where it belongs."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.errors import ObjectExists
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.load.layout import Schemas
from kds_cdc_dagster.load.quarantine import SCOPE
from kds_cdc_dagster.ports import ObjectStore, Transaction, Warehouse


def unfinished(warehouse: Warehouse, catalogue: Catalogue, schemas: Schemas, manifest: Manifest) -> list[str]:
    """What the batch still lacks: targets not in the load ledger, entities not staged, its quarantine rows."""
    entities = [name for name in manifest.entities if name in catalogue.entity_by_name]
    wanted = {f"curated {target.name}" for name in entities for target in catalogue.targets_of[name]}
    wanted |= {f"staging {name}" for name in entities}
    if manifest.rejected + manifest.parked:
        wanted.add(f"staging {SCOPE}")
    return sorted(wanted - warehouse.run(lambda tx: _finished(tx, manifest.batch, schemas)))


def mark_done(
    warehouse: Warehouse, store: ObjectStore, catalogue: Catalogue, schemas: Schemas, manifest: Manifest
) -> bool:
    """Create `done/<batch>` if the batch lacks nothing; False if it does. Repeatable."""
    if unfinished(warehouse, catalogue, schemas, manifest):
        return False
    with suppress(ObjectExists):
        store.create(keys.done(manifest.batch), msgspec.json.encode({"batch": manifest.batch}))
    return True


def _finished(tx: Transaction, batch: str, schemas: Schemas) -> set[str]:
    found = tx.rows(
        f"SELECT 'curated ' || target FROM {schemas.op('load_ledger')} WHERE schema_name = ? AND batch_id = ? "
        f"UNION ALL SELECT 'staging ' || entity FROM {schemas.op('staged')} WHERE batch_id = ?",
        (schemas.curated, batch, batch),
    )
    return {str(name) for (name,) in found}
