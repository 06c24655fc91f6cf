"""Exports: a target's live rows as one Parquet set per tenant, switched atomically and forward only.

Only tenants whose rows changed since the current export are written anew, under a version prefix that was
never used before; the others' files are carried over by reference. `current.json` names all files. The
export ledger decides which export may become current; the pointer follows it, however late its writer is.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from kds_cdc_dagster.errors import ObjectMissing
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.load import ledger
from kds_cdc_dagster.load.layout import Layout, listed, literal
from kds_cdc_dagster.ports import ObjectStore, Transaction, Warehouse


class FileEntry(msgspec.Struct, frozen=True):
    """One Parquet object of an export."""

    key: str
    rows: int
    size_bytes: int


class Export(msgspec.Struct, frozen=True):
    """An export, as `exports/<target>/current.json` and `exports/<target>/<version>/index.json` hold it."""

    target: str
    version: str
    watermark: int
    """Ledger sequence: every merge up to it is in, none after it."""
    exported_at: float
    rows: int
    files: dict[str, tuple[FileEntry, ...]]
    """Tenant -> its files; a tenant without live rows is not named."""
    schema_version: int = 1


class ExportReport(msgspec.Struct, frozen=True):
    """What one export did."""

    target: str
    outcome: str
    """exported | unchanged (no merge since) | superseded (a newer one became current meanwhile)"""
    watermark: int
    rows: int = 0
    rewritten: tuple[str, ...] = ()
    """Tenants whose files were written."""
    carried_over: int = 0
    """Tenants whose files are those of an earlier export."""
    files: int = 0
    size_bytes: int = 0
    duration_seconds: float = 0.0


def current_export(store: ObjectStore, target: str) -> Export | None:
    """What consumers see now; None before the first export."""
    found = _pointer(store, target)
    return None if found is None else msgspec.json.decode(found, type=Export)


def export(
    warehouse: Warehouse, store: ObjectStore, layout: Layout, *, now: Callable[[], float] = time.time
) -> ExportReport:
    """Export what changed since the last export. Repeatable, also side by side. Raises WarehouseBusy."""
    started_at = now()
    target = layout.target.name
    base = _last_export(warehouse, store, layout)
    found = warehouse.run(lambda tx: _unload(tx, layout, base, now()))
    if found is None:
        return ExportReport(target, "unchanged", base.watermark if base else 0, base.rows if base else 0)
    kept = {tenant: files for tenant, files in base.files.items() if tenant not in found.changed} if base else {}
    files = {**kept, **found.files}
    rows = sum(file.rows for written in files.values() for file in written)
    new = Export(target, found.version, found.watermark, now(), rows, files)
    store.create(_index(target, new.version), msgspec.json.encode(new))
    is_newest = warehouse.run(lambda tx: _record(tx, layout, new), lock=layout.lock)
    if is_newest:
        _switch(store, new)
    written = [file for entries in found.files.values() for file in entries]
    return ExportReport(
        target=target,
        outcome="exported" if is_newest else "superseded",
        watermark=new.watermark,
        rows=rows,
        rewritten=tuple(sorted(found.changed)),
        carried_over=len(kept),
        files=len(written),
        size_bytes=sum(file.size_bytes for file in written),
        duration_seconds=now() - started_at,
    )


class _Unloaded(NamedTuple):
    version: str
    watermark: int
    changed: frozenset[str]
    files: dict[str, tuple[FileEntry, ...]]


def _unload(tx: Transaction, layout: Layout, base: Export | None, at: float) -> _Unloaded | None:
    """Write the changed tenants' rows as of one snapshot; None if no merge has run since `base`.

    The version is made here: a transaction that is repeated must not meet its own earlier files.
    """
    watermark = ledger.last_sequence(tx, layout)
    since = base.watermark if base else 0
    if watermark <= since:
        return None
    version = f"{int(at * 1000):014d}-{secrets.token_hex(4)}"
    partition = "tenant" if "tenant" not in layout.columns else "tenant_"
    select = f"SELECT {listed(layout.columns)}, COALESCE(_tenant, '') AS {partition} FROM {layout.rows} "
    schema, target = (literal(value) for value in layout.scope)
    changed = (
        f"SELECT tenant FROM {layout.schemas.op('changed_tenants')} "
        f"WHERE schema_name = {schema} AND target = {target} AND sequence > {since}"
    )
    tenants = frozenset(str(tenant) for (tenant,) in tx.rows(changed))
    where = f"WHERE NOT _is_deleted AND COALESCE(_tenant, '') IN ({changed})"
    found = tx.unload(select + where, f"{keys.exports(layout.target.name)}{version}/", partition=partition)
    files: dict[str, tuple[FileEntry, ...]] = {}
    for file in found:
        entry = FileEntry(file.key, file.rows, file.size_bytes)
        files[file.partition] = (*files.get(file.partition, ()), entry)
    return _Unloaded(version, watermark, tenants, files)


def _record(tx: Transaction, layout: Layout, new: Export) -> bool:
    """The forward-only decision: False if an export of this or a later watermark is recorded."""
    table = layout.schemas.op("export_ledger")
    if (_recorded(tx, layout) or ("", 0))[1] >= new.watermark:
        return False
    tx.execute(
        f"INSERT INTO {table} (schema_name, target, watermark, version, rows_exported, exported_at) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (*layout.scope, new.watermark, new.version, new.rows, datetime.fromtimestamp(new.exported_at, UTC)),
    )
    return True


def _recorded(tx: Transaction, layout: Layout) -> tuple[str, int] | None:
    """Version and watermark of the newest recorded export."""
    found = tx.rows(
        f"SELECT version, watermark FROM {layout.schemas.op('export_ledger')} "
        "WHERE schema_name = ? AND target = ? ORDER BY watermark DESC LIMIT 1",
        layout.scope,
    )
    return (str(found[0][0]), int(found[0][1])) if found else None


def _last_export(warehouse: Warehouse, store: ObjectStore, layout: Layout) -> Export | None:
    """The newest recorded export. If its writer died before the switch, the pointer is switched here."""
    recorded = warehouse.run(lambda tx: _recorded(tx, layout))
    if recorded is None:
        return None
    last = msgspec.json.decode(store.get(_index(layout.target.name, recorded[0])), type=Export)
    _switch(store, last)
    return last


def _switch(store: ObjectStore, new: Export) -> None:
    """Point to `new`, unless the pointer names it or a later one."""
    body = msgspec.json.encode(new)
    while True:
        found = _pointer(store, new.target)
        if found is not None and msgspec.json.decode(found, type=Export).watermark >= new.watermark:
            return
        if store.swap(keys.current_export(new.target), body, expected=found):
            return


def _pointer(store: ObjectStore, target: str) -> bytes | None:
    try:
        return store.get(keys.current_export(target))
    except ObjectMissing:
        return None


def _index(target: str, version: str) -> str:
    return f"{keys.exports(target)}{version}/index.json"
