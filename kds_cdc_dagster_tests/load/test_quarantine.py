"""Quarantine rows, once per delivery key, and the end of a batch, which waits for them."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kds_cdc_dagster.core.change import Reason
from kds_cdc_dagster.journal import keys, parked
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.load.batch import SCHEMA, read_batch
from kds_cdc_dagster.load.done import mark_done, unfinished
from kds_cdc_dagster.load.figures import QuarantineCount, quarantine_counts
from kds_cdc_dagster.load.quarantine import quarantine_batch
from kds_cdc_dagster.load.released import close_released
from kds_cdc_dagster.load.staging import Stager
from kds_cdc_dagster.load.typed import Typed
from kds_cdc_dagster_tests.load.journaled import Record, record, sealed
from kds_cdc_dagster_tests.load.loading import SCHEMAS, Loading
from kds_cdc_dagster_tests.load.source import CATALOGUE, DISH, SourceTable, typed_table


@pytest.fixture
def loading() -> Iterator[Loading]:
    """The dish target on a new DuckDB file."""
    with Loading.on_duckdb() as found:
        yield found


def rejected(position: int, **fields: object) -> Record:
    """A rejected delivery."""
    return record(position, **{"outcome": "rejected", "reason": "gap_detected", "detail": "after 4", **fields})


def set_aside(loading: Loading, rows: list[Record], slot: int = 1) -> int:
    """Seal the rows as a batch and quarantine it, twice; how many rows were new at first."""
    batch = read_batch(loading.store, sealed(loading.store, rows, first_slot=slot))
    count = quarantine_batch(loading.warehouse, loading.store, batch, SCHEMAS)
    assert quarantine_batch(loading.warehouse, loading.store, batch, SCHEMAS) == 0
    return count


def test_once_per_key(loading: Loading) -> None:
    """A delivery that is rejected again, in the same batch or a later one, is one row; other content is another."""
    unreadable = {"identity": "", "content_hash": "", "reason": "unreadable", "body": b"{"}
    first = [rejected(1), rejected(1), rejected(2, **unreadable), rejected(3, **unreadable), record(4)]
    assert set_aside(loading, first) == 2
    assert set_aside(loading, [rejected(1), rejected(1, content_hash="other"), rejected(9, **unreadable)], slot=2) == 1
    counts = quarantine_counts(loading.warehouse, SCHEMAS)
    assert counts == [
        QuarantineCount("rejected", "gap_detected", "mock", 2),
        QuarantineCount("rejected", "unreadable", "mock", 1),
    ]


def test_kept_whole(loading: Loading) -> None:
    """Reason, detail, place in the journal and body are kept; what is no text is base64; a long body is cut."""
    rows = [
        rejected(1, body=b'{"a": "\xc3\xbc"}'),
        record(2, outcome="parked", reason="gap after 1", body=b"nul \x00"),
        rejected(3, body=b"\xff\xfe"),
        rejected(4, body=("ü" * 40_000).encode()),
    ]
    set_aside(loading, rows)
    found = loading.rows(
        "SELECT outcome, reason, detail, segment, segment_row, body_encoding, body, body_bytes, status "
        "FROM ops.quarantine ORDER BY sequence_number"
    )
    assert found[0] == ("rejected", "gap_detected", "after 4", "w1/1", 0, "utf-8", '{"a": "ü"}', 11, "open")
    assert found[1][:2] == ("parked", "gap after 1")
    assert [base64.b64decode(row[6]) for row in found[1:3]] == [b"nul \x00", b"\xff\xfe"]
    assert (len(found[3][6]), found[3][7]) == (32_500, 80_000)


def test_released_rows_are_closed_and_a_later_refusal_shows(loading: Loading) -> None:
    """Open while a pointer says so; closed by its release, also in a batch that is loaded later; refused then: open."""
    first, second = (SegmentId("w1", slot) for slot in (1, 2))
    for segment in (first, second):
        parked.point(loading.store, "mock", "acct-1:s", segment, "gap")
    parked_rows = [record(n, outcome="parked", reason="gap") for n in (1, 2)]

    def rows() -> list[tuple[object, ...]]:
        close_released(loading.warehouse, loading.store, SCHEMAS)
        return loading.rows("SELECT outcome, reason, status FROM ops.quarantine ORDER BY sequence_number")

    set_aside(loading, parked_rows[:1])
    assert rows() == [("parked", "gap", "open")]
    parked.mark_released(loading.store, "mock", "acct-1:s", [first, second])
    assert rows() == [("parked", "gap", "released")]
    set_aside(loading, parked_rows[1:], slot=2)
    assert rows() == [("parked", "gap", "released")] * 2
    later = record(2)["received_at_ms"] + 1
    set_aside(loading, [rejected(2, received_at_ms=later)], slot=3)
    assert rows() == [("parked", "gap", "released"), ("rejected", "gap_detected", "open")]


def test_refused_rows(loading: Loading) -> None:
    """A change that cannot be typed is quarantined with its body, once however often the batch is staged."""
    table = SourceTable()
    table.insert(1, "soup")
    records = pa.Table.from_pylist([{**record(n), "segment": "w1/1", "segment_row": n} for n in (1, 2)], schema=SCHEMA)
    rows = Typed(typed_table(table.emitted), [(1, Reason.UNDECODABLE_VALUE, "column total: no decimal")])
    stager = Stager(loading.warehouse, loading.store, CATALOGUE, SCHEMAS)
    for _ in range(2):
        assert stager.stage_typed(DISH, "w1-00000001", records, rows).refused == 1
    found = loading.rows("SELECT outcome, reason, detail, entity, body, segment_row FROM ops.quarantine")
    assert found == [("rejected", "undecodable_value", "column total: no decimal", "dish", "body 2", 2)]


def test_done(loading: Loading) -> None:
    """`done/<batch>` appears when staging, every target and the quarantine have the batch, and not before."""
    batch = sealed(loading.store, [record(1), rejected(2)])
    table = SourceTable()
    table.insert(1, "soup")

    def left() -> list[str]:
        is_done = mark_done(loading.warehouse, loading.store, CATALOGUE, SCHEMAS, batch)
        found = unfinished(loading.warehouse, CATALOGUE, SCHEMAS, batch)
        assert is_done == (not found) == loading.store.exists(keys.done(batch.batch))
        return found

    assert left() == ["curated dish", "staging _quarantine", "staging dish"]
    loading.load(batch.batch, table.emitted)
    assert left() == ["staging _quarantine"]
    quarantine_batch(loading.warehouse, loading.store, read_batch(loading.store, batch), SCHEMAS)
    assert left() == []
