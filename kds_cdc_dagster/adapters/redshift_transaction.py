"""One transaction on one connection of the driver: statements, COPY and UNLOAD."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import md5
from typing import Any

import pyarrow.parquet as pq

from kds_cdc_dagster.adapters.redshift_dialect import RedshiftDialect
from kds_cdc_dagster.adapters.redshift_errors import CopyRefused, connection_errors, translated
from kds_cdc_dagster.errors import InvariantBroken, LoadRefused, ObjectExists
from kds_cdc_dagster.journal.keys import part
from kds_cdc_dagster.ports import ExportFile, LoadArtifact, ObjectStore

_PLAIN_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""Partition values whose folder name Redshift cannot write otherwise than we read it."""
_TAKES_NO_PARAMETER = "CREATE TEMP TABLE"
"""CREATE TABLE AS is no query to the server: it binds nothing in it."""
_VARBYTE_OIDS = {6551, 17}
"""Redshift's VARBYTE; PostgreSQL's bytea."""
_FOOTER_TAIL = 8


@dataclass(frozen=True, slots=True)
class Exchange:
    """Where COPY and UNLOAD meet this package: the object store and the role that Redshift reaches it with."""

    store: ObjectStore
    role_arn: str = ""
    """Empty: the cluster's default role."""

    @property
    def clauses(self) -> str:
        """Authorisation and format."""
        role = f"'{self.role_arn}'" if self.role_arn else "default"
        return f"IAM_ROLE {role} FORMAT AS PARQUET"

    def manifest(self, artifact: LoadArtifact) -> str:
        """URL of a manifest that names the artifact with its length, as COPY of Parquet wants it."""
        url, size_bytes = self.store.uri(artifact.key), artifact.size_bytes
        entry = {"url": url, "mandatory": True, "meta": {"content_length": size_bytes}}
        with suppress(ObjectExists):  # the artifact is named by its content: a manifest of that name says the same
            self.store.create(artifact.manifest_key, json.dumps({"entries": [entry]}).encode())
        return self.store.uri(artifact.manifest_key)


