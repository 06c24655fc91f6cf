"""Scenarios of order and duplicates, on one or two workers without crashes."""

from __future__ import annotations

import pytest

from kds_cdc_dagster.core.batch import CloseReason
from kds_cdc_dagster_tests.intake.given import Given, drain, stream_of, turn

AN_HOUR_AND_MORE = 4500.0


def test_s01_one_stream_in_order() -> None:
    """Everything is accepted, the position only grows, batches flush, nothing is called odd."""
    given = Given(records_max=10)
    worker = given.worker("a")
    seen = [0]
    for first in range(1, 60, 10):
        given.send(*range(first, first + 10))
        report = turn(worker)
        assert report.counts["accepted"] == report.counts["received"] == 10
        assert [batch.close_reason for batch in report.sealed] == [CloseReason.COUNT]
        seen.append(given.committed() or 0)
    assert seen == sorted(set(seen))
    assert given.accepted() == list(range(1, 61))
    assert [batch.accepted for batch in given.batches()] == [10] * 6
    assert given.rows("rejected") == []
    assert given.is_settled()


def test_s02_worker_b_continues_from_shared_state() -> None:
    """No false out-of-order, no double work, whoever takes the next message."""
    given = Given()
    a, b = given.worker("a"), given.worker("b")
    for position in range(1, 13):
        given.send(position)
        report = turn(a if position % 3 else b)
        assert report.counts["accepted"] == 1
    a.close()
    b.close()
    assert sorted(given.accepted()) == list(range(1, 13))
    assert given.rows("rejected") == []
    assert given.is_settled()


def test_s03_the_same_message_again_is_a_safe_duplicate() -> None:
    """Acknowledged, counted, and no work for anything downstream."""
    given = Given()
    worker = given.worker("a")
    given.send(1, 2)
    drain(worker)
    given.send(1, 2)
    report = drain(worker)
    assert report.counts == {"received": 2, "safe_duplicate": 2}
    assert report.sealed == []
    assert given.accepted() == [1, 2]
    assert given.is_settled()


def test_s04_the_same_identity_with_other_content_is_suspicious() -> None:
    """Quarantined with diagnostics that name no row data; the state is untouched."""
    given = Given()
    worker = given.worker("a")
    given.send(1, 2)
    drain(worker)
    before = given.state.stream("mock", stream_of(0))
    given.send(1, value="something else")
    assert drain(worker).counts["rejected.suspicious_duplicate"] == 1
    (row,) = given.rows("rejected")
    assert row["identity"] in row["detail"]
    assert "something else" not in row["detail"]
    assert b"something else" in row["body"]
    assert given.state.stream("mock", stream_of(0)) == before
    assert given.is_settled()


def test_s04_another_change_at_a_taken_sequence_is_suspicious() -> None:
    """A dense counter is given once: another row at the same number is a conflict, not a sibling."""
    given = Given()
    worker = given.worker("a")
    given.send(1, 2)
    drain(worker)
    given.send(2, key=77)
    drain(worker)
    assert given.reasons() == ["suspicious_duplicate"]
    assert given.accepted() == [1, 2]


