"""The load ledger: which batch is in which target, in which order, and whose rows changed since."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from kds_cdc_dagster.load.layout import OPS, Layout, listed
from kds_cdc_dagster.ports import Transaction

if TYPE_CHECKING:
    from kds_cdc_dagster.load.merge import MergeReport

_SCOPE = "schema_name = ? AND target = ?"


def staged(tx: Transaction, layout: Layout, batch: str) -> str | None:
    """Checksum over the artifacts staged for the target's entities; None if there is none."""
    names = layout.target.from_
    found = tx.rows(
        f"SELECT entity, checksum FROM {layout.schemas.op('staged')} WHERE batch_id = ? "
        f"AND entity IN ({', '.join('?' for _ in names)}) ORDER BY entity",
        (batch, *names),
    )
    if len(found) <= 1:
        return str(found[0][1]) if found else None
    return sha256("\n".join(f"{entity} {checksum}" for entity, checksum in found).encode()).hexdigest()


def sequence_of(tx: Transaction, layout: Layout, batch: str, checksum: str, code_version: str) -> int | None:
    """Sequence under which this very merge is recorded."""
    found = tx.rows(
        f"SELECT sequence FROM {layout.schemas.op('load_ledger')} "
        f"WHERE {_SCOPE} AND batch_id = ? AND checksum = ? AND code_version = ?",
        (*layout.scope, batch, checksum, code_version),
    )
    return int(found[0][0]) if found else None


def has_batch(tx: Transaction, layout: Layout, batch: str) -> bool:
    """Whether the target has the batch already, from other rows or other code: then this is a replay."""
    query = f"SELECT 1 FROM {layout.schemas.op('load_ledger')} WHERE {_SCOPE} AND batch_id = ? LIMIT 1"
    return bool(tx.rows(query, (*layout.scope, batch)))


def last_sequence(tx: Transaction, layout: Layout) -> int:
    """The target's watermark: 0 before the first merge."""
    query = f"SELECT MAX(sequence) FROM {layout.schemas.op('load_ledger')} WHERE {_SCOPE}"
    ((found,),) = tx.rows(query, layout.scope)
    return int(found or 0)


def record(tx: Transaction, layout: Layout, report: MergeReport, *, code_version: str, applied_at: datetime) -> None:
    """Write the ledger row of a merge."""
    values = {
        "schema_name": layout.schemas.curated,
        "batch_id": report.batch,
        "code_version": code_version,
        "applied_at": applied_at,
    }
    names = [name for name, _ in OPS["load_ledger"]]
    row = [values[name] if name in values else getattr(report, name) for name in names]
    marks = ", ".join("?" for _ in names)
    tx.execute(f"INSERT INTO {layout.schemas.op('load_ledger')} ({listed(names)}) VALUES ({marks})", row)


def note_tenants(tx: Transaction, layout: Layout, tenants: str | Sequence[str], sequence: int) -> None:
    """Remember that rows of these tenants changed (names, or a query of one column `tenant`)."""
    table = layout.schemas.op("changed_tenants")
    if not isinstance(tenants, str):
        for tenant in tenants:
            tx.execute(f"DELETE FROM {table} WHERE {_SCOPE} AND tenant = ?", (*layout.scope, tenant))
            tx.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", (*layout.scope, tenant, sequence))
        return
    tx.execute(f"DELETE FROM {table} WHERE {_SCOPE} AND tenant IN ({tenants})", layout.scope)
    tx.execute(
        f"INSERT INTO {table} (schema_name, target, tenant, sequence) SELECT ?, ?, t.tenant, ? FROM ({tenants}) t",
        (*layout.scope, sequence),
    )
