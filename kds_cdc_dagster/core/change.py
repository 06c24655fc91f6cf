"""The words of the intake as types: delivery, change, rejection, control message, record, outcome.

Positions are opaque lower-case hex text of fixed width per source, compared as text and never
subtracted. `core.position` makes them.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One handing-over of a message by the queue, with the receipt that acknowledges it."""

    body: bytes
    group_id: str
    sequence_number: str
    """The queue's own number, decimal digits, rising inside a group."""
    message_id: str
    receipt: str
    receive_count: int
    """How many times the queue has handed this message over, this time included (1 = first)."""
    sent_at_ms: int
    """When the publisher sent it, milliseconds since the epoch."""


class Op(StrEnum):
    """Operations of a change, in Debezium's letters."""

    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    READ = "r"
    TRUNCATE = "t"


class Phase:
    """Leading part of the row order: snapshot rows rank below every streaming row of their epoch."""

    SNAPSHOT = 0
    """Initial, blocking and repeated snapshots."""
    STREAMING = 1
    """Streaming changes and incremental snapshot reads."""


class Rank:
    """Tie-break at one position: a streaming row beats an incremental read."""

    INCREMENTAL = 0
    STREAMING = 1


class Change(msgspec.Struct, gc=False):
    """One validated row-level change (or a table's truncate), before it is decided."""

    source: str
    """Id of the source in the catalogue."""
    entity: str
    database: str
    schema: str
    table: str
    op: str
    primary_key: str
    """Canonical JSON array of the key values in catalogue order; empty for a truncate."""
    stream: str
    account: str | None
    store: str | None
    tenant: str | None
    company: str | None
    identity: str
    """32 hex digits: what makes two deliveries the same change (`core.identity`)."""
    content_hash: str
    """16 hex digits over {op, primary key, before, after}."""
    stream_position: str | None
    """Delivery proof inside the stream, without epoch; None for snapshot reads, which prove nothing."""
    row_position: str | None
    """Which version of a row wins, without epoch; None where the message carries none (flattened incremental
    reads): such a read ranks below every streaming change."""
    phase: int
    rank: int
    lineage: str
    """What tells one server history from another (binlog base and server); empty if unknown."""
    is_snapshot_start: bool
    """The very first row of a snapshot (mark `first`): where its position goes back, a new lineage begins."""
    occurred_at_ms: int | None
    """The source's own time of the change, informative only, never an order."""


class Rejection(msgspec.Struct, gc=False):
    """A delivery that must not flow on: quarantined whole with its reason."""

    reason: str
    detail: str
    """Names fields, limits, positions; never values of a row."""
    source: str = ""
    entity: str = ""
    stream: str = ""
    identity: str = ""
    content_hash: str = ""


class Control(msgspec.Struct, gc=False):
    """A message that carries no row: counted by kind and acknowledged."""

    kind: str


Parsed = Change | Rejection | Control


class Reason(StrEnum):
    """Reason codes of quarantined deliveries. The list is closed: tests and docs read it."""

    UNREADABLE = "unreadable"
    OVERSIZE = "oversize"
    UNKNOWN_CONTRACT = "unknown_contract"
    UNKNOWN_SOURCE = "unknown_source"
    UNKNOWN_TABLE = "unknown_table"
    MISSING_FIELD = "missing_field"
    MISSING_KEY = "missing_key"
    MISSING_COORDINATES = "missing_coordinates"
    MISSING_QUEUE_METADATA = "missing_queue_metadata"
    UNMAPPED_TENANT = "unmapped_tenant"
    GROUP_MISMATCH = "group_mismatch"
    UNSUPPORTED_OPERATION = "unsupported_operation"
    UNDECODABLE_KEY = "undecodable_key"
    UNDECODABLE_VALUE = "undecodable_value"
    TOO_MANY_RECEIVES = "too_many_receives"
    SUSPICIOUS_DUPLICATE = "suspicious_duplicate"
    OUT_OF_ORDER = "out_of_order"
    GAP = "gap_detected"
    TRUNCATE_REFUSED = "truncate_refused"
    SCHEMA_DRIFT = "schema_drift"


class Outcome(StrEnum):
    """What a round did with one delivery. Every received delivery gets exactly one."""

    ACCEPTED = "accepted"
    SAFE_DUPLICATE = "safe_duplicate"
    REJECTED = "rejected"
    PARKED = "parked"
    CONTROL = "control"
    GIVEN_UP = "given_up"


class Flag(StrEnum):
    """Marks on an accepted change that a policy let in although its order was not proven."""

    GAP = "gap"
    OUT_OF_ORDER = "out_of_order"
    SIBLING = "sibling"
