"""Flattened rows (ExtractNewRecordState): what the added fields still tell."""

from __future__ import annotations

import pytest

from kds_cdc_dagster.core import position
from kds_cdc_dagster.core.change import Phase, Rank, Reason
from kds_cdc_dagster_tests.core.debezium_messages import change, flattened, rejection


@pytest.mark.parametrize("spelling", ["__lsn", "__source_lsn"])
def test_flattened_postgresql_in_both_spellings(spelling: str) -> None:
    """add.fields=lsn and add.fields=source.lsn give two names for one field."""
    found = change(flattened(**{spelling: 300, "__source_ts_ms": 5, "__ts_ms": 9}))
    assert (found.source, found.database, found.schema) == ("kdsprod-pg", "postgres", "kds")
    assert (found.stream_position, found.row_position) == (position.arrival("9"), position.postgresql_flattened(300))
    assert found.occurred_at_ms == 5


def test_flattened_rows_with_sequence_have_full_positions() -> None:
    """Where the publisher adds source.sequence, nothing is lost."""
    found = change(flattened(__lsn=200, __source_sequence='["100","200"]'))
    assert found.stream_position == position.postgresql(100, 200)


def test_flattened_deletes_and_reads() -> None:
    """`__deleted` makes a delete; a read with a position is a snapshot's, one without is incremental."""
    gone = change(flattened("u", __deleted="true", __lsn=5, account_id="", store_guid=""), "kdsprod:kitchen_ticket")
    assert (gone.op, gone.primary_key) == ("d", "[7]")
    read = change(flattened("r", __lsn=5))
    assert (read.phase, read.stream_position, read.is_snapshot_start) == (Phase.SNAPSHOT, None, False)
    incremental = change(flattened("r", __lsn=None))
    assert (incremental.phase, incremental.rank, incremental.row_position) == (Phase.STREAMING, Rank.INCREMENTAL, None)
    assert rejection(flattened("u", __lsn=None)).reason == Reason.MISSING_COORDINATES


def test_flattened_mysql_is_found_by_its_file() -> None:
    """No connector is named: the position's fields say which kind, the catalogue which source."""
    found = change(flattened(__file="bin.10", __pos=4, __row=1, __server_id=3))
    assert (found.source, found.schema) == ("kdsprod-mysql", "kds")
    assert found.stream_position == position.binlog("bin.10", 4, 1)
    assert found.lineage == "bin|3"
    assert rejection(flattened()).reason == Reason.UNKNOWN_SOURCE
    assert rejection(flattened(__lsn=5, __table=None)).reason == Reason.MISSING_FIELD
