"""When a tick that hands on at its end seals, and when it ends: nothing waits without need, backlog grows batches."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from kds_cdc_dagster.core.batch import CloseReason
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.intake.collect import DirectCollector, RoundLimits
from kds_cdc_dagster.intake.tick import BACKLOG_BATCHES, Ticker, TickReport
from kds_cdc_dagster.journal import keys, outbox
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster_tests.intake.given import Given

BUDGET_SECONDS, AGAIN_SECONDS, AGE_SECONDS = 9.0, 14.0, 20.0
BATCH = 3


@pytest.fixture
def given() -> Given:
    """An empty pipeline: a batch holds three records, thirty under backlog."""
    found = Given(records_max=BATCH, age_seconds=AGE_SECONDS)
    found._batch = msgspec.structs.replace(found._batch, records_backlog_max=10 * BATCH)
    return found


def _tick(ticker: Ticker, *, again_seconds: float = AGAIN_SECONDS) -> TickReport:
    return ticker.tick(budget_seconds=BUDGET_SECONDS, wait_seconds=1.0, again_seconds=again_seconds)


def _load_is_behind(given: Given) -> None:
    for number in range(BACKLOG_BATCHES):
        outbox.announce(given.store, keys.batch_id(SegmentId("earlier", number + 1)))


def test_a_full_batch_ends_the_tick_that_hands_it_on(given: Given) -> None:
    """It does not wait for the tick's budget; a worker, which hands nothing on, uses all of it."""
    given.send(1, 2, 3)
    handing_on = _tick(given.worker("w"))
    assert [m.close_reason for m in handing_on.sealed] == [CloseReason.COUNT]
    assert handing_on.seconds < 1.0
    given.send(4, 5, 6)
    assert _tick(given.worker("v"), again_seconds=0.0).seconds >= BUDGET_SECONDS


def test_a_batch_that_comes_of_age_before_the_next_tick_ends_is_sealed_by_this_one(given: Given) -> None:
    """9 s old at the end of the tick, and 14 s until the next one ends: it would be 23 s old. A worker waits."""
    given.send(1)
    assert [m.close_reason for m in _tick(given.worker("w")).sealed] == [CloseReason.AGE]
    given.send(2)
    assert _tick(given.worker("v"), again_seconds=0.0).sealed == []


def test_a_young_batch_stays_open_over_ticks(given: Given) -> None:
    """Where the next tick ends in time, it seals: a batch is not cut for every tick."""
    given.send(1)
    assert _tick(given.worker("w"), again_seconds=AGE_SECONDS - BUDGET_SECONDS - 1.0).sealed == []


def test_while_the_load_is_behind_a_batch_grows_over_count_and_age(given: Given) -> None:
    """Two batches wait for their runs: a third one now would only wait, too, so it takes more in."""
    _load_is_behind(given)
    worker = given.worker("w")
    given.send(*range(1, 5 * BATCH))
    assert _tick(worker).sealed == []
    for batch in list(outbox.waiting(given.store)):
        given.store.create(keys.done(batch), b"{}")  # loaded, though no tick has looked since
    (batch,) = _tick(worker).sealed
    assert batch.accepted == 5 * BATCH - 1


def test_a_deep_queue_makes_bigger_batches(given: Given) -> None:
    """More messages wait than fill a batch: one of 30 and one of what is left, not ten of three."""
    given.send(*range(1, 10 * BATCH + 6))
    worker = given.worker("w")
    sealed = [*_tick(worker).sealed, *_tick(worker).sealed]
    assert [m.accepted for m in sealed] == [10 * BATCH, 5]


# --- how long a tick takes ------------------------------------------------------------------------

BACKLOG_SECONDS, ROUND_SECONDS = 17.0, 2.0


def _slow_worker(given: Given, messages: int) -> Ticker:
    """A worker before so many messages, of whose rounds each brings ten and takes two seconds."""
    given.send(*range(1, messages + 1))
    ticker, clock = given.worker("w"), given.clock
    take = ticker.intake.round

    def round_(deliveries: Sequence[Delivery]) -> dict[str, int]:
        clock.sleep(ROUND_SECONDS)
        return take(deliveries)

    ticker.intake.round = round_  # type: ignore[method-assign]
    ticker._collector = DirectCollector(ticker.intake.ports.inbox, clock, RoundLimits(10, 1 << 30, 0.0))
    return ticker


def _long_tick(ticker: Ticker) -> TickReport:
    return ticker.tick(
        budget_seconds=BUDGET_SECONDS,
        wait_seconds=1.0,
        again_seconds=AGAIN_SECONDS,
        backlog_seconds=BACKLOG_SECONDS,
    )


def test_a_deep_queue_lengthens_the_tick(given: Given) -> None:
    """The pause between two ticks is paid less often: eight rounds of two seconds instead of four."""
    report = _long_tick(_slow_worker(given, 199))
    assert (report.rounds, report.seconds) == (8, 8 * ROUND_SECONDS)


def test_a_tick_is_no_longer_than_ever_once_the_queue_is_no_longer_deep(given: Given) -> None:
    """Fewer messages than fill a batch are left after four rounds: the next tick takes them."""
    report = _long_tick(_slow_worker(given, 4 * 10 + BATCH - 1))
    assert (report.rounds, report.seconds) == (4, 4 * ROUND_SECONDS)


def test_a_load_that_is_behind_does_not_lengthen_the_tick(given: Given) -> None:
    """What waits for its run is not taken in any faster."""
    _load_is_behind(given)
    assert BUDGET_SECONDS <= _long_tick(given.worker("w")).seconds < BUDGET_SECONDS + 1.0


def test_no_round_begins_that_would_end_after_the_budget(given: Given) -> None:
    """The daemon looks every five seconds: a tick that ends a little late is followed by a long pause."""
    report = _tick(_slow_worker(given, 199))
    assert (report.rounds, report.seconds) == (4, 4 * ROUND_SECONDS)


def test_a_round_longer_than_the_budget_is_begun_all_the_same(given: Given) -> None:
    """Every tick makes progress, however slow the last one's rounds were."""
    worker = _slow_worker(given, 39)
    for _ in range(2):
        assert worker.tick(budget_seconds=1.0, wait_seconds=1.0).rounds == 1