class RedshiftTransaction:
    """See the port. After an error nothing more is accepted, and nothing can be committed."""

    def __init__(self, connection: Any, exchange: Exchange) -> None:
        self.dialect = RedshiftDialect()
        self.is_failed = False
        self._connection = connection
        self._exchange = exchange

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> None:
        """See the port."""
        with self._cursor(sql, parameters):
            pass

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """See the port."""
        with self._cursor(sql, parameters) as cursor:
            return [tuple(row) for row in cursor.fetchall()]

    def copy(self, table: str, artifact: LoadArtifact) -> None:
        """See the port. Raises LoadRefused, InvariantBroken if fewer or more rows arrive than the artifact holds."""
        self._check_columns(table, artifact)
        manifest = self._exchange.manifest(artifact)
        try:
            self.execute(f"COPY {table} FROM '{manifest}' {self._exchange.clauses} MANIFEST")
        except CopyRefused as refused:
            refused.facts["key"] = artifact.key
            raise
        ((loaded,),) = self.rows("SELECT pg_last_copy_count()")
        if loaded != artifact.rows:
            raise InvariantBroken(
                "COPY loaded another number of rows than the artifact holds",
                key=artifact.key,
                rows=artifact.rows,
                loaded=loaded,
            )

    def land(self, name: str, columns: Sequence[tuple[str, str]], artifact: LoadArtifact) -> None:
        """See the port: a temp table, by COPY."""
        self.unland(name)
        listed = ", ".join(f"{column} {self.dialect.landing_type(declared)}" for column, declared in columns)
        self.execute(f"CREATE TEMP TABLE {name} ({listed})")
        self.copy(name, artifact)

    def unland(self, name: str) -> None:
        """See the port."""
        self.execute(f"DROP TABLE IF EXISTS {name}")

    def unload(self, select: str, prefix: str, *, partition: str) -> list[ExportFile]:
        """See the port. `prefix` is new in each repetition: the lost attempt may still be writing to its own."""
        values = self.rows(f"SELECT DISTINCT COALESCE({partition}, '') FROM ({select}) q ORDER BY 1")
        plain = [value for (value,) in values if _PLAIN_FOLDER.fullmatch(value)]
        columns = self._exported(select, partition)
        files = []
        if plain:
            where = ", ".join(f"'{value}'" for value in plain)
            query = f"SELECT {columns}, {partition} FROM ({select}) q WHERE {partition} IN ({where})"
            files += self._unloaded(query, prefix, f"PARTITION BY ({partition})")
        for value in (value for (value,) in values if value not in plain):
            query = f"SELECT {columns} FROM ({select}) q WHERE MD5(COALESCE({partition}, '')) = '{_md5(value)}'"
            folder = f"{prefix}{partition}={part(value)}/"
            files += [ExportFile(value, f.key, f.rows, f.size_bytes) for f in self._unloaded(query, folder, "")]
        return files

    def _unloaded(self, query: str, prefix: str, clause: str) -> list[ExportFile]:
        """Files of one UNLOAD, from its manifest: the only sign that they are complete."""
        quoted, url = query.replace("'", "''"), self._exchange.store.uri(prefix)
        self.execute(f"UNLOAD ('{quoted}') TO '{url}' {self._exchange.clauses} {clause} MANIFEST VERBOSE")
        ((rows,),) = self.rows("SELECT pg_last_unload_count()")
        if not rows:
            return []
        manifest = json.loads(self._exchange.store.get(f"{prefix}manifest"))
        if manifest["meta"]["record_count"] != rows:
            raise InvariantBroken("UNLOAD's manifest and count differ", prefix=prefix, rows=rows)
        return [_file(entry, url, prefix) for entry in manifest["entries"]]

    def _exported(self, select: str, partition: str) -> str:
        """Columns of the files: all but the partition, VARBYTE as hex text (UNLOAD to Parquet cannot write it)."""
        with self._cursor(f"SELECT * FROM ({select}) q WHERE 1 = 0") as cursor:
            columns = [(name, oid) for name, oid, *_ in cursor.description]
        return ", ".join(
            f"FROM_VARBYTE({name}, 'hex') AS {name}" if oid in _VARBYTE_OIDS else name
            for name, oid in columns
            if name != partition
        )

    def _check_columns(self, table: str, artifact: LoadArtifact) -> None:
        """COPY maps columns by position: another order of like types would load wrong rows in silence."""
        with self._cursor(f"SELECT * FROM {table} WHERE 1 = 0") as cursor:
            expected = [name for name, *_ in cursor.description]
        found = pq.read_schema(io.BytesIO(self._footer(artifact))).names
        if found != expected:
            raise LoadRefused("the artifact has other columns than the table", key=artifact.key, table=table)

    def _footer(self, artifact: LoadArtifact) -> bytes:
        """A file of nothing but the artifact's footer: enough to read its schema."""
        store, size_bytes = self._exchange.store, artifact.size_bytes
        tail = store.get_range(artifact.key, size_bytes - _FOOTER_TAIL, _FOOTER_TAIL)
        length = int.from_bytes(tail[:4], "little") + _FOOTER_TAIL
        return tail[4:] + store.get_range(artifact.key, size_bytes - length, length)

    @contextmanager
    def _cursor(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[Any]:
        """Run a statement. Raises Setback, LoadRefused, SettingsError."""
        if sql.startswith(_TAKES_NO_PARAMETER):
            sql, parameters = _written_in(sql, parameters), ()
        cursor = self._connection.cursor()
        cursor.paramstyle = "qmark"
        try:
            # Without parameters the driver leaves the text alone, `%` and `?` in it included.
            cursor.execute(sql, tuple(parameters) or None)
            yield cursor
        except connection_errors() as error:
            self.is_failed = True
            raise translated(error, _kind(sql)) from error


def _file(entry: dict[str, Any], url: str, prefix: str) -> ExportFile:
    path = entry["url"].removeprefix(url)
    folder, _, _ = path.rpartition("/")
    meta = entry["meta"]
    return ExportFile(folder.partition("=")[2], prefix + path, meta["record_count"], meta["content_length"])


def _written_in(sql: str, parameters: Sequence[object]) -> str:
    """The statement with its parameters, texts all of them, as quoted constants."""
    first, *rest = sql.split("?")
    quoted = ("'" + str(value).replace("'", "''") + "'" for value in parameters)
    return first + "".join(map("".join, zip(quoted, rest, strict=True)))


def _md5(value: str) -> str:
    """Compares values that are better not written into a statement; no secret hangs on it."""
    return md5(value.encode(), usedforsecurity=False).hexdigest()


def _kind(sql: str) -> str:
    """First words of a statement: enough to tell which it was, never a value."""
    return " ".join(sql.split("(", 1)[0].split()[:3])
