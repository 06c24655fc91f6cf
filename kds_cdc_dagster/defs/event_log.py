"""Dagster's event log on one SQLite file, quick enough for a run every few seconds: of the embedded profile.

Dagster's own SQLite log makes a database for every run, and an engine for every event: half of what a small run
costs. Here there is one file, and its engine keeps the statements that it has compiled. Production: PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import sqlalchemy
from dagster._core.storage.event_log import ConsolidatedSqliteEventLogStorage
from sqlalchemy.pool import NullPool

BUSY_SECONDS = 60
"""Runs, daemon and web server write side by side."""


class EmbeddedEventLog(ConsolidatedSqliteEventLogStorage):
    """All events in `<base_dir>/event_log.db`."""

    @contextmanager
    def _connect(self) -> Iterator[sqlalchemy.Connection]:
        with _engine(self._conn_string).begin() as connection:
            yield connection


@lru_cache(maxsize=8)
def _engine(url: str) -> sqlalchemy.Engine:
    """One per file and process. No pool: a connection is not shared by threads."""
    engine = sqlalchemy.create_engine(url, poolclass=NullPool, connect_args={"timeout": BUSY_SECONDS})
    sqlalchemy.event.listen(engine, "connect", _tune)
    return engine


def _tune(connection: Any, _record: object) -> None:
    """A power cut may take back the last moments of what the UI shows; nothing that is loaded rests on it."""
    connection.execute("PRAGMA synchronous=NORMAL")
