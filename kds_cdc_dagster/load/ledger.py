"""The load ledger: which batch is in which target, in which order, and whose rows changed since."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from kds_cdc_dagster.load.layout import OPS, Layout, listed
from kds_cdc_dagster.ports import Transaction

if TYPE_CHECKING:
    from kds_cdc_dagster.load.merge import MergeReport

NOTES_KEPT = 64
"""Merges whose notes of changed tenants stay as they are. Of older ones those go that a later one repeats, which is
asked only as often: with every merge it was its dearest small statement."""
_SCOPE = "schema_name = ? AND target = ?"


class Known(msgspec.Struct, frozen=True):
    """What the ledgers say of one batch and target."""

    staged: dict[str, str]
    """Entity -> checksum of its staged artifact."""
    merged: dict[tuple[str, str], int]
    """(checksum, code version) -> sequence of each merge of the batch."""
    last_sequence: int
    """The target's watermark: 0 before the first merge."""
    has_truncates: bool
    """Whether tables of the target were ever truncated."""
    has_moves: bool
    """Whether the target remembers key changes (`load.moves`)."""

    @property
    def checksum(self) -> str | None:
        """Over the artifacts staged for the target's entities; None if there is none."""
        if len(self.staged) <= 1:
            return next(iter(self.staged.values()), None)
        return sha256(
            "\n".join(f"{entity} {checksum}" for entity, checksum in sorted(self.staged.items())).encode()
        ).hexdigest()

    @property
    def is_replay(self) -> bool:
        """Whether the target has the batch already, from other rows or other code."""
        return bool(self.merged)


def known(tx: Transaction, layout: Layout, batch: str) -> Known:
    """Ask all ledgers at once."""
    names, op = layout.target.from_, layout.schemas.op
    word = "CAST('{}' AS VARCHAR(16))".format
    found = tx.rows(
        f"SELECT {word('staged')}, entity, checksum, 0 FROM {op('staged')} "
        f"WHERE batch_id = ? AND entity IN ({', '.join('?' for _ in names)}) "
        f"UNION ALL SELECT {word('merged')}, checksum, code_version, sequence FROM {op('load_ledger')} "
        f"WHERE {_SCOPE} AND batch_id = ? "
        f"UNION ALL SELECT {word('last')}, '', '', MAX(sequence) FROM {op('load_ledger')} WHERE {_SCOPE} "
        f"UNION ALL SELECT {word('truncates')}, '', '', COUNT(*) FROM {op('truncates')} WHERE {_SCOPE} "
        f"UNION ALL SELECT {word('moves')}, '', '', COUNT(*) FROM {layout.moves}",
        (batch, *names, *layout.scope, batch, *layout.scope, *layout.scope),
    )
    counts = {kind: int(count or 0) for kind, _, _, count in found}
    return Known(
        staged={entity: checksum for kind, entity, checksum, _ in found if kind == "staged"},
        merged={(checksum, code): int(at) for kind, checksum, code, at in found if kind == "merged"},
        last_sequence=counts["last"],
        has_truncates=counts["truncates"] > 0,
        has_moves=counts["moves"] > 0,
    )


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
    insert = f"INSERT INTO {table} (schema_name, target, tenant, sequence)"
    if isinstance(tenants, str):
        tx.execute(f"{insert} SELECT ?, ?, t.tenant, ? FROM ({tenants}) t", (*layout.scope, sequence))
    else:
        for tenant in tenants:
            tx.execute(f"{insert} VALUES (?, ?, ?, ?)", (*layout.scope, tenant, sequence))
    if sequence % NOTES_KEPT == 0:
        later = f"SELECT tenant FROM {table} WHERE {_SCOPE} AND sequence > ?"
        at = (*layout.scope, sequence - NOTES_KEPT)
        tx.execute(f"DELETE FROM {table} WHERE {_SCOPE} AND sequence <= ? AND tenant IN ({later})", (*at, *at))
