"""S32: a stream is held, parked, and released in order, whatever dies in between."""

from __future__ import annotations

from kds_cdc_dagster.intake.release import park_stream, release_stream
from kds_cdc_dagster.journal import parked
from kds_cdc_dagster_tests.intake.given import DEAD_AFTER_SECONDS, Given, drain, dying, stream_of, turn


def always(*_: object) -> bool:
    """At the first such call."""
    return True


def test_s32_a_poison_stream_is_held_and_released_in_order() -> None:
    """Its messages are parked and acknowledged, others flow; released, they are taken in in order and counted."""
    given = Given(gap="hold")
    worker = given.worker("a")
    given.send(1, 3, 4, store=0)
    given.send(1, 2, store=1)
    drain(worker)
    given.send(5, store=0)
    given.send(3, store=1)
    drain(worker)
    assert given.queue.depth().is_empty
    assert given.accepted(0) == [1]
    assert given.accepted(1) == [1, 2, 3]
    counts = release_stream(worker.intake, "mock", stream_of(0))
    assert counts == {"release.received": 3, "release.accepted": 3}
    assert given.accepted(0) == [1, 3, 4, 5]
    assert parked.outstanding(given.store, "mock", stream_of(0)) == []
    given.send(6, store=0)
    drain(worker)
    assert given.accepted(0) == [1, 3, 4, 5, 6]
    assert given.is_settled()


def test_s32_a_hold_by_hand_outlives_the_state_store() -> None:
    """The pointer in the object store is the truth: after a flush the stream is still held, and can be held again."""
    given = Given()
    worker = given.worker("a")
    for last in (2, 4):
        park_stream(worker.intake, "mock", stream_of(0), "looks wrong")
        given.state.forget_everything()
        given.send(last - 1, last)
        drain(worker)
        assert sorted(given.accepted()) == list(range(1, last - 1))
        release_stream(worker.intake, "mock", stream_of(0))
        assert sorted(given.accepted()) == list(range(1, last + 1))
    assert given.is_settled()


def test_s32_what_was_parked_before_a_crash_is_held_after_a_flush() -> None:
    """The worker died between its segment and the pointer, and the state was emptied: the rebuild finds it."""
    given = Given(gap="hold")
    given.send(1, 3)
    with dying(given.state, "settle", always, is_done=False):
        drain(given.worker("a"))
    given.state.forget_everything()
    given.reappear()
    given.send(4)
    b = given.worker("b")
    drain(b)
    assert given.accepted() == [1]
    release_stream(b.intake, "mock", stream_of(0))
    assert sorted(given.accepted()) == [1, 3, 4]
    assert given.is_settled()


def test_s32_a_repeated_settle_does_not_park_again_what_was_released() -> None:
    """The log of the worker that parked is adopted after the release: nothing waits anew."""
    given = Given(gap="hold", age_seconds=1e6)
    a, b = given.worker("a"), given.worker("b")
    given.send(1, 3)
    turn(a)
    release_stream(b.intake, "mock", stream_of(0))
    given.clock.sleep(DEAD_AFTER_SECONDS + 1)
    drain(b)
    assert parked.outstanding(given.store, "mock", stream_of(0)) == []
    given.state.forget_everything()
    given.send(4)
    drain(b)
    assert sorted(given.accepted()) == [1, 3, 4]
    assert given.is_settled()


def test_s32_a_message_that_comes_while_its_stream_is_released_is_not_overtaken() -> None:
    """Something is parked after the release looked: the hold ends only when that was taken in, too."""
    given = Given(gap="hold")
    a, b = given.worker("a"), given.worker("b")
    given.send(1, 3)
    drain(a)
    given.send(4)
    real = given.state.unhold

    def raced(*arguments: object) -> bool:
        given.state.unhold = real
        drain(b)
        return real(*arguments)

    given.state.unhold = raced
    counts = release_stream(a.intake, "mock", stream_of(0))
    assert counts["release.accepted"] == 2
    assert sorted(given.accepted()) == [1, 3, 4]
    assert given.is_settled()


def test_s32_a_hold_between_two_turns_of_a_decision_keeps_the_order() -> None:
    """A late change was declared new, and its stream is held before the decision is repeated: nothing overtakes it."""
    given = Given(out_of_order="accept")
    worker = given.worker("a")
    given.send(1, 5)
    turn(worker)
    given.send(3, 6)
    real = given.state.decide
    turns = 0

    def raced(life: str, calls: object) -> object:
        nonlocal turns
        turns += 1
        if turns == 2:
            given.state.hold(life, "mock", stream_of(0), "by hand")
        return real(life, calls)

    given.state.decide = raced
    assert "held while its decision" in turn(worker).failure
    drain(worker)
    assert sorted(given.accepted()) == [1, 5]
    assert [row["sequence_number"] for row in given.rows("parked")] == sorted(
        row["sequence_number"] for row in given.rows("parked")
    )
    release_stream(worker.intake, "mock", stream_of(0))
    assert sorted(given.accepted()) == [1, 3, 5, 6]
    assert given.is_settled()
