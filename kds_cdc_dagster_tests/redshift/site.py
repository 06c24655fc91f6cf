"""What all sessions of one stand-in share: credentials, S3, faults, the record of statements."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from kds_cdc_dagster_tests.redshift.backend import Backend
from kds_cdc_dagster_tests.redshift.bucket import S3Place
from kds_cdc_dagster_tests.redshift.faults import Faults
from kds_cdc_dagster_tests.redshift.postgres import Postgres
from kds_cdc_dagster_tests.redshift.wire import Refused


@dataclass
class Executed:
    """A statement as the client sent it; outcome: done, gone, or the SQLSTATE of its error; empty while it runs."""

    session: int
    sql: str
    outcome: str = ""


@dataclass
class Site:
    """One Redshift 'cluster'."""

    postgres: Postgres
    database: str
    s3: S3Place
    role: str
    user: str = "loader"
    password: str = "Loader-1"
    faults: Faults = field(default_factory=Faults)
    statements: list[Executed] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def connect(self, parameters: dict[str, str]) -> Backend:
        """A server session."""
        return self.postgres.connect(parameters)

    def record(self, executed: Executed) -> Executed:
        """Note a statement."""
        with self._lock:
            self.statements.append(executed)
        return executed

    def record_load_error(self, row: tuple[object, ...]) -> None:
        """A row of sys_load_error_detail, in a transaction of its own: it outlives the loader's rollback."""
        names = "file_name, line_number, column_name, column_type, column_length, error_code, error_message"
        values = ", ".join("'" + str(value).replace("'", "''") + "'" for value in row)
        self.postgres.command(f"insert into sys_load_error_detail ({names}) values ({values})", self.database)

    def check_role(self, options: Mapping[str, str]) -> None:
        """Raises Refused unless the statement names the role that may touch S3."""
        role = options.get("iam_role", "")
        if role not in {self.role, "default"}:
            raise Refused("XX000", f"User is not authorized to assume IAM Role {role}")
