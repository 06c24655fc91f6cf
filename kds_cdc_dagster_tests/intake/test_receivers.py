"""The receive pump: bounded, quiet when not wanted, and clean at the end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest

from kds_cdc_dagster.core.backoff import Backoff
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.errors import SettingsError, TransientError
from kds_cdc_dagster.intake.collect import Collector, RoundLimits
from kds_cdc_dagster.intake.receivers import PumpPolicy, ReceivePump
from kds_cdc_dagster_tests.intake.scripted_inbox import ScriptedInbox

LIMITS = RoundLimits(records_max=1000, bytes_max=1 << 20, linger_seconds=0.2)
POLICY = PumpPolicy(receivers=1, wait_seconds=0.3, backoff=Backoff(first_seconds=0.01, longest_seconds=0.02))


@pytest.fixture
def pumps() -> Iterator[list[ReceivePump]]:
    """Pumps to close at the end of the test."""
    opened: list[ReceivePump] = []
    yield opened
    for pump in opened:
        pump.close()


def changed(**fields: object) -> PumpPolicy:
    """The policy of these tests with other fields."""
    return PumpPolicy(**{name: getattr(POLICY, name) for name in PumpPolicy.__slots__} | fields)  # type: ignore[arg-type]


def eventually(is_true: Callable[[], object]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + 5
    while not is_true():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.002)


def receipts(deliveries: Sequence[Delivery]) -> list[str]:
    """Their handles."""
    return [one.receipt for one in deliveries]


def test_it_is_a_collector(pumps: list[ReceivePump]) -> None:
    """The ticker takes it in place of the direct one."""
    collector: Collector = ReceivePump(ScriptedInbox(3), LIMITS, POLICY)
    pumps.append(collector)  # type: ignore[arg-type]
    assert receipts(collector.collect(1.0)) == ["r0", "r1", "r2"]


def test_nothing_is_received_before_the_first_collect() -> None:
    """Making a pump opens nothing and starts no thread."""
    inbox = ScriptedInbox(1)
    threads = threading.active_count()
    ReceivePump(inbox, LIMITS, POLICY)
    assert (inbox.calls, threading.active_count()) == (Counter(), threads)


def test_a_partly_filled_receive_is_not_kept_waiting(pumps: list[ReceivePump]) -> None:
    """Fewer than ten: no more is waiting, so the round goes at once and not after its linger."""
    pumps.append(pump := ReceivePump(ScriptedInbox(3), RoundLimits(1000, 1 << 20, 5.0), POLICY))
    started = time.monotonic()
    assert len(pump.collect(5.0)) == 3
    assert time.monotonic() - started < 1


def test_full_receives_are_gathered_into_one_round(pumps: list[ReceivePump]) -> None:
    """10 + 10 + 4 come as one round of 24, in the order received."""
    pumps.append(pump := ReceivePump(ScriptedInbox(10, 10, 4), LIMITS, POLICY))
    assert receipts(pump.collect(1.0)) == [f"r{n}" for n in range(24)]


@pytest.mark.parametrize("limits", [RoundLimits(20, 1 << 20, 5.0), RoundLimits(1000, 40, 5.0)])
def test_a_round_ends_at_its_records_or_bytes(pumps: list[ReceivePump], limits: RoundLimits) -> None:
    """Twenty messages of two bytes: either bound ends the round there, and the rest is the next one's."""
    pumps.append(pump := ReceivePump(ScriptedInbox(10, 10, 10, 5), limits, POLICY))
    assert [len(pump.collect(1.0)), len(pump.collect(1.0))] == [20, 15]


def test_an_empty_queue_is_an_empty_round_after_the_wait(pumps: list[ReceivePump]) -> None:
    """Nothing comes: nothing is returned, no earlier than asked."""
    pumps.append(pump := ReceivePump(ScriptedInbox(), LIMITS, POLICY))
    started = time.monotonic()
    assert pump.collect(0.1) == []
    assert 0.1 <= time.monotonic() - started < 1


@pytest.mark.parametrize(
    ("body", "policy"), [(b"{}", changed(records_max=40)), (b"x" * 1000, changed(bytes_max=30_000))]
)
def test_the_buffer_is_bounded_by_count_and_bytes(pumps: list[ReceivePump], body: bytes, policy: PumpPolicy) -> None:
    """With nobody taking, receives stop at the bound; after a collect they go on."""
    inbox = ScriptedInbox(*[10] * 50, body=body)
    pumps.append(pump := ReceivePump(inbox, RoundLimits(10, 1 << 20, 0.0), policy))
    assert len(pump.collect(1.0)) == 10
    eventually(lambda: inbox.calls["receive"] >= 4)
    time.sleep(0.05)
    before = inbox.calls["receive"]
    assert before * 10 - 10 <= 40
    pump.collect(1.0)
    eventually(lambda: inbox.calls["receive"] > before)


def test_receivers_count_their_polls_under_way_against_the_bound(pumps: list[ReceivePump]) -> None:
    """Eight receivers and room for thirty: no more than three poll at once."""
    inbox = ScriptedInbox()
    pumps.append(pump := ReceivePump(inbox, LIMITS, changed(receivers=8, records_max=30, wait_seconds=5.0)))
    pump.collect(0.1)
    assert inbox.calls["receive"] == 3
    inbox.gate.set()


def test_between_ticks_the_queue_is_left_alone(pumps: list[ReceivePump]) -> None:
    """When nobody has collected for a while no receive starts; the next collect wakes the receivers."""
    inbox = ScriptedInbox(5)
    pumps.append(pump := ReceivePump(inbox, LIMITS, changed(wanted_seconds=0.05, wait_seconds=0.05)))
    assert len(pump.collect(1.0)) == 5
    time.sleep(0.2)
    before = inbox.calls["receive"]
    time.sleep(0.2)
    assert inbox.calls["receive"] == before
    inbox.script.append(7)
    assert len(pump.collect(1.0)) == 7


