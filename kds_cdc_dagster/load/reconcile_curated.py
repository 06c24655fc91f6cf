"""Checks of curated tables and exports: is a row what its newest change says, whoever wrote to the table?

Curated rows are compared with the staged changes that set them, column by column, for as long as staging
keeps those changes. So a value changed by hand, a lost row, an older version over a newer one all show.
"""

from __future__ import annotations

from typing import NamedTuple

from kds_cdc_dagster.journal.keys import exports
from kds_cdc_dagster.load.export import Export, current_export
from kds_cdc_dagster.load.finding import Fact, Finding
from kds_cdc_dagster.load.layout import ORDER_DIGITS, Layout, listed, literal, same
from kds_cdc_dagster.ports import ObjectStore, Transaction, Warehouse

UNIQUE, NEWEST, VALUES, FRESH, AS_CURATED = (
    "keys_are_unique",
    "newest_version_wins",
    "values_as_staged",
    "is_fresh",
    "export_equals_curated",
)
LAG_WARN_SECONDS = 900.0
"""Sent → curated above this is shown as a warning; backlog and replays may rightly exceed it."""


def curated_findings(warehouse: Warehouse, layout: Layout, batch: str = "") -> list[Finding]:
    """Uniqueness, recency and values of a target; of one batch's keys, or of all that staging still knows."""
    return warehouse.run(lambda tx: _Curated(tx, layout, batch).findings())


class _Curated(NamedTuple):
    tx: Transaction
    layout: Layout
    batch: str

    def findings(self) -> list[Finding]:
        return [self._unique(), self._newest(), self._values(), *([self._fresh()] if self.batch else [])]

    def _found(self, check: str, facts: dict[str, Fact], *, has_passed: bool, is_blocking: bool = True) -> Finding:
        return Finding(("curated", self.layout.target.name), check, has_passed, facts, self.batch, is_blocking)

    def _unique(self) -> Finding:
        key = listed(self.layout.key)
        ((twice,),) = self.tx.rows(
            f"SELECT COUNT(*) FROM (SELECT {key} FROM {self.layout.rows} GROUP BY {key} HAVING COUNT(*) > 1) t"
        )
        return self._found(UNIQUE, {"keys_twice": twice}, has_passed=not twice)

    def _staged(self, columns: list[str]) -> str:
        """Staged changes of merged batches, of all the target's entities."""
        schema, target = map(literal, self.layout.scope)
        ledger = self.layout.schemas.op("load_ledger")
        where = (
            f"_batch_id = {literal(self.batch)}"
            if self.batch
            else f"_batch_id IN (SELECT batch_id FROM {ledger} WHERE schema_name = {schema} AND target = {target})"
        )
        parts = (
            f"SELECT {listed(columns)} FROM {self.layout.schemas.staging}.{name} WHERE {where}"
            for name in self.layout.target.from_
        )
        return f"({' UNION ALL '.join(parts)})"

    def _newest(self) -> Finding:
        """No staged change is newer than its row, none lacks a row unless a truncate lies above, no row contradicts."""
        schema, target = map(literal, self.layout.scope)
        table = ["_source", "_relation"]
        ((lost, older),) = self.tx.rows(
            "SELECT COALESCE(SUM(CASE WHEN r._row_order IS NULL THEN 1 ELSE 0 END), 0), "
            "COALESCE(SUM(CASE WHEN r._row_order < s._row_order THEN 1 ELSE 0 END), 0) "
            f"FROM {self._staged([*self.layout.key, '_op', '_row_order'])} s "
            f"LEFT JOIN {self.layout.rows} r ON {same(self.layout.key, 'r', 's')} "
            f"LEFT JOIN {self.layout.schemas.op('truncates')} t ON {same(table, 't', 's')} "
            f"AND t.schema_name = {schema} AND t.target = {target} "
            "WHERE s._op <> 't' AND s._row_order > COALESCE(t._row_order, '')"
        )
        ((wrong,),) = self.tx.rows(
            f"SELECT COUNT(*) FROM {self.layout.rows} WHERE _row_order <> GREATEST(_image_order, _deleted_order) "
            "OR _is_deleted <> (_image_order < _deleted_order)"
        )
        facts: dict[str, Fact] = {"rows_missing": int(lost), "rows_older": int(older), "rows_contradictory": int(wrong)}
        return self._found(NEWEST, facts, has_passed=not (lost or older or wrong))

    def _values(self) -> Finding:
        """Each column of a row is what the change says that set it."""
        different = self._images()
        if not self.batch:
            for name, rows in self._kept().items():
                different[name] = different.get(name, 0) + rows
        facts: dict[str, Fact] = {"rows_compared": different.pop("", 0), "values_different": sum(different.values())}
        if different:
            facts["columns"] = ", ".join(sorted(different))
        return self._found(VALUES, facts, has_passed=not different)

    def _images(self) -> dict[str, int]:
        """Column -> rows whose value is not their newest image's; '' -> rows compared."""
        compared = [*self._comparable(), "_extra"]
        sums = [
            f"SUM(CASE WHEN POSITION(',{name},' IN s._missing) = 0 AND POSITION(',{name}:' IN r._kept) = 0 "
            f"AND {_differ(name)} THEN 1 ELSE 0 END)"
            for name in compared
        ]
        owners = f"SUM(CASE WHEN s._tenant IS NOT NULL AND {_differ('_tenant')} THEN 1 ELSE 0 END)"
        columns = list(dict.fromkeys([*self.layout.key, *compared, "_tenant", "_op", "_row_order", "_missing"]))
        ((rows, *counts),) = self.tx.rows(
            f"SELECT COUNT(*), {', '.join([*sums, owners])} FROM {self.layout.rows} r "
            f"JOIN {self._staged(columns)} s ON {same(self.layout.key, 'r', 's')} "
            "AND s._row_order = r._image_order AND s._op <> 'd'"
        )
        found = zip([*compared, "_tenant"], counts, strict=True)
        return {"": int(rows)} | {name: int(count) for name, count in found if count}

    def _kept(self) -> dict[str, int]:
        """The same for columns whose value is older than the image (large unchanged ones)."""
        found: dict[str, int] = {}
        for name in self._kept_columns():
            start = f"POSITION(',{name}:' IN r._kept)"
            ((count,),) = self.tx.rows(
                f"SELECT COUNT(*) FROM {self.layout.rows} r "
                f"JOIN {self._staged([*self.layout.key, name, '_row_order', '_missing'])} s "
                f"ON {same(self.layout.key, 'r', 's')} "
                f"AND s._row_order = SUBSTRING(r._kept, {start} + {len(name) + 2}, {ORDER_DIGITS}) "
                f"WHERE {start} > 0 AND POSITION(',{name},' IN s._missing) = 0 "
                f"AND POSITION(',{name},' IN r._missing) = 0 AND {_differ(name)}"
            )
            if count:
                found[name] = int(count)
        return found

    def _kept_columns(self) -> list[str]:
        names = [name for name in self._comparable() if name in self.layout.values]
        marks = ", ".join(f"MAX(CASE WHEN POSITION(',{name}:' IN _kept) > 0 THEN 1 ELSE 0 END)" for name in names)
        if not marks:
            return []
        (found,) = self.tx.rows(f"SELECT {marks} FROM {self.layout.rows} WHERE _kept <> ''")
        return [name for name, mark in zip(names, found, strict=True) if mark]

    def _comparable(self) -> list[str]:
        is_json_comparable = self.tx.dialect.column_type("json") != "SUPER"
        return [c.name for c in self.layout.entity.columns if c.type != "json" or is_json_comparable]

    def _fresh(self) -> Finding:
        """Sent → curated of the batch, a warning only: what is late must still be loaded."""
        (found,) = self.tx.rows(
            f"SELECT MAX(lag_max_seconds), MAX(lag_avg_seconds) FROM {self.layout.schemas.op('load_ledger')} "
            "WHERE schema_name = ? AND target = ? AND batch_id = ?",
            (*self.layout.scope, self.batch),
        )
        longest, average = (round(float(lag or 0.0), 3) for lag in found)
        facts: dict[str, Fact] = {"lag_max_seconds": longest, "lag_avg_seconds": average}
        return self._found(FRESH, facts, has_passed=longest <= LAG_WARN_SECONDS, is_blocking=False)


