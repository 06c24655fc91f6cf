"""Segments, logs, parked pointers and epochs: what lies in the object store means what it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kds_cdc_dagster.errors import InvariantBroken, ObjectExists
from kds_cdc_dagster.journal import epochs, keys, parked, segment
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.logs import Tail, closed_tail
from kds_cdc_dagster.ports import ObjectInfo
from kds_cdc_dagster_tests.contracts.clocks import ManualClock
from kds_cdc_dagster_tests.simulation.dict_store import DictStore

ODD = "a/b %|é:\x01"
"""A name with everything that could break a key."""


@pytest.fixture
def store() -> DictStore:
    """An empty store."""
    return DictStore(ManualClock())


def columns(rows: int) -> dict[str, list[Any]]:
    """Columns of a segment, something in each."""
    values: dict[str, Any] = {"string": "text", "int64": 7, "int32": 3, "binary": b"\x00body"}
    return {field.name: [values[str(field.type)]] * rows for field in segment.SCHEMA}


def put(store: DictStore, claim: str, *slots: int) -> None:
    """Put segments into a claim's log."""
    for slot in slots:
        store.create(keys.segment(SegmentId(claim, slot)), segment.encode(columns(1), {}))


def test_a_segment_reads_back_as_it_was_written(store: DictStore) -> None:
    """Rows in order, bodies byte for byte, counts of the round."""
    id_ = SegmentId(ODD, 3)
    store.create(keys.segment(id_), segment.encode(columns(2), {"received": 2}))
    found = segment.read(store, id_)
    assert found is not None
    assert found.id == id_
    assert found.rows.to_pydict() == columns(2)
    assert found.counts == {"received": 2}


def test_the_same_input_gives_the_same_bytes() -> None:
    """So that a retried put recognises its own object, whatever the order of the counts."""
    first = segment.encode(columns(3), {"received": 3, "accepted": 3})
    assert first == segment.encode(columns(3), {"accepted": 3, "received": 3})


def test_an_end_is_no_segment(store: DictStore) -> None:
    """It holds no Parquet: this slot will never hold a segment."""
    store.create(keys.segment(SegmentId("c", 1)), segment.END)
    assert segment.read(store, SegmentId("c", 1)) is None


def test_a_segment_of_another_version_is_refused() -> None:
    """Columns that this version does not write must not be half understood."""
    renamed = columns(1)
    body = segment.encode(renamed, {})
    with pytest.raises(InvariantBroken, match="other columns"):
        segment.decode(SegmentId("c", 1), body.replace(b"receive_count", b"receive_kount"))


def test_keys_and_ids_are_inverses() -> None:
    """Whatever is in a name, a key's parts stay apart."""
    id_ = SegmentId(ODD, 12)
    assert keys.segment_of(keys.segment(id_)) == id_
    assert SegmentId.parse(str(id_)) == id_
    assert keys.first_segment(keys.batch_id(id_)) == id_
    assert keys.unpart(keys.part("")) == ""
    assert keys.segment(id_).count("/") == 2


def test_closing_a_log_leaves_no_slot_free(store: DictStore) -> None:
    """The END takes the next slot; closing again changes nothing; the owner's late put fails."""
    put(store, "c", 1, 2)
    assert list(closed_tail(store, "c", 0).slots) == [1, 2]
    assert list(closed_tail(store, "c", 1).slots) == [2]
    with pytest.raises(ObjectExists):
        put(store, "c", 3)
    assert Tail(store, "c", 0).is_closed


def test_closing_races_with_the_owner(store: DictStore) -> None:
    """The owner puts just before the END: the log is listed again, and the segment belongs to the tail."""
    put(store, "c", 1)
    real = store.create

    def raced(key: str, body: bytes) -> None:
        store.create = real
        put(store, "c", 2)
        real(key, body)

    store.create = raced
    tail = closed_tail(store, "c", 0)
    assert list(tail.slots) == [1, 2]
    assert [found.id.slot for found in tail.segments()] == [1, 2]


def test_a_listing_that_misses_a_slot_is_no_hole(store: DictStore) -> None:
    """The owner put two segments while the pages went by: the second was seen, the first not."""
    put(store, "c", 1, 2, 3)
    real = store.scan

    def missing_one(prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        store.scan = real
        return (info for info in real(prefix, after=after) if keys.segment_of(info.key).slot != 2)

    store.scan = missing_one
    assert list(Tail(store, "c", 0).slots) == [1, 2, 3]


def test_a_real_hole_stops_everything(store: DictStore) -> None:
    """Logs are dense: a missing segment means that something was lost."""
    put(store, "c", 1, 3)
    with pytest.raises(InvariantBroken, match="hole"):
        Tail(store, "c", 0)


def test_a_parked_pointer_is_outstanding_until_its_release(store: DictStore) -> None:
    """... and for ever released afterwards, also if its segment is settled again, or the release died half way."""
    one, two = SegmentId("c", 1), SegmentId(ODD, 2)
    for segment_id in (one, two):
        parked.point(store, ODD, "s", segment_id, "why")
    assert sorted(parked.outstanding(store, ODD, "s")) == sorted([one, two])
    assert list(parked.held_streams(store)) == [(ODD, "s")]
    parked.mark_released(store, ODD, "s", [one])
    parked.point(store, ODD, "s", one, "why")
    store.create(keys.pointer(keys.released(ODD, "s"), two), b"")
    assert parked.outstanding(store, ODD, "s") == []
    assert list(parked.held_streams(store)) == []


def test_an_operator_can_hold_a_stream_again(store: DictStore) -> None:
    """The pointer of a hold by hand names no segment: its release must not void the next one."""
    for _ in range(2):
        parked.point(store, "src", "s", parked.BY_OPERATOR, "why")
        assert parked.outstanding(store, "src", "s") == [parked.BY_OPERATOR]
        parked.mark_released(store, "src", "s", [parked.BY_OPERATOR])
        assert parked.outstanding(store, "src", "s") == []


def test_epochs_are_opened_one_after_the_other(store: DictStore) -> None:
    """One winner; whoever comes later gets the same number; a hold ends with its epoch."""
    assert epochs.current(store, ODD) == epochs.SourceEpoch(0)
    epochs.hold(store, ODD, 0, reason="positions went back", by="w", at=0.0)
    epochs.hold(store, ODD, 0, reason="another reason", by="w", at=0.0)
    assert epochs.current(store, ODD) == epochs.SourceEpoch(0, "positions went back")
    assert [epochs.open_next(store, ODD, 0, reason="r", by=by, at=1.0) for by in "ab"] == [1, 1]
    assert epochs.current(store, ODD) == epochs.SourceEpoch(1)
    assert epochs.current(store, "another") == epochs.SourceEpoch(0)