@pytest.mark.parametrize(
    ("policy", "accepted", "reasons", "is_held"),
    [
        ("quarantine", [1, 3, 4], ["out_of_order"], False),
        ("accept", [1, 3, 2, 4], [], False),
        ("hold", [1, 3], [], True),
    ],
)
def test_s05_an_older_position_after_a_newer_one(
    policy: str,
    accepted: list[int],
    reasons: list[str],
    is_held: bool,  # noqa: FBT001 a column of the table
) -> None:
    """By policy: refused with the reason, let in with a flag, or the stream is held from there on."""
    given = Given(out_of_order=policy)
    worker = given.worker("a")
    given.send(1, 3)
    drain(worker)
    given.send(2)
    drain(worker)
    assert given.committed() == 3
    given.send(4)
    drain(worker)
    assert given.accepted() == accepted
    assert given.reasons() == reasons
    record = given.state.stream("mock", stream_of(0))
    assert record is not None
    assert bool(record.hold) is is_held
    assert [row["flag"] for row in given.rows("accepted") if row["flag"] == "out_of_order"] == ["out_of_order"] * (
        policy == "accept"
    )
    assert given.is_settled()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("policy", "accepted", "rejected", "parked"),
    [("accept", [1, 2, 5, 6], 0, 0), ("quarantine", [1, 2], 2, 0), ("hold", [1, 2], 0, 2)],
)
def test_s06_positions_skip(workers: int, policy: str, accepted: list[int], rejected: int, parked: int) -> None:
    """By policy, and the same on every worker."""
    given = Given(gap=policy)
    pool = [given.worker(f"w{number}") for number in range(workers)]
    for number, position in enumerate((1, 2, 5, 6)):
        given.send(position)
        turn(pool[number % workers])
    assert sorted(given.accepted()) == accepted
    assert [row["flag"] for row in given.rows("accepted")].count("gap") == (1 if policy == "accept" else 0)
    assert given.reasons() == ["gap_detected"] * rejected
    assert len(given.rows("parked")) == parked


@pytest.mark.parametrize("is_sealed", [True, False])
def test_s10_a_duplicate_beyond_the_window_is_answered_from_durable_records(
    is_sealed: bool,  # noqa: FBT001 a column of the table
) -> None:
    """Never silently accepted, never called late: with its own content safe, with another suspicious."""
    given = Given(age_seconds=1e6)
    worker = given.worker("a")
    given.send(1, 2, 3)
    (drain if is_sealed else turn)(worker)
    given.clock.sleep(AN_HOUR_AND_MORE)
    worker.intake.tenure.beat()
    given.send(1, 3)
    given.send(2, value="another")
    report = turn(worker)
    assert report.counts["safe_duplicate"] == 2
    assert report.counts["rejected.suspicious_duplicate"] == 1
    assert given.accepted() == [1, 2, 3]
    assert given.is_settled()


def test_s10_a_change_that_was_never_taken_is_out_of_order_beyond_the_window() -> None:
    """The durable records do not know it: the policy decides, and it is not lost."""
    given = Given()
    worker = given.worker("a")
    given.send(1, 3)
    drain(worker)
    given.clock.sleep(AN_HOUR_AND_MORE)
    given.send(2)
    drain(worker)
    assert given.reasons() == ["out_of_order"]


def test_s15_a_quiet_streams_batch_closes_by_age() -> None:
    """Not before its age, and within a turn after it."""
    given = Given(age_seconds=10.0)
    worker = given.worker("a")
    given.send(1)
    assert turn(worker).sealed == []
    given.clock.sleep(9.0)
    assert turn(worker).sealed == []
    given.clock.sleep(1.0)
    assert [batch.close_reason for batch in turn(worker).sealed] == [CloseReason.AGE]


def test_s16_many_stores_fill_batches_of_many_lanes() -> None:
    """Each lane holds one stream only, in order; one round takes many streams."""
    given = Given(records_max=100)
    workers = [given.worker(f"w{number}") for number in range(2)]
    for position in range(1, 4):
        for store in range(40):
            given.send(position, store=store)
    for ticker in workers * 3:
        turn(ticker)
    for ticker in workers:
        drain(ticker)
    assert given.is_settled()
    assert all(sorted(given.accepted(store)) == [1, 2, 3] for store in range(40))
    assert all(not batch.held for batch in given.batches())
    assert max(len(batch.lanes) for batch in given.batches()) == 40


def test_s17_a_hot_store_does_not_starve_quiet_ones() -> None:
    """A queue gives at most ten of a group at a time: the quiet stores are through before the hot one's rest."""
    given = Given()
    worker = given.worker("a")
    given.send(*range(1, 101), store=0)
    for store in range(1, 6):
        given.send(1, store=store)
    turn(worker)
    first_round = given.rows("accepted")
    assert {row["stream"] for row in first_round} == {stream_of(store) for store in range(6)}
    drain(worker)
    assert given.accepted(0) == list(range(1, 101))
    hottest = max((lane for batch in given.batches() for lane in batch.lanes), key=lambda lane: lane.changes)
    assert hottest.stream == stream_of(0)
