"""Redshift as the warehouse, by redshift_connector: whole transactions, repeated as a whole.

Every transaction has a connection of its own: no temp table, setting or half-read result outlives it, and
IAM credentials are as fresh as the connection. Against the seconds of a COPY that costs little.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeVar

from kds_cdc_dagster.adapters.redshift_access import RedshiftAccess
from kds_cdc_dagster.adapters.redshift_dialect import RedshiftDialect
from kds_cdc_dagster.adapters.redshift_errors import (
    Cause,
    CopyRefused,
    Setback,
    connection_errors,
    translated,
    without_values,
)
from kds_cdc_dagster.adapters.redshift_transaction import Exchange, RedshiftTransaction
from kds_cdc_dagster.errors import InvariantBroken, TransientError, WarehouseBusy
from kds_cdc_dagster.ports import ObjectStore, Transaction, Warehouse
from kds_cdc_dagster.settings import Settings

T = TypeVar("T")

_KEEP_LAST_KEY = "SET json_parse_dedup_attributes TO on"
"""Of a repeated key in a JSON object the last one counts, as in PostgreSQL and MySQL; by default the whole statement
fails. Source: AWS Redshift Database Developer Guide, "Parsing options for SUPER"."""
_FILE_NAME_MAX = 256
"""Characters that sys_load_error_detail keeps of a file's address."""


@dataclass(frozen=True, slots=True)
class RepeatPolicy:
    """How often a transaction is repeated, and how long to wait before: full jitter under a rising limit."""

    attempts_max: int = 8
    timeouts_max: int = 1
    """A statement that hit the timeout once may have met a busy cluster; twice, it is too slow."""
    wait_seconds: float = 0.25
    wait_seconds_max: float = 8.0

    def is_over(self, cause: Cause, attempts: int, timeouts: int) -> bool:
        """Whether to give up after `attempts` attempts, `timeouts` of them timed out."""
        return attempts >= self.attempts_max or (cause is Cause.TIMEOUT and timeouts > self.timeouts_max)

    def wait(self, attempts: int, chance: float) -> float:
        """Seconds before the next attempt; `chance` from 0 to 1."""
        return chance * min(self.wait_seconds * 2.0**attempts, self.wait_seconds_max)


