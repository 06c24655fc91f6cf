"""What to do with a statement: the text PostgreSQL gets, and whether the proxy does the work itself."""

from __future__ import annotations

from dataclasses import dataclass

from kds_cdc_dagster_tests.redshift import wire
from kds_cdc_dagster_tests.redshift.copy import Copy
from kds_cdc_dagster_tests.redshift.refusals import refuse
from kds_cdc_dagster_tests.redshift.rewrite import literal_columns, replaced_view, rewritten, widened
from kds_cdc_dagster_tests.redshift.tokens import tokens
from kds_cdc_dagster_tests.redshift.unload import Unload

_STANDS_FOR_IT = "set rs.intercepted to 1"
"""Parsed in place of a statement that the proxy performs: returns no rows, fails in a failed transaction."""


@dataclass(frozen=True)
class Plan:
    """A prepared statement: as the client wrote it, and what becomes of it."""

    sql: str
    text: str
    copy: Copy | None = None
    unload: Unload | None = None
    widened: tuple[str, str, int] | None = None
    replaces_view: str = ""
    """A late-binding view is replaced whatever its columns were; PostgreSQL has to drop it first."""
    literal_columns: tuple[str, dict[str, int]] = ("", {})
    is_truncate: bool = False
    is_commit: bool = False


def plan(sql: str, status: bytes) -> Plan:
    """Plan a statement. Raises Refused for what Redshift does not take."""
    if status == wire.FAILED:
        return Plan(sql, sql)  # PostgreSQL says what a failed transaction says
    parts = tokens(sql)
    verb = parts[0].text if parts else ""
    if verb == "copy":
        return Plan(sql, _STANDS_FOR_IT, copy=Copy.parse(parts))
    if verb == "unload":
        return Plan(sql, _STANDS_FOR_IT, unload=Unload.parse(parts, status))
    refuse(parts, status)
    if found := widened(parts):
        return Plan(sql, _STANDS_FOR_IT, widened=found)
    return Plan(
        sql,
        rewritten(parts),
        replaces_view=replaced_view(parts),
        literal_columns=literal_columns(parts),
        is_truncate=verb == "truncate",
        is_commit=verb in {"commit", "end"},
    )