def test_what_grew_old_in_the_buffer_is_given_back(pumps: list[ReceivePump]) -> None:
    """Deliveries near the end of their visibility are released, never handed out."""
    now = [0.0]
    inbox = ScriptedInbox(10, 10, 10)
    pumps.append(
        pump := ReceivePump(inbox, RoundLimits(10, 1 << 20, 0.0), changed(age_max_seconds=20.0), now=lambda: now[0])
    )
    assert receipts(pump.collect(1.0)) == [f"r{n}" for n in range(10)]
    eventually(lambda: pump._records == 30)
    now[0] = 20.5
    inbox.gate.set()
    assert pump.collect(0.2) == []
    assert inbox.released == [f"r{n}" for n in range(10, 30)]


def test_an_error_is_raised_once_and_the_receiver_goes_on(pumps: list[ReceivePump]) -> None:
    """First what was received, then the error, then what came after it."""
    inbox = ScriptedInbox(2, TransientError("queue away"), 3)
    pumps.append(pump := ReceivePump(inbox, LIMITS, POLICY))
    assert len(pump.collect(1.0)) == 2
    eventually(lambda: pump._error)
    inbox_answers: list[int | str] = []
    for _ in range(2):
        try:
            inbox_answers.append(len(pump.collect(1.0)))
        except TransientError as error:
            inbox_answers.append(error.what)
    assert sorted(map(str, inbox_answers)) == ["3", "queue away"]
    assert pump.collect(0.05) == []


def test_errors_of_many_receivers_are_one_error(pumps: list[ReceivePump]) -> None:
    """Eight receivers failing together do not make the committer stumble eight times."""
    inbox = ScriptedInbox(*[TransientError("queue away") for _ in range(8)])
    slow = Backoff(first_seconds=5.0, longest_seconds=5.0)
    pumps.append(pump := ReceivePump(inbox, LIMITS, changed(receivers=8, backoff=slow)))
    pump._start()
    pump._wanted_until = float("inf")
    with pump._changed:
        pump._changed.notify_all()
    eventually(lambda: inbox.calls["receive"] == 8)
    with pytest.raises(TransientError, match="queue away"):
        pump.collect(1.0)
    assert pump.collect(0.05) == []


def test_an_error_that_does_not_pass_ends_the_pump_and_stays(pumps: list[ReceivePump]) -> None:
    """Wrong settings: every collect says so, and nobody keeps asking the queue."""
    inbox = ScriptedInbox(SettingsError("no such queue"), 5)
    pumps.append(pump := ReceivePump(inbox, LIMITS, POLICY))
    for _ in range(3):
        with pytest.raises(SettingsError, match="no such queue"):
            pump.collect(1.0)
    assert inbox.calls["receive"] == 1


@pytest.mark.parametrize("is_failing", [True, False])
def test_failures_and_quick_empty_answers_do_not_spin(pumps: list[ReceivePump], *, is_failing: bool) -> None:
    """A down queue, or one at its in-flight cap that answers at once, is asked with growing pauses."""
    script = [TransientError("queue away") for _ in range(500)] if is_failing else []
    inbox = ScriptedInbox(*script)
    inbox.is_silent_cap = True
    pauses = Backoff(first_seconds=0.02, longest_seconds=0.5)
    pumps.append(pump := ReceivePump(inbox, LIMITS, changed(backoff=pauses, wait_seconds=20.0)))
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        try:
            pump.collect(deadline - time.monotonic())
        except TransientError:
            continue
    assert 3 <= inbox.calls["receive"] <= 8


def test_sqs08_stopping_lets_polls_finish_and_hands_over_what_they_bring() -> None:
    """A ticket that comes after stop began is in the caller's hands, not in the dark."""
    inbox = ScriptedInbox()
    pump = ReceivePump(inbox, LIMITS, changed(wait_seconds=5.0))
    pump.collect(0.05)
    left: list[Delivery] = []
    stopping = threading.Thread(target=lambda: left.extend(pump.stop()))
    stopping.start()
    eventually(lambda: pump._is_stopping)
    inbox.script.append(3)
    inbox.gate.set()
    stopping.join(5)
    assert receipts(left) == ["r0", "r1", "r2"]
    assert inbox.released == []
    assert pump.collect(0.05) == []


def test_sqs08_closing_releases_what_was_not_handed_out() -> None:
    """The buffer goes back to the queue, in order, and all threads have ended."""
    inbox = ScriptedInbox(10, 10, 4)
    pump = ReceivePump(inbox, RoundLimits(10, 1 << 20, 0.0), POLICY)
    pump.collect(1.0)
    eventually(lambda: pump._records >= 14)
    pump.close()
    assert inbox.released == [f"r{n}" for n in range(10, 24)]
    assert not any(thread.is_alive() for thread in pump._threads)


def test_sqs08_a_poll_that_outlasts_the_stop_gives_back_by_itself() -> None:
    """Stopping is bounded; what the straggler brings later is released by its own thread."""
    inbox = ScriptedInbox()
    pump = ReceivePump(inbox, LIMITS, changed(wait_seconds=5.0, stop_seconds=0.05))
    pump.collect(0.05)
    started = time.monotonic()
    assert pump.stop() == []
    assert time.monotonic() - started < 1
    inbox.script.append(2)
    inbox.gate.set()
    eventually(lambda: inbox.released == ["r0", "r1"])