def _differ(name: str) -> str:
    """Null-safe inequality that every warehouse has."""
    left, right = (f"CASE WHEN {alias}.{name} IS NULL THEN 1 ELSE 0 END" for alias in "rs")
    return f"(r.{name} <> s.{name} OR {left} <> {right})"


def export_findings(warehouse: Warehouse, store: ObjectStore, layout: Layout) -> list[Finding]:
    """The current export holds the live rows of every tenant that has not changed since, and all its files exist."""
    current = current_export(store, layout.target.name)
    if current is None:
        return []
    curated = warehouse.run(lambda tx: _unchanged_tenants(tx, layout, current))
    sizes = {info.key: info.size_bytes for info in store.scan(exports(layout.target.name))}
    files = [file for entries in current.files.values() for file in entries]
    broken = sum(sizes.get(file.key) != file.size_bytes for file in files)
    exported = {tenant: sum(file.rows for file in entries) for tenant, entries in current.files.items()}
    different = [tenant for tenant, rows in curated.items() if exported.get(tenant, 0) != rows]
    facts: dict[str, Fact] = {
        "rows": current.rows,
        "tenants_compared": len(curated),
        "tenants_different": len(different),
        "files": len(files),
        "files_broken": broken,
    }
    has_passed = not different and not broken and sum(exported.values()) == current.rows
    return [Finding(("export", layout.target.name), AS_CURATED, has_passed, facts)]


def _unchanged_tenants(tx: Transaction, layout: Layout, current: Export) -> dict[str, int]:
    """Tenant -> live rows, for tenants without a merge after the export's watermark."""
    changed = (
        f"SELECT tenant FROM {layout.schemas.op('changed_tenants')} "
        "WHERE schema_name = ? AND target = ? AND sequence > ?"
    )
    later = {str(tenant) for (tenant,) in tx.rows(changed, (*layout.scope, current.watermark))}
    tenant_name = "COALESCE(_tenant, '')"
    live = tx.rows(f"SELECT {tenant_name}, COUNT(*) FROM {layout.rows} WHERE NOT _is_deleted GROUP BY {tenant_name}")
    found = dict.fromkeys(current.files, 0) | {str(tenant): int(rows) for tenant, rows in live}
    return {tenant: rows for tenant, rows in found.items() if tenant not in later}
