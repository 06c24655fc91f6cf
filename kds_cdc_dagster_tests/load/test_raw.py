"""Batches and raw artifacts: read once, written once, proven by their checksum."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kds_cdc_dagster.adapters.object_store import open_memory
from kds_cdc_dagster.errors import InvariantBroken
from kds_cdc_dagster.journal import keys, segment
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.load.batch import SCHEMA, read_batch
from kds_cdc_dagster.load.raw import RawSlice, read_raw, write_raw
from kds_cdc_dagster.ports import ObjectStore
from kds_cdc_dagster_tests.load.journaled import record, sealed


@pytest.fixture
def store() -> ObjectStore:
    """An empty store."""
    return open_memory("kds")


def test_reads_each_segment_once(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many entities of a batch are loaded, its segments are fetched once."""
    batch = sealed(store, [record(1), record(2, entity="menu")], [record(3)])
    fetched = []
    get = store.get
    monkeypatch.setattr(store, "get", lambda key: fetched.append(key) or get(key))
    for entity in ("dish", "menu", "dish"):
        read_batch(store, batch).accepted(entity)
    assert len(fetched) == 2


def test_sealed_count_holds(store: ObjectStore) -> None:
    """Segments with another number of changes than were sealed, or an END among them, stop the load."""
    batch = sealed(store, [record(1)])
    with pytest.raises(InvariantBroken, match="sealed=2, found=1"):
        read_batch(store, msgspec.structs.replace(batch, accepted=2))
    store.create(keys.segment(SegmentId("w1", 2)), segment.END)
    with pytest.raises(InvariantBroken, match="segment=w1/2"):
        read_batch(store, msgspec.structs.replace(batch, last_slot=2))


def test_s18_slices(store: ObjectStore) -> None:
    """Rows lie by company, tenant, stream and row order; the sidecar finds each slice by offset; no lane is split."""
    owners = [("b", "t2"), ("a", "t1"), ("b", "t1"), (None, None), ("a", "t1")]
    rows = [record(9 - n, company=c, tenant=t, stream=f"{c}:{n % 2}") for n, (c, t) in enumerate(owners)]
    batch = sealed(store, rows)
    artifact = write_raw(store, "dish", read_batch(store, batch))
    assert artifact.slices == (
        RawSlice("a", "t1", 0, 2),
        RawSlice("b", "t1", 2, 1),
        RawSlice("b", "t2", 3, 1),
        RawSlice("", "", 4, 1),
    )
    _, found = read_raw(store, "dish", batch.batch)
    for part in artifact.slices:
        cut = found.slice(part.offset, part.rows)
        assert set(cut["company"].to_pylist()) == {part.company or None}
        assert set(cut["tenant"].to_pylist()) == {part.tenant or None}
    lanes = found.select(["stream", "row_order"]).to_pylist()[:2]
    assert lanes == sorted(lanes, key=lambda row: (row["stream"], row["row_order"]))


def test_as_received(store: ObjectStore) -> None:
    """Only accepted changes of the entity, every byte and every field of them, and where they lie in the journal."""
    rows = [record(1, body=b"\x00\xff"), record(2, entity="menu"), record(3, outcome="rejected", reason="oversize")]
    batch = sealed(store, [record(7)], rows)
    write_raw(store, "dish", read_batch(store, batch))
    _, found = read_raw(store, "dish", batch.batch)
    assert found.to_pylist() == [
        {**rows[0], "segment": "w1/2", "segment_row": 0},
        {**record(7), "segment": "w1/1", "segment_row": 0},
    ]


def test_repeats_are_dropped_and_counted(store: ObjectStore) -> None:
    """One change delivered into two segments is one row, the first; the same identity with other content stays."""
    again = record(5, identity=record(1)["identity"], content_hash=record(1)["content_hash"])
    other = record(6, identity=record(1)["identity"])
    batch = sealed(store, [record(1), record(2)], [again, other])
    artifact = write_raw(store, "dish", read_batch(store, batch))
    assert (artifact.rows, artifact.repeats) == (3, 1)
    _, found = read_raw(store, "dish", batch.batch)
    assert found["sequence_number"].to_pylist() == ["1", "2", "6"]


def test_s19_written_once(store: ObjectStore) -> None:
    """Writing again gives the same artifact, also when the first attempt died before the sidecar."""
    batch = read_batch(store, sealed(store, [record(1), record(2)]))
    first = write_raw(store, "dish", batch)
    assert write_raw(store, "dish", batch) == first
    store.delete([keys.raw_sidecar("dish", batch.manifest.batch)])
    assert write_raw(store, "dish", batch) == first


def test_s19_an_artifact_that_another_version_wrote_is_the_same(store: ObjectStore) -> None:
    """Given an artifact with the same rows in other bytes, writing again keeps it, and it can be read."""
    rows = [record(1, stream="b", entity="menu"), record(2, stream="b"), record(3, stream="a")]
    batch = read_batch(store, sealed(store, rows))
    first = write_raw(store, "dish", batch)
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(store.get(first.key))).cast(SCHEMA), sink, compression="none")
    store.delete([keys.raw_sidecar("dish", batch.manifest.batch)])
    store.overwrite(first.key, sink.getvalue().to_pybytes())
    again = write_raw(store, "dish", batch)
    assert (again.rows, again.slices) == (first.rows, first.slices)
    assert again.sha256 != first.sha256
    assert read_raw(store, "dish", batch.manifest.batch)[1]["sequence_number"].to_pylist() == ["3", "2"]


def test_other_rows_are_refused(store: ObjectStore) -> None:
    """An artifact is never replaced by one with other rows, nor read if its bytes changed."""
    batch = read_batch(store, sealed(store, [record(1), record(2)]))
    artifact = write_raw(store, "dish", batch)
    with pytest.raises(InvariantBroken, match="other rows"):
        write_raw(store, "dish", replace(batch, rows=batch.rows.slice(1)))
    store.overwrite(artifact.key, store.get(artifact.key) + b"x")
    with pytest.raises(InvariantBroken, match="not what was written"):
        read_raw(store, "dish", batch.manifest.batch)
