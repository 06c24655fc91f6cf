"""The audit: silent about a sound pipeline, and loud, by name and number, about every kind of damage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from kds_cdc_dagster.intake.audit import audit
from kds_cdc_dagster.intake.count_log import write_counts
from kds_cdc_dagster.intake.release import release_stream
from kds_cdc_dagster.journal import claims, keys, segment
from kds_cdc_dagster_tests.intake.given import Given, drain, stream_of, turn


def sealed_batches() -> Given:
    """Two batches of two segments each, with duplicates, rejections and parked deliveries, and an open tail."""
    given = Given(gap="hold", age_seconds=1e6)
    worker = given.worker("a")
    for first in (1, 3):
        given.send(first, store=0)
        turn(worker)
        given.send(first + 1, store=0)
        given.send(1, store=1)
        given.send(body="not json", store=2)
        given.send(first, 7, store=3)
        drain(worker)
    given.send(5, store=0)
    turn(worker)
    return given


def rewritten(given: Given, number: int, **changes: object) -> str:
    """Damage the manifest of a batch; its id."""
    found = given.batches()[number]
    given.store.overwrite(keys.manifest(found.batch), msgspec.json.encode(msgspec.structs.replace(found, **changes)))
    return found.batch


def problems(given: Given) -> str:
    """What the audit says, a line each."""
    return "\n".join(audit(given.store).problems)


def test_a_sound_pipeline_has_no_problems() -> None:
    """Totals are those of the traffic; the unsealed tail is named, not blamed."""
    given = sealed_batches()
    report = audit(given.store)
    assert report.problems == []
    assert report.batches == 2
    assert (report.accepted_sealed, sum(report.accepted_unsealed.values())) == (6, 1)
    assert report.counts["received"] == 13
    assert report.counts["safe_duplicate"] == 1
    assert report.counts["rejected.unreadable"] == 2
    assert (report.counts["parked"], report.parked_outstanding, report.parked_released) == (3, 3, 0)
    assert "everything adds up" in report.text()
    assert msgspec.json.decode(report.json())["batches"] == 2


def test_released_reconciles_with_parked() -> None:
    """What was parked is outstanding or released; a release that is marked and did not happen is found."""
    given = sealed_batches()
    worker = given.worker("b")
    release_stream(worker.intake, "mock", stream_of(3))
    report = audit(given.store)
    assert report.problems == []
    assert (report.parked_outstanding, report.parked_released) == (0, 3)
    release = next(key for key in given.store.objects if key.startswith("journal/") and "-b-" in key)
    found = segment.decode(keys.segment_of(release), given.store.get(release))
    assert found is not None
    given.store.overwrite(release, segment.encode(found.rows.to_pydict(), {"accepted": 3, "received": 3}))
    assert "3 deliveries are marked as released and were not taken in" in problems(given)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accepted": 99}, "outcome accepted of the manifest is off by 95"),
        ({"counts": {"received": 1}}, "count accepted of the manifest is off by -"),
        ({"lanes": ()}, "lane ('mock', "),
        ({"slices": ()}, "slice ('acct-001', 'acct-001', 'kitchen_ticket') of the manifest is off by -"),
        ({"last_slot": 1}, "slots 2 to 2 of its log are in no batch"),
        ({"last_slot": 3}, "slots 3 to 3 of its log are in two batches"),
    ],
)
def test_a_manifest_that_disagrees_with_its_segments_is_named(changes: dict[str, object], said: str) -> None:
    """Which batch, what, and by how much."""
    given = sealed_batches()
    batch = rewritten(given, 0, **changes)
    found = problems(given)
    assert batch[:20] in found
    assert said in found


def test_a_missing_segment_is_named() -> None:
    """An object that was deleted by hand."""
    given = sealed_batches()
    first = next(given.batches()[1].segments)
    given.store.delete([keys.segment(first)])
    assert f"segment {first} is missing" in problems(given)


def test_counts_that_do_not_close_are_named() -> None:
    """A segment whose counts leave a delivery out, and an object of counts that does."""
    given = sealed_batches()
    first = next(given.batches()[0].segments)
    found = segment.read(given.store, first)
    assert found is not None
    counts = dict(found.counts) | {"received": 5, "accepted": 4}
    given.store.overwrite(keys.segment(first), segment.encode(found.rows.to_pydict(), counts))
    write_counts(given.store, "w", {"received": 3, "safe_duplicate": 1}, given.clock.now())
    report = problems(given)
    assert f"{first}: received and outcomes from the queue differ by 1" in report
    assert f"{first}: counts 4 accepted deliveries and holds 1" in report
    assert "an object of counts: received and outcomes from the queue differ by 2" in report


def test_segments_that_nobody_will_seal_are_named() -> None:
    """The log's heartbeat is gone, its tail is in no batch."""
    given = sealed_batches()
    (heartbeat,) = claims.open_claims(given.store)
    claims.forget(given.store, heartbeat.claim)
    assert f"{heartbeat.claim}: slots 5 to 5 are in no batch and the log is not open" in problems(given)


def test_parked_deliveries_without_a_pointer_are_named() -> None:
    """No release would find them."""
    given = sealed_batches()
    pointers = [key for key in given.store.objects if key.startswith("parked/")]
    given.store.delete(pointers)
    (heartbeat,) = claims.open_claims(given.store)
    claims.forget(given.store, heartbeat.claim)
    assert "can be found by no release" in problems(given)


def test_since_reads_no_older_history() -> None:
    """Manifests and counts from before are listed at most, their segments are never read."""
    given = sealed_batches()
    given.clock.sleep(3600.0)
    since = datetime.fromtimestamp(given.clock.now(), UTC) - timedelta(minutes=1)
    old = {keys.segment(id_) for batch in given.batches() for id_ in batch.segments}
    worker = given.worker("b")
    given.send(6, store=0)
    drain(worker)
    read: list[str] = []
    real = given.store.get

    def recorded(key: str) -> bytes:
        read.append(key)
        return real(key)

    given.store.get = recorded
    report = audit(given.store, since)
    assert report.problems == []
    assert report.batches >= 1
    assert not old & set(read)
