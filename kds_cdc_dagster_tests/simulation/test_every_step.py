"""S07, S13, S27: something happens at every single step of a worker's life, one run per step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from unittest import mock

import pytest

from kds_cdc_dagster.intake import adoption
from kds_cdc_dagster_tests.simulation.baton import Actor
from kds_cdc_dagster_tests.simulation.calm import settle_down
from kds_cdc_dagster_tests.simulation.checks import findings
from kds_cdc_dagster_tests.simulation.codec import quick_segments
from kds_cdc_dagster_tests.simulation.plan import focused
from kds_cdc_dagster_tests.simulation.ports import Steps
from kds_cdc_dagster_tests.simulation.schedule import send
from kds_cdc_dagster_tests.simulation.site import DEAD_AFTER_SECONDS, VISIBILITY_SECONDS, Site
from kds_cdc_dagster_tests.simulation.traffic import Wire
from kds_cdc_dagster_tests.simulation.workers import counted_tokens, ticker_of

STEPS_AT_LEAST = 25
"""Fewer would mean that the walk does not go through a whole round, seal and end."""


class EveryStep(Steps):
    """Pauses before reads, too."""

    def glance(self, where: str) -> None:
        self.pause(where)


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    with quick_segments(), counted_tokens():
        yield


def site() -> Site:
    """Two streams with a few messages each, one of them repeated, and no faults but the test's."""
    made = Site(focused(2, frozenset()))
    for number, (stream, position) in enumerate([("s0", 1), ("s1", 1), ("s0", 2), ("s1", 2), ("s0", 2), ("s0", 3)], 1):
        send(made, Wire(number, "change", "dense", stream, 1, "u", position, position), is_regular=True)
    return made


def life(made: Site, name: str) -> Actor:
    """A worker that takes everything in, seals and ends cleanly."""

    def body(actor: Actor) -> None:
        ticker = ticker_of(made, name, EveryStep(made, actor))
        ticker.tick(budget_seconds=100.0, wait_seconds=0.0, is_draining=True)
        ticker.close()

    return Actor(name, body)


def walk(at_step: Callable[[Site, Actor], None]) -> int:
    """Run lives, stopping each one step later than the last, until one ends undisturbed; how many steps it had."""
    for steps in count(1):
        made = site()
        actor = life(made, "a")
        for _ in range(steps):
            if not actor.is_over:
                actor.step()
        is_whole = actor.is_over
        at_step(made, actor)
        actor.crash()
        settle_down(made, worker="calm")
        assert actor.failure is None
        assert made.findings + findings(made) == [], f"at step {steps}, before {actor.where}"
        if is_whole:
            return steps
    raise AssertionError("a life does not end")


def go_on(actor: Actor) -> None:
    """Let it run to its end."""
    while not actor.is_over:
        actor.step()


def test_s27_crash_at_every_step() -> None:
    """Nothing is lost, nothing doubled, everything is sealed once."""
    assert walk(lambda _made, actor: actor.crash()) > STEPS_AT_LEAST


def forget_what_is_durable(made: Site, actor: Actor) -> None:
    """It dies, and the queue's retention ends for what it had made durable: no redelivery will tell of it."""
    actor.crash()
    receipts = {receipt: found.message_id for receipt, found in made.witness._deliveries.items()}
    made.queue.acknowledge([receipt for receipt, message_id in receipts.items() if made.witness.is_covered(message_id)])


def test_s27_adoption_alone_settles_what_a_dead_worker_left() -> None:
    """At every step. Without its settle, streams would stay behind their own journal."""
    assert walk(forget_what_is_durable) > STEPS_AT_LEAST
    with mock.patch.object(adoption, "settle"), pytest.raises(AssertionError, match="committed"):
        walk(forget_what_is_durable)


@pytest.mark.parametrize("seconds", [VISIBILITY_SECONDS + 1, DEAD_AFTER_SECONDS + 1])
def test_s13_a_zombie_from_every_step(seconds: float) -> None:
    """Others take its messages (and, after longer, its log) over; then it goes on to its end."""

    def overtake(made: Site, actor: Actor) -> None:
        made.clock.sleep(seconds)
        go_on(life(made, "b"))
        go_on(actor)

    assert walk(overtake) > STEPS_AT_LEAST


def test_s07_two_workers_meet_at_every_step() -> None:
    """Both have the same messages; from this step on they take turns. One valid outcome, no lost update."""

    def meet(made: Site, actor: Actor) -> None:
        made.clock.sleep(VISIBILITY_SECONDS + 1)
        other = life(made, "b")
        while not (actor.is_over and other.is_over):
            for one in (actor, other):
                if not one.is_over:
                    one.step()

    assert walk(meet) > STEPS_AT_LEAST


def test_s09_the_state_is_emptied_at_every_step() -> None:
    """It is rebuilt before anything is decided; every other promise stands."""

    def flush(made: Site, actor: Actor) -> None:
        made.state.forget_everything()
        made.began_at -= 1e6  # hot state was lost: one change may lie in two segments
        go_on(actor)

    assert walk(flush) > STEPS_AT_LEAST


def test_s14_a_worker_joins_at_every_step() -> None:
    """A second worker takes other streams meanwhile: no false duplicates, nothing out of order."""

    def join(made: Site, actor: Actor) -> None:
        send(made, Wire(50, "change", "dense", "s2", 1, "u", 1, 1), is_regular=True)
        go_on(life(made, "b"))
        go_on(actor)

    assert walk(join) > STEPS_AT_LEAST


def test_s09_a_rebuild_is_taken_over_at_every_step() -> None:
    """Whoever dies in a rebuild, the next worker waits for the lease and rebuilds; nothing is accepted before."""
    for steps in count(1):
        made = site()
        go_on(life(made, "a"))
        made.state.forget_everything()
        made.began_at -= 1e6  # hot state was lost: one change may lie in two segments
        send(made, Wire(60, "change", "dense", "s0", 1, "u", 4, 4), is_regular=True)
        rebuilder = life(made, "b")
        for _ in range(steps):
            if not rebuilder.is_over:
                rebuilder.step()
        is_whole = rebuilder.is_over
        go_on(life(made, "c"))  # at once: it waits, or finds the life finished
        is_waiting = made.state.life() is None
        rebuilder.crash()
        assert not (is_waiting and is_whole)
        settle_down(made, worker="calm")
        assert made.findings + findings(made) == [], f"at step {steps}, before {rebuilder.where}"
        if is_whole:
            return


def test_s09_of_workers_that_meet_in_a_rebuild_one_rebuilds() -> None:
    """They take turns from every step on; one life is begun, not one each."""
    for steps in count(1):
        made = site()
        first, others = life(made, "a"), [life(made, "b"), life(made, "c")]
        for _ in range(steps):
            if not first.is_over:
                first.step()
        is_whole = first.is_over
        while not all(one.is_over for one in (first, *others)):
            for one in (first, *others):
                if not one.is_over:
                    one.step()
        settle_down(made, worker="calm")
        assert made.state.life().startswith("00000001-"), "the first life that was begun is the one that lives"
        assert made.findings + findings(made) == [], f"at step {steps}"
        if is_whole:
            return
