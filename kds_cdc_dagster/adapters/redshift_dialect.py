"""Redshift's words where they differ.

Sources: AWS Redshift Database Developer Guide, "Data types", "CREATE TABLE", "CREATE VIEW", "TO_VARBYTE".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

VARCHAR_BYTES_MAX = 65_535
"""VARCHAR counts bytes; there is nothing wider. TEXT without a length would mean 256 of them."""
_BINARY_BYTES_MAX = VARCHAR_BYTES_MAX // 2
"""Binary values land as hex text in a VARCHAR."""
_TEXT = f"VARCHAR({VARCHAR_BYTES_MAX})"
_TYPES = {
    "double": "DOUBLE PRECISION",
    "text": _TEXT,
    "uuid": "VARCHAR(36)",
    "json": "SUPER",
    "binary": f"VARBYTE({_BINARY_BYTES_MAX})",
}
_LANDING = {"time": "VARCHAR(32)", "json": _TEXT, "binary": _TEXT, "timestamptz": "TIMESTAMP"}
"""COPY of Parquet fills neither TIME nor VARBYTE, SUPER only from nested types, and ignores zones."""
_LANDED = {
    "time": "CAST({} AS TIME)",
    "json": "JSON_PARSE({})",
    "binary": "TO_VARBYTE({}, 'hex')",
    "timestamptz": "({} AT TIME ZONE 'UTC')",
}


class RedshiftDialect:
    """See the port. Names are lower case (folded on Redshift, quoted or not) and never quoted."""

    def column_type(self, declared: str) -> str:
        """See the port. A VARCHAR wider than Redshift's widest has that width."""
        if match := re.fullmatch(r"varchar\((\d+)\)", declared):
            return f"VARCHAR({min(int(match[1]), VARCHAR_BYTES_MAX)})"
        return _TYPES.get(declared) or declared.replace("decimal", "numeric").upper()

    def landing_type(self, declared: str) -> str:
        """See the port."""
        return _LANDING.get(declared) or self.column_type(declared)

    def landed(self, column: str, declared: str) -> str:
        """See the port."""
        return _LANDED.get(declared, "{}").format(column)

    def bytes_max(self, declared: str) -> int | None:
        """See the port. JSON lands as text, so SUPER's own sixteen megabytes are out of reach."""
        if declared in {"text", "json"} or declared.startswith("varchar"):
            return VARCHAR_BYTES_MAX
        return _BINARY_BYTES_MAX if declared == "binary" else None

    def widened(self, table: str, column: str, declared: str) -> str | None:
        """See the port. Redshift widens a VARCHAR alone, and not one of the distribution or sort key."""
        kind = self.column_type(declared)
        return f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {kind}" if kind.startswith("VARCHAR") else None

    def create_table(self, table: str, columns: Sequence[tuple[str, str]], *, spread_by: str = "") -> str:
        """No keys: Redshift would only note them, and plan wrongly where they do not hold.

        The key of distribution and sorting is named, so that automatic optimisation does not choose a
        column that then can never be widened. Small tables without one lie on every node.
        """
        listed = ", ".join(f"{name} {self.column_type(declared)}" for name, declared in columns)
        spread = f"DISTSTYLE KEY DISTKEY({spread_by}) SORTKEY({spread_by})" if spread_by else "DISTSTYLE EVEN"
        return f"CREATE TABLE IF NOT EXISTS {table} ({listed}) {spread}"

    def create_view(self, view: str, select: str) -> str:
        """Late-binding, so that it can be replaced by one of more columns and never blocks an ALTER TABLE."""
        return f"CREATE OR REPLACE VIEW {view} AS {select} WITH NO SCHEMA BINDING"
