"""The warehouse, and what is loaded into and unloaded from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LoadArtifact:
    """A typed Parquet object of a batch, and where a warehouse that wants a COPY manifest of it puts that."""

    key: str
    manifest_key: str
    sha256: str
    rows: int
    size_bytes: int
    held: pa.Table | None = field(default=None, repr=False, compare=False)
    """Its rows, where this process has just written it: a warehouse in the process need not read them again."""


@dataclass(frozen=True, slots=True)
class ExportFile:
    """One exported Parquet object of one partition value."""

    partition: str
    key: str
    rows: int
    size_bytes: int


@runtime_checkable
class Dialect(Protocol):
    """Where the warehouses' SQL differs. Types are the catalogue's words (`core.catalogue.Column.type`).

    Everything else is written once, in statements that Redshift, PostgreSQL and DuckDB all take.
    """

    def column_type(self, declared: str) -> str:
        """Type of a permanent column."""
        ...

    def landing_type(self, declared: str) -> str:
        """Type of the temp column that COPY fills: what the load artifact physically holds.

        Time and json as text, binary as hex text, timestamptz as UTC timestamp.
        """
        ...

    def landed(self, column: str, declared: str) -> str:
        """Expression that turns a landing column into its permanent type."""
        ...

    def bytes_max(self, declared: str) -> int | None:
        """Longest text, json text or binary, in bytes, that a column and its landing take; None: no limit."""
        ...

    def widened(self, table: str, column: str, declared: str) -> str | None:
        """ALTER of an existing column to a wider type, for `Warehouse.alter`; None where that cannot be done."""
        ...

    def create_table(self, table: str, columns: Sequence[tuple[str, str]], *, spread_by: str = "") -> str:
        """CREATE TABLE IF NOT EXISTS; columns are (name, declared type), all nullable, no constraints."""
        ...

    def create_view(self, view: str, select: str) -> str:
        """Create the view or replace it by one that has the same or more columns."""
        ...


class Transaction(Protocol):
    """An open transaction. Placeholders are `?`; SQL text holds validated names and no row values."""

    @property
    def dialect(self) -> Dialect:
        """The warehouse's dialect."""
        ...

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> None:
        """Run one statement. Raises LoadRefused if the warehouse refuses the rows."""
        ...

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one query and fetch all of its (few) rows."""
        ...

    def copy(self, table: str, artifact: LoadArtifact) -> None:
        """Append the artifact's rows to a temp table whose columns are the file's, in its order."""
        ...

    def land(self, name: str, columns: Sequence[tuple[str, str]], artifact: LoadArtifact) -> None:
        """Make `name` a temp table or view of the artifact's rows, in place of an earlier one.

        `columns`: (name, declared type) of all of the file's columns in its order; they have landing types. Raises
        LoadRefused, also if the file has other columns; InvariantBroken if it has another number of rows.
        """
        ...

    def unland(self, name: str) -> None:
        """Drop what `land` made."""
        ...

    def unload(self, select: str, prefix: str, *, partition: str) -> list[ExportFile]:
        """Write the query's rows to Parquet objects `<prefix><partition>=<value>/…`, without that column.

        `prefix` was never used before. A value without rows has no file.
        """
        ...


@runtime_checkable
class Warehouse(Protocol):
    """Runs whole transactions. Raises WarehouseBusy (retry later), LoadRefused (no retry helps)."""

    @property
    def dialect(self) -> Dialect:
        """Where this warehouse's SQL differs."""
        ...

    def run(self, body: Callable[[Transaction], T], *, lock: str = "") -> T:
        """Run `body` in one transaction: commit at its end, roll back on an exception.

        Bodies of one `lock` name exclude each other, from their first statement on. A lost
        serialisation cycle repeats the whole body, a bounded number of times: it must be repeatable.
        """
        ...

    def alter(self, statement: str) -> None:
        """Run one DDL statement by itself, in no transaction."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...
