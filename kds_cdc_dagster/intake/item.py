"""One delivery on its way through a round, and its row in the segment."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kds_cdc_dagster.core import position
from kds_cdc_dagster.core.change import Change, Delivery, Outcome, Rejection

_ACCEPTED = Outcome.ACCEPTED
"""At hand: reading a member off an Enum class costs as much as a call."""


class Item(msgspec.Struct, gc=False):
    """A delivery with what the contract made of it and what the round decides."""

    delivery: Delivery
    change: Change | None
    received_at_ms: int
    rejection: Rejection | None = None
    outcome: Outcome | None = None
    reason: str = ""
    detail: str = ""
    flag: str = ""
    stream_order: str = ""
    row_order: str = ""
    row_position: str = ""

    def reject(self, reason: str, detail: str) -> None:
        """Quarantine the delivery."""
        self.outcome = Outcome.REJECTED
        self.reason = reason
        self.detail = detail

    def accept(self, epoch: int, row_position: str) -> None:
        """Take the change in, with its final row order."""
        change = self.change
        if change is None:
            raise TypeError("only a change can be accepted")
        self.outcome = _ACCEPTED
        self.row_position = row_position
        number = self.delivery.sequence_number
        self.row_order = position.row_order(epoch, change.phase, row_position, change.rank, number)


def segment_columns(items: Sequence[Item]) -> dict[str, Sequence[object]]:
    """Columns of a segment (`journal.segment.SCHEMA`) for the items that are kept.

    Column by column: a row of thirty values for each item cost twice as much, to be turned round at once.
    """
    deliveries = [item.delivery for item in items]
    changes = [item.change or _guessed(item.rejection or _NOTHING) for item in items]
    return {
        "outcome": [item.outcome for item in items],
        "reason": [item.reason for item in items],
        "detail": [item.detail for item in items],
        "flag": [item.flag for item in items],
        "source": [change.source for change in changes],
        "entity": [change.entity for change in changes],
        "database": [change.database for change in changes],
        "schema_name": [change.schema for change in changes],
        "table_name": [change.table for change in changes],
        "op": [change.op for change in changes],
        "primary_key": [change.primary_key for change in changes],
        "stream": [change.stream for change in changes],
        "account": [change.account for change in changes],
        "store": [change.store for change in changes],
        "tenant": [change.tenant for change in changes],
        "company": [change.company for change in changes],
        "stream_order": [item.stream_order for item in items],
        "row_order": [item.row_order for item in items],
        "row_position": [item.row_position for item in items],
        "identity": [change.identity for change in changes],
        "content_hash": [change.content_hash for change in changes],
        "lineage": [change.lineage for change in changes],
        "occurred_at_ms": [change.occurred_at_ms for change in changes],
        "group_id": [delivery.group_id for delivery in deliveries],
        "sequence_number": [delivery.sequence_number for delivery in deliveries],
        "message_id": [delivery.message_id for delivery in deliveries],
        "sent_at_ms": [delivery.sent_at_ms for delivery in deliveries],
        "received_at_ms": [item.received_at_ms for item in items],
        "receive_count": [delivery.receive_count for delivery in deliveries],
        "body": [delivery.body for delivery in deliveries],
    }


_NOTHING = Rejection("", "")


def _guessed(rejection: Rejection) -> Change:
    """What is known of a delivery that was no change, in a change's columns."""
    return Change(
        source=rejection.source,
        entity=rejection.entity,
        database="",
        schema="",
        table="",
        op="",
        primary_key="",
        stream=rejection.stream,
        account=None,
        store=None,
        tenant=None,
        company=None,
        identity=rejection.identity,
        content_hash=rejection.content_hash,
        stream_position=None,
        row_position=None,
        phase=0,
        rank=0,
        lineage="",
        is_snapshot_start=False,
        occurred_at_ms=None,
    )
