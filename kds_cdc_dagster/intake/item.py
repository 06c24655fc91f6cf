"""One delivery on its way through a round, and its row in the segment."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kds_cdc_dagster.core import position
from kds_cdc_dagster.core.change import Change, Delivery, Outcome, Rejection
from kds_cdc_dagster.journal.segment import SCHEMA


class Item(msgspec.Struct, gc=False):
    """A delivery with what the contract made of it and what the round decides."""

    delivery: Delivery
    change: Change | None
    outcome: Outcome | None = None
    reason: str = ""
    detail: str = ""
    flag: str = ""
    stream_order: str = ""
    row_order: str = ""
    row_position: str = ""
    rejection: Rejection | None = None
    received_at_ms: int = 0

    def reject(self, reason: str, detail: str) -> None:
        """Quarantine the delivery."""
        self.outcome = Outcome.REJECTED
        self.reason = reason
        self.detail = detail

    def accept(self, epoch: int, row_position: str) -> None:
        """Take the change in, with its final row order."""
        change = self._change()
        self.outcome = Outcome.ACCEPTED
        self.row_position = row_position
        number = self.delivery.sequence_number
        self.row_order = position.row_order(epoch, change.phase, row_position, change.rank, number)

    def _change(self) -> Change:
        if self.change is None:
            raise TypeError("only a change can be accepted")
        return self.change


_NOTHING = Rejection("", "")


def segment_columns(items: Sequence[Item]) -> dict[str, Sequence[object]]:
    """Columns of a segment (`journal.segment.SCHEMA`) for the items that are kept."""
    rows = [_row(item) for item in items]
    columns: Sequence[Sequence[object]] = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return dict(zip(SCHEMA.names, columns, strict=True))


def _row(item: Item) -> tuple[object, ...]:
    delivery = item.delivery
    change = item.change
    return (
        item.outcome,
        item.reason,
        item.detail,
        item.flag,
        *(_known(change) if change is not None else _guessed(item.rejection or _NOTHING)),
        item.stream_order,
        item.row_order,
        item.row_position,
        *_identified(change, item.rejection or _NOTHING),
        delivery.group_id,
        delivery.sequence_number,
        delivery.message_id,
        delivery.sent_at_ms,
        item.received_at_ms,
        delivery.receive_count,
        delivery.body,
    )


def _known(change: Change) -> tuple[object, ...]:
    return (
        change.source,
        change.entity,
        change.database,
        change.schema,
        change.table,
        change.op,
        change.primary_key,
        change.stream,
        change.account,
        change.store,
        change.tenant,
        change.company,
    )


def _guessed(rejection: Rejection) -> tuple[object, ...]:
    unknown = ("", "", "", "", "")
    return (rejection.source, rejection.entity, *unknown, rejection.stream, None, None, None, None)


def _identified(change: Change | None, rejection: Rejection) -> tuple[object, ...]:
    if change is not None:
        return change.identity, change.content_hash, change.lineage, change.occurred_at_ms
    return rejection.identity, rejection.content_hash, "", None
