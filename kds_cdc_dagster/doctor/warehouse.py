"""The warehouse: reached, a load and an unload tried, rights, isolation; then tables and drift."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.doctor.finding import Finding, Notes
from kds_cdc_dagster.doctor.store import PROBES
from kds_cdc_dagster.errors import LoadRefused
from kds_cdc_dagster.load.artifact import put_artifact
from kds_cdc_dagster.load.drift import drift_seen
from kds_cdc_dagster.load.layout import Schemas
from kds_cdc_dagster.load.present import Tables, is_fit, is_wider, present_tables, type_of
from kds_cdc_dagster.load.schema import wanted_columns
from kds_cdc_dagster.ports import Dialect, ExportFile, LoadArtifact, Transaction, Warehouse
from kds_cdc_dagster.wiring import Pipeline

NOTE, TABLES, DRIFT = Notes("warehouse"), Notes("tables"), Notes("drift")
_PROBE = "kds_probe"


def look(parts: Pipeline) -> Iterator[Finding]:
    """Raises WarehouseBusy, TransientError, SettingsError."""
    ((user, database),) = parts.warehouse.run(lambda tx: tx.rows("SELECT current_user, current_database()"))
    yield NOTE.ok(f"{parts.settings.warehouse} answers: user {user}, database {database}")
    if parts.settings.warehouse == "redshift":
        yield from _redshift(parts)
    yield from _probed(parts)
    present = parts.warehouse.run(lambda tx: present_tables(tx, parts.schemas))
    yield from _tables(parts.warehouse.dialect, present, parts.catalogue, parts.schemas)
    if "drift" in present.get(parts.schemas.op("staged"), {}):
        yield from _drift(parts)


def _probed(parts: Pipeline) -> Iterator[Finding]:
    """COPY and UNLOAD of one row by way of the store, as loads and exports do it."""
    prefix = f"{PROBES}{secrets.token_hex(8)}/"
    artifact = put_artifact(parts.store, prefix, pa.table({"n": [1]}), (("n", "bigint"),))
    try:
        files = parts.warehouse.run(lambda tx: _there_and_back(tx, artifact, prefix))
        yield NOTE.ok(f"loads from the store and unloads to it ({sum(file.rows for file in files)} row)")
    except LoadRefused as error:
        facts = ", ".join(f"{name}={value}" for name, value in error.facts.items())
        yield NOTE.error(
            f"a probe of COPY and UNLOAD is refused [{facts}]",
            "KDS_CDC_REDSHIFT_COPY_ROLE: associated with the cluster, allowed to read and write the bucket",
        )
    finally:
        parts.store.delete([info.key for info in parts.store.scan(prefix)])


def _there_and_back(tx: Transaction, artifact: LoadArtifact, prefix: str) -> list[ExportFile]:
    tx.execute(f"CREATE TEMP TABLE {_PROBE} (n BIGINT)")
    tx.copy(_PROBE, artifact)
    files = tx.unload(f"SELECT n, 'all' AS part FROM {_PROBE}", f"{prefix}out/", partition="part")
    tx.execute(f"DROP TABLE {_PROBE}")
    return files


def _redshift(parts: Pipeline) -> Iterator[Finding]:
    isolation = _asked(parts.warehouse, "SELECT TRIM(isolation_level) FROM stv_db_isolation_level")
    if isolation is None:
        yield NOTE.info("the isolation level is not readable here")
    elif "snapshot" not in str(isolation).lower():
        yield NOTE.warn(
            f"isolation is {isolation}: merges and dashboards lose serialisation cycles (error 1023) more often",
            "ALTER DATABASE … ISOLATION LEVEL SNAPSHOT, while nobody is connected",
        )
    else:
        yield NOTE.ok(f"isolation: {isolation}")
    if _asked(parts.warehouse, "SELECT has_database_privilege(current_database(), 'TEMP')") is False:
        yield NOTE.error("no temporary tables: COPY lands in them", "GRANT TEMP ON DATABASE … TO this user")
    s = parts.schemas
    names = f"('{s.staging}', '{s.curated}', '{s.ops}')"
    query = f"SELECT nspname, has_schema_privilege(nspname, 'CREATE') FROM pg_namespace WHERE nspname IN {names}"
    rights = dict(parts.warehouse.run(lambda tx: tx.rows(query)))
    for schema in (s.staging, s.curated, s.ops):
        may = rights.get(schema)
        if may is None:
            may = _asked(parts.warehouse, "SELECT has_database_privilege(current_database(), 'CREATE')")
        if may is False:
            yield NOTE.error(
                f"no right to make tables in {schema}", f"GRANT CREATE, USAGE ON SCHEMA {schema} TO this user"
            )


def _asked(warehouse: Warehouse, query: str) -> Any:
    """The single value, or None where the query is refused."""
    with suppress(LoadRefused):
        found = warehouse.run(lambda tx: tx.rows(query))
        return found[0][0] if found else None
    return None


def _tables(dialect: Dialect, present: Tables, catalogue: Catalogue, schemas: Schemas) -> Iterator[Finding]:
    """The catalogue's columns against the warehouse's."""
    wanted = wanted_columns(catalogue, schemas)
    missing = sorted(wanted.keys() - present.keys())
    if missing:
        yield TABLES.info(f"{len(missing)} of {len(wanted)} tables are not made yet", "the first load makes them")
    wrong = 0
    for table, columns in wanted.items():
        found = present.get(table, {})
        for name, declared in columns if found else ():
            type_, new = found.get(name), type_of(dialect.column_type(declared))
            if type_ is None:
                yield TABLES.info(f"{table}.{name} is not there yet", "the next load adds it")
            elif not is_fit(type_, new):
                wrong += 1
                yield _mistyped(f"{table}.{name}", str(type_), str(new), is_narrow=is_wider(new, type_))
        for name in sorted(found.keys() - dict(columns).keys()):
            yield TABLES.info(f"{table}.{name} is not in the catalogue", "it is left as it is; drop it by hand")
    if not wrong and len(missing) < len(wanted):
        yield TABLES.ok(f"{len(wanted) - len(missing)} tables fit the catalogue")


def _mistyped(column: str, present: str, wanted: str, *, is_narrow: bool) -> Finding:
    if is_narrow:
        return TABLES.warn(
            f"{column} is {present}, the catalogue says {wanted}: a value that does not fit is quarantined",
            "the next load widens it where the warehouse can; else replay into an isolated target and swap",
        )
    return TABLES.error(
        f"{column} is {present}, the catalogue says {wanted}: loads are refused, or wrong",
        "correct the catalogue, or replay into an isolated target and swap",
    )


def _drift(parts: Pipeline) -> Iterator[Finding]:
    remedies = {
        "new_column": "add it to the catalogue, then replay: its values are in the raw artifacts and in _extra",
        "dropped_column": "take it out of the catalogue, or set dropped_column: evolve",
        "widened": "widen it in the catalogue, then requeue its quarantine or replay",
        "incompatible": "correct type or source_type in the catalogue, then replay",
    }
    for seen in drift_seen(parts.warehouse, parts.schemas):
        what = f"{seen.entity}.{seen.column}: {seen.kind.replace('_', ' ')}, {seen.rows} rows of {seen.batches} batches"
        if seen.kind in remedies:
            yield DRIFT.warn(what, remedies[seen.kind])
        else:
            yield DRIFT.info(what)
