"""Python's garbage collector rests during a round, and only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from unittest import mock

import pytest

from kds_cdc_dagster.errors import StateUnavailable
from kds_cdc_dagster_tests.intake.given import Given, drain


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    """The collector is on before and after each test, whatever the test does."""
    gc.enable()
    yield
    gc.enable()


@pytest.mark.parametrize("is_on", [True, False])
def test_a_round_leaves_the_collector_as_it_was(*, is_on: bool) -> None:
    """A process that has turned it off for reasons of its own finds it off."""
    given = Given()
    worker, real, seen = given.worker("a"), given.state.decide, []
    given.send(1)
    if not is_on:
        gc.disable()
    with mock.patch.object(given.state, "decide", lambda *args: (seen.append(gc.isenabled()), real(*args))[1]):
        drain(worker)
    assert seen == [False]
    assert gc.isenabled() is is_on


def test_a_round_that_is_given_up_turns_the_collector_on_again() -> None:
    """Else a process whose state store was down once would grow for ever."""
    given = Given()
    worker = given.worker("a")
    drain(worker)
    given.send(1)
    with mock.patch.object(given.state, "decide", side_effect=StateUnavailable("down")) as asked:
        drain(worker)
    assert asked.called
    assert gc.isenabled()
