"""Sessions of the unmodified driver, for tests."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from redshift_connector import connect as redshift_connect
from redshift_connector.core import Connection
from redshift_connector.cursor import Cursor
from redshift_connector.error import ProgrammingError

from kds_cdc_dagster_tests.redshift.server import RedshiftStandIn


def connect(stand_in: RedshiftStandIn, *, is_autocommit: bool = False, **more: Any) -> Connection:
    """A connection of the unmodified driver."""
    connection = redshift_connect(**{**stand_in.connect_kwargs, "max_prepared_statements": 0, **more})
    connection.autocommit = is_autocommit
    return connection


def rows(stand_in: RedshiftStandIn, sql: str) -> list[list[Any]]:
    """A query in a session of its own."""
    with closing(connect(stand_in)) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def error_of(cursor: Cursor, sql: str) -> dict[str, str]:
    """The fields of the server's error for `sql`."""
    with pytest.raises(ProgrammingError) as caught:
        cursor.execute(sql)
    return dict(caught.value.args[0])


def is_open(connection: Connection) -> bool:
    """Whether the server says that a transaction is open, failed or not."""
    return bool(connection.in_transaction)
