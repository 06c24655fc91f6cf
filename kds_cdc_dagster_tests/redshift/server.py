"""`RedshiftStandIn`: what tests start instead of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from kds_cdc_dagster_tests.redshift.bucket import S3Place
from kds_cdc_dagster_tests.redshift.faults import Faults
from kds_cdc_dagster_tests.redshift.postgres import POSTGRES, Postgres
from kds_cdc_dagster_tests.redshift.proxy import Proxy
from kds_cdc_dagster_tests.redshift.site import Executed, Site

ROLE = "arn:aws:iam::123456789012:role/kds-copy"


class RedshiftStandIn:
    """PostgreSQL 16 behind a proxy that the unmodified redshift_connector takes for Redshift.

    Each has a database of its own; the server process is shared inside a test process, started by the first
    stand-in and stopped with the last. Tests are as strict as they say only if they go through `connect_kwargs`.
    """

    def __init__(self, s3: S3Place, *, role: str = ROLE, postgres: Postgres = POSTGRES) -> None:
        self._postgres = postgres
        self._site = Site(postgres, "", s3, role)
        self._proxy: Proxy | None = None

    def start(self) -> Self:
        """Bring it up."""
        self._site.database = self._postgres.acquire()
        self._proxy = Proxy(self._site)
        return self

    def stop(self) -> None:
        """End all sessions, drop the database, stop the server if it was the last user. Safe to repeat."""
        proxy, self._proxy = self._proxy, None
        if proxy:
            proxy.close()
            self._postgres.release(self._site.database)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def connect_kwargs(self) -> dict[str, Any]:
        """Arguments of `redshift_connector.connect`."""
        assert self._proxy, "not started"
        return {
            "host": "127.0.0.1",
            "port": self._proxy.port,
            "database": self._site.database,
            "user": self._site.user,
            "password": self._site.password,
            "ssl": False,
        }

    @property
    def role(self) -> str:
        """The IAM role that COPY and UNLOAD must name."""
        return self._site.role

    @property
    def s3(self) -> S3Place:
        """The S3 emulator that COPY reads and UNLOAD writes."""
        return self._site.s3

    @property
    def faults(self) -> Faults:
        """Order faults here."""
        return self._site.faults

    @property
    def statements(self) -> list[Executed]:
        """Everything executed or refused so far, oldest first, as the client sent it."""
        return self._site.statements

    def sql(self, pattern: str = "") -> list[str]:
        """Statements that contain `pattern`, without regard to case."""
        return [executed.sql for executed in self.statements if pattern.lower() in executed.sql.lower()]


@contextmanager
def redshift_with_s3(postgres: Postgres = POSTGRES) -> Iterator[RedshiftStandIn]:
    """A stand-in and an S3 emulator with a fresh bucket, both stopped at the end."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        s3 = S3Place(f"http://127.0.0.1:{port}", "").another()
        with RedshiftStandIn(s3, postgres=postgres) as stand_in:
            yield stand_in
    finally:
        server.stop()
