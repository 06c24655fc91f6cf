"""Accepted records as a segment holds them, made of bodies, for the tests of typed rows."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from kds_cdc_dagster.core.change import Change, Delivery
from kds_cdc_dagster.core.contracts import Parser
from kds_cdc_dagster.core.position import POSITION_DIGITS, row_order
from kds_cdc_dagster.journal.segment import SCHEMA

ACCEPTED = "accepted"


def records(parser: Parser, deliveries: Iterable[Delivery]) -> pa.Table:
    """Rows of `journal.segment.SCHEMA` for the changes among the deliveries; rejections fail the test."""
    rows = []
    for delivery in deliveries:
        found = parser.parse(delivery)
        assert isinstance(found, Change), found
        position = found.row_position or "0" * POSITION_DIGITS
        order = row_order(1, found.phase, position, found.rank, delivery.sequence_number)
        row = {name: getattr(found, name, getattr(delivery, name, None)) for name in SCHEMA.names}
        row |= {"outcome": ACCEPTED, "reason": "", "detail": "", "flag": "", "stream_order": "", "row_order": order}
        rows.append(row | {"schema_name": found.schema, "table_name": found.table, "row_position": position})
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def of_entity(table: pa.Table, entity: str) -> pa.Table:
    """The records of one entity, in their order."""
    return table.filter(pa.array([name == entity for name in table.column("entity").to_pylist()]))
