"""Exports: a target's live rows as one Parquet set per tenant, switched atomically and forward only.

Only tenants whose rows changed since the current export are written anew, under a version prefix that was
never used before; the others' files are carried over by reference. `current.json` names all files. The
export ledger decides which export may become current; the pointer follows it, however late its writer is.

Files of the current export that are gone or cut short are written anew: an operator restores them by exporting.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from kds_cdc_dagster.errors import ObjectMissing
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.load import ledger
from kds_cdc_dagster.load.layout import Layout, listed, literal
from kds_cdc_dagster.ports import ObjectStore, Transaction, Warehouse

LOST_NAMED_MAX = 1000
"""Lost tenants that a statement names; of more, everything is written anew."""


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
    """exported | unchanged (no merge since, no file lost) | superseded (a newer one became current meanwhile)"""
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
    base = _base(warehouse, store, layout)
    found = warehouse.run(lambda tx: _unload(tx, layout, base, now()))
    if found is None:
        return ExportReport(target, "unchanged", base.watermark, base.rows)
    kept = {tenant: files for tenant, files in base.files.items() if tenant not in found.changed}
    files = {**kept, **found.files}
    rows = sum(file.rows for written in files.values() for file in written)
    new = Export(target, found.version, found.watermark, now(), rows, files)
    store.create(_index(target, new.version), msgspec.json.encode(new))
    is_newest = warehouse.run(lambda tx: _record(tx, layout, new, base), lock=layout.lock)
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


class _Base(NamedTuple):
    """The newest recorded export, as far as it is still there. `is_lost`: nothing says any more which files it had."""

    version: str = ""
    watermark: int = 0
    rows: int = 0
    files: Mapping[str, tuple[FileEntry, ...]] = {}
    lost: frozenset[str] = frozenset()
    """Tenants of which a file is gone or cut short."""
    is_lost: bool = False

    @property
    def is_broken(self) -> bool:
        """Whether there is something to restore."""
        return bool(self.lost) or self.is_lost


class _Unloaded(NamedTuple):
    version: str
    watermark: int
    changed: frozenset[str]
    files: dict[str, tuple[FileEntry, ...]]


def _unload(tx: Transaction, layout: Layout, base: _Base, at: float) -> _Unloaded | None:
    """Write the changed and the lost tenants' rows as of one snapshot; None if there are none since `base`.

    The version is made here: a transaction that is repeated must not meet its own earlier files.
    """
    watermark = ledger.last_sequence(tx, layout)
    if watermark <= base.watermark and not base.is_broken:
        return None
    version = _next_version(base.version, at)
    partition = "tenant" if "tenant" not in layout.columns else "tenant_"
    select = f"SELECT {listed(layout.columns)}, COALESCE(_tenant, '') AS {partition} FROM {layout.rows} "
    tenants, where = _wanted(tx, layout, base)
    prefix = f"{keys.exports(layout.target.name)}{version}/"
    files: dict[str, tuple[FileEntry, ...]] = {}
    for file in tx.unload(f"{select}WHERE NOT _is_deleted{where}", prefix, partition=partition):
        entry = FileEntry(file.key, file.rows, file.size_bytes)
        files[file.partition] = (*files.get(file.partition, ()), entry)
    return _Unloaded(version, watermark, tenants, files)


def _wanted(tx: Transaction, layout: Layout, base: _Base) -> tuple[frozenset[str], str]:
    """The tenants to write, and the condition that picks their rows."""
    if base.is_lost:
        return frozenset(), ""  # nothing is kept, so everything is written
    schema, target = (literal(value) for value in layout.scope)
    changed = (
        f"SELECT DISTINCT tenant FROM {layout.schemas.op('changed_tenants')} "
        f"WHERE schema_name = {schema} AND target = {target} AND sequence > {base.watermark}"
    )
    tenants = frozenset(str(tenant) for (tenant,) in tx.rows(changed)) | base.lost
    if len(base.lost) > LOST_NAMED_MAX:
        return tenants | base.files.keys(), ""
    lost = "".join(f" OR COALESCE(_tenant, '') = {literal(tenant)}" for tenant in sorted(base.lost))
    return tenants, f" AND (COALESCE(_tenant, '') IN ({changed}){lost})"


def _next_version(last: str, at: float) -> str:
    """A version never used before, greater as text than `last` whatever the clock says."""
    at_ms = max(int(at * 1000), int(last.split("-", maxsplit=1)[0]) + 1 if last else 0)
    return f"{at_ms:014d}-{secrets.token_hex(4)}"


def _record(tx: Transaction, layout: Layout, new: Export, base: _Base) -> bool:
    """The forward-only decision: False if an export of this or a later watermark is recorded.

    What restores `base` may have its watermark.
    """
    table = layout.schemas.op("export_ledger")
    version, watermark = _recorded(tx, layout) or ("", 0)
    is_restored = watermark == new.watermark and base.is_broken and version == base.version
    if watermark >= new.watermark and not is_restored:
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
        "WHERE schema_name = ? AND target = ? ORDER BY watermark DESC, version DESC LIMIT 1",
        layout.scope,
    )
    return (str(found[0][0]), int(found[0][1])) if found else None


def _base(warehouse: Warehouse, store: ObjectStore, layout: Layout) -> _Base:
    """The newest recorded export. If its writer died before the switch, the pointer is switched here."""
    recorded = warehouse.run(lambda tx: _recorded(tx, layout))
    if recorded is None:
        return _Base()
    version, watermark = recorded
    last = _indexed(store, layout.target.name, version)
    if last is None:
        return _Base(version, watermark, is_lost=True)
    _switch(store, last)
    sizes = {info.key: info.size_bytes for info in store.scan(keys.exports(last.target))}
    is_whole = {tenant: all(sizes.get(f.key) == f.size_bytes for f in files) for tenant, files in last.files.items()}
    lost = frozenset(tenant for tenant, found in is_whole.items() if not found)
    return _Base(version, watermark, last.rows, last.files, lost)


def _indexed(store: ObjectStore, target: str, version: str) -> Export | None:
    """An export by its own index or, if that is gone, by the pointer; None if neither tells."""
    try:
        return msgspec.json.decode(store.get(_index(target, version)), type=Export)
    except ObjectMissing:
        current = current_export(store, target)
        return current if current is not None and current.version == version else None


def _switch(store: ObjectStore, new: Export) -> None:
    """Point to `new`, unless the pointer names it or a later one."""
    body = msgspec.json.encode(new)
    while True:
        found = _pointer(store, new.target)
        if found is not None and _rank(msgspec.json.decode(found, type=Export)) >= _rank(new):
            return
        if store.swap(keys.current_export(new.target), body, expected=found):
            return


def _rank(export: Export) -> tuple[int, str]:
    """Of one watermark the later version restores the earlier one."""
    return export.watermark, export.version


def _pointer(store: ObjectStore, target: str) -> bytes | None:
    try:
        return store.get(keys.current_export(target))
    except ObjectMissing:
        return None


def _index(target: str, version: str) -> str:
    return f"{keys.exports(target)}{version}/index.json"