class RedshiftWarehouse:
    """See the port. `lock` names become small tables of our own in `lock_schema`, which no reader ever touches."""

    def __init__(
        self,
        access: RedshiftAccess,
        exchange: Exchange,
        *,
        lock_schema: str = "ops",
        statement_timeout_seconds: float = 600.0,
        policy: RepeatPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.dialect = RedshiftDialect()
        self._access = access
        self._exchange = exchange
        self._lock_schema = lock_schema
        self._timeout_ms = round(statement_timeout_seconds * 1000)
        self._policy = policy or RepeatPolicy()
        self._sleep = sleep
        self._chance = random.Random()  # noqa: S311  (jitter)
        self._lock_tables: set[str] = set()

    def run(self, body: Callable[[Transaction], T], *, lock: str = "") -> T:
        """See the port. An unknown outcome is settled by running the body again: it looks first what is done.

        Raises WarehouseBusy, LoadRefused, TransientError (not reached), SettingsError (login refused).
        """
        attempts = timeouts = 0
        while True:
            try:
                return self._run_once(body, lock)
            except Setback as setback:
                attempts += 1
                timeouts += setback.cause is Cause.TIMEOUT
                if self._policy.is_over(setback.cause, attempts, timeouts):
                    kind = TransientError if setback.cause is Cause.CONNECTION else WarehouseBusy
                    facts = {"lock": lock, "attempts": attempts, **setback.facts}
                    raise kind(f"Redshift: {setback.what}", hint="", **facts) from setback
                self._sleep(self._policy.wait(attempts, self._chance.random()))

    def alter(self, statement: str) -> None:
        """See the port. Raises LoadRefused, TransientError; another process may have been first: it is no error."""
        try:
            with self._connected() as connection:
                _in_autocommit(connection, statement)
        except Setback as setback:
            raise TransientError(f"Redshift: {setback.what}", hint="", **setback.facts) from setback

    def close(self) -> None:
        """Nothing stays open between transactions."""

    def _run_once(self, body: Callable[[Transaction], T], lock: str) -> T:
        with self._connected() as connection:
            if lock:
                self._ensure_lock_table(connection, lock)
            transaction = RedshiftTransaction(connection, self._exchange)
            if lock:
                # Alone and first: the snapshot is taken by the statement after it, so what others did is seen.
                transaction.execute(f"LOCK TABLE {self._lock_table(lock)}")
            try:
                answer = body(transaction)
            except CopyRefused as refused:
                raise self._explained(connection, refused) from refused
            if transaction.is_failed:
                # The driver's commit would roll back in silence.
                raise InvariantBroken("a statement's error was ignored", lock=lock)
            _settled(connection.commit, "COMMIT")
            return answer

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """A connection with its settings made; closing it rolls back what is open."""
        import redshift_connector

        try:
            connection = redshift_connector.connect(**self._access.connect_kwargs())
        except connection_errors() as error:
            raise translated(error, "connect") from error
        try:
            _in_autocommit(connection, f"SET statement_timeout TO {self._timeout_ms}")
            _in_autocommit(connection, _KEEP_LAST_KEY)
            yield connection
        finally:
            with suppress(*connection_errors()):
                connection.close()

    def _ensure_lock_table(self, connection: Any, lock: str) -> None:
        """Outside of the transaction and once per process: DDL is no part of a load."""
        if lock in self._lock_tables:
            return
        _in_autocommit(connection, f"CREATE SCHEMA IF NOT EXISTS {self._lock_schema}")
        _in_autocommit(connection, f"CREATE TABLE IF NOT EXISTS {self._lock_table(lock)} (unused BOOLEAN)")
        self._lock_tables.add(lock)

    def _lock_table(self, lock: str) -> str:
        """A name of our own; the digest keeps apart what lower case and underscores would join."""
        plain = re.sub(r"[^a-z0-9]+", "_", lock.lower())[:40]
        return f"{self._lock_schema}.lock_{plain}_{sha256(lock.encode()).hexdigest()[:8]}"

    def _explained(self, connection: Any, refused: CopyRefused) -> CopyRefused:
        """Add where in the files the fault is; the view is asked after the rollback, in which it survives."""
        with suppress(Setback, *connection_errors()):
            connection.rollback()
            query = (
                "SELECT TRIM(column_name), error_code, TRIM(error_message), line_number FROM sys_load_error_detail "
                "WHERE TRIM(file_name) = ? ORDER BY start_time DESC LIMIT 1"
            )
            url = self._exchange.store.uri(str(refused.facts["key"]))
            found = RedshiftTransaction(connection, self._exchange).rows(query, (url[:_FILE_NAME_MAX],))
            for column, code, text, line in found:
                refused.facts |= {"column": column, "error_code": code, "error": without_values(text), "line": line}
        return CopyRefused(refused.what, hint="", **refused.facts)


def _in_autocommit(connection: Any, sql: str) -> None:
    connection.autocommit = True
    try:
        _settled(lambda: connection.cursor().execute(sql), sql)
    finally:
        connection.autocommit = False


def _settled(call: Callable[[], object], doing: str) -> None:
    try:
        call()
    except connection_errors() as error:
        raise translated(error, doing) from error


def open_redshift_warehouse(settings: Settings, store: ObjectStore) -> RedshiftWarehouse:
    """From settings. Opens nothing yet. Raises SettingsError."""
    access = RedshiftAccess(
        host=settings.redshift_host,
        port=settings.redshift_port,
        database=settings.redshift_database,
        user=settings.redshift_user,
        password=settings.redshift_password.get_secret_value(),
        is_ssl=settings.redshift_ssl,
        iam=settings.redshift_iam,
        cluster=settings.redshift_cluster,
        workgroup=settings.redshift_workgroup,
        region=settings.aws_region,
        endpoint_url=settings.aws_endpoint_url,
    )
    access.connect_kwargs()  # a wrong combination is told at start, not by the first load
    return RedshiftWarehouse(
        access,
        Exchange(store, settings.redshift_copy_role),
        lock_schema=settings.schema_ops,
        statement_timeout_seconds=settings.redshift_statement_timeout_seconds,
    )


_: type[Warehouse] = RedshiftWarehouse
