"""The ports: what the intake and the load need from the outside, in a few atomic verbs each.

All cleverness sits above them and is written once. One contract suite per port
(`kds_cdc_dagster_tests/contracts`) runs against every adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.core.decide import DecideCall, DecideReply, SettleCall

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class Clock(Protocol):
    """Time as an argument: the simulation moves it by hand."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; a virtual clock only moves on."""
        ...


# --- queue ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Backlog of the queue; numbers may be approximate where the service's are."""

    visible: int
    in_flight: int
    dead_letter: int = 0
    oldest_age_seconds: float | None = None

    @property
    def is_empty(self) -> bool:
        """No message waits and none is in flight (dead letters do not count)."""
        return self.visible == 0 and self.in_flight == 0


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Result of an acknowledge call, per receipt. Only `confirmed` ones are gone from the queue."""

    confirmed: frozenset[str]
    refused: Mapping[str, str] = field(default_factory=dict)
    """receipt -> reason (expired handle and the like); the message will come again."""


@runtime_checkable
class Inbox(Protocol):
    """A FIFO queue, read side: at most ten messages a receive, group locked while one is in flight."""

    def receive(self, *, max_messages: int, wait_seconds: float) -> list[Delivery]:
        """Up to `max_messages` (≤ 10), in queue order per group; empty after `wait_seconds`.

        An empty answer does not prove an empty queue. Raises TransientError.
        """
        ...

    def acknowledge(self, receipts: Sequence[str]) -> Acknowledgement:
        """Delete messages. Any number of receipts; never raises for single ones."""
        ...

    def release(self, receipts: Sequence[str]) -> None:
        """Make messages visible again at once. Best effort: never raises for single ones."""
        ...

    def extend(self, receipts: Sequence[str], seconds: float) -> None:
        """Hide messages for `seconds` from now. Best effort."""
        ...

    def depth(self) -> QueueDepth:
        """Current backlog."""
        ...

    def close(self) -> None:
        """Let pending receives end; strand nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish: body text, FIFO group, deduplication id."""

    body: str
    group_id: str
    dedup_id: str


class Outbound(Protocol):
    """A FIFO queue, write side (`kds-cdc enqueue`, `simulate`, redrive)."""

    def send(self, messages: Sequence[Message]) -> int:
        """Publish in order; returns how many were new (not suppressed by deduplication)."""
        ...


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was received too often and moved away. Its body stays where it is."""

    group_id: str
    message_id: str
    receive_count: int
    sent_at_ms: int


class DeadLetters(Protocol):
    """Messages that were received too often."""

    def letters(self, *, limit: int) -> list[DeadLetter]:
        """The oldest of them, up to `limit`. SQS shows the oldest of each group only: it locks a group it gave out."""
        ...

    def redrive(self, *, limit: int) -> int:
        """Put up to `limit` back into the queue, each group in order; returns how many."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...


# --- shared ordering and duplicate state --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """What is known of one stream, for status, holds and rebuilds."""

    source: str
    stream: str
    committed: str = ""
    row_position: str = ""
    lineage: str = ""
    hold: str = ""
    hold_version: int = 0
    parkers: Mapping[str, int] = field(default_factory=dict)
    message_id: str = ""
    sequence_number: str = ""
    worker: str = ""
    settled_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Marker:
    """A committed marker, as a rebuild loads it."""

    source: str
    stream: str
    identity: str
    content_hash: str


@runtime_checkable
class StateStore(Protocol):
    """Shared ordering and duplicate state, scoped by pipeline; one atomic step per stream and call.

    *Life*: the store carries a sentinel. A store without one was emptied (or is new): it must be
    rebuilt from durable records before anything is decided. Calls name the life they belong to and
    raise StateNotReady, having changed nothing, when it is not the store's current, finished life.
    All methods raise StateUnavailable when the store cannot be reached.
    """

    def life(self) -> str | None:
        """Id of the finished life, or None: rebuild first."""
        ...

    def begin_life(self, *, is_yielding: bool = False) -> str | None:
        """Start a rebuild under a new life id. Nothing is decided until `finish_life`.

        Yielding, it gives None and changes nothing where a life is finished, or where another rebuild is under
        way: one that began, or called `load`, less than a lease ago.
        """
        ...

    def load(self, life: str, streams: Sequence[StreamRecord], markers: Sequence[Marker]) -> bool:
        """Load rebuilt state into the unfinished life; never lowers anything.

        False, with nothing written, when another life has begun since. Renews the lease, also with nothing to load.
        """
        ...

    def finish_life(self, life: str) -> bool:
        """Open the rebuilt life for decisions; False when another life has begun since."""
        ...

    def decide(self, life: str, calls: Sequence[DecideCall]) -> list[DecideReply]:
        """`core.decide.decide` for each call, each atomic, all in one network turn."""
        ...

    def settle(self, life: str, calls: Sequence[SettleCall]) -> None:
        """`core.decide.settled` for each call. Repeating it changes nothing."""
        ...

    def hold(self, life: str, source: str, stream: str, reason: str) -> None:
        """Hold a stream: from now on its new changes are parked."""
        ...

    def unhold(self, life: str, source: str, stream: str, hold_version: int) -> bool:
        """End a hold if nothing was parked since `hold_version`; False otherwise."""
        ...

    def stream(self, source: str, stream: str) -> StreamRecord | None:
        """One stream's record."""
        ...

    def streams(self, *, held_only: bool = False) -> Iterator[StreamRecord]:
        """All streams of the pipeline, in no order."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...


# --- object store -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Key, size and time (seconds since the epoch) of a stored object."""

    key: str
    size_bytes: int
    modified_at: float


@runtime_checkable
class ObjectStore(Protocol):
    """Immutable objects under a prefix. Keys use '/', each part percent-encoded by the caller."""

    def create(self, key: str, body: bytes) -> None:
        """Create-only put: exactly one winner per key. Raises ObjectExists."""
        ...

    def get(self, key: str) -> bytes:
        """Whole object. Raises ObjectMissing."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """A range of the object. Raises ObjectMissing."""
        ...

    def exists(self, key: str) -> bool:
        """Whether the object is there."""
        ...

    def scan(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Objects whose key starts with `prefix`, sorted by key, after key `after`.

        `prefix` ends with '/' or is a whole key part; sees every create that returned before.
        """
        ...

    def folders(self, prefix: str) -> list[str]:
        """Names of the immediate folders under `prefix` (which ends with '/'), sorted."""
        ...

    def overwrite(self, key: str, body: bytes) -> None:
        """Unconditional put, for heartbeats only: nobody's correctness rests on it."""
        ...

    def swap(self, key: str, body: bytes, *, expected: bytes | None) -> bool:
        """Compare and swap of a small pointer: False if the object is not `expected` (None: absent)."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; missing ones are no error. Only outbox entries, pointers and pruning use it."""
        ...

    def uri(self, key: str) -> str:
        """Address of the object as people and warehouses name it (s3://…, file path)."""
        ...


# --- warehouse ----------------------------------------------------------------------------------


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
