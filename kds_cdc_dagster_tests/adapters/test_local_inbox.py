"""The local FIFO queues: the contract, their look-ins, many processes, and sudden death."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kds_cdc_dagster.adapters.local_inbox import LocalQueue
from kds_cdc_dagster.adapters.memory_inbox import MemoryQueue
from kds_cdc_dagster.errors import SettingsError, TransientError
from kds_cdc_dagster.ports import Inbox, Message, Outbound
from kds_cdc_dagster_tests.contracts.clocks import ManualClock, WallClock
from kds_cdc_dagster_tests.contracts.inbox_suite import InboxSuite, QueueUnderTest, bodies, receipts

LookIn = LocalQueue | MemoryQueue


class TestMemoryQueueKeepsTheContract(InboxSuite):
    @pytest.fixture
    def queue(self) -> QueueUnderTest:
        clock = ManualClock()
        memory = MemoryQueue(clock=clock, visibility_seconds=30, dead_letter_after=3)
        peer = _Peer(memory)
        return QueueUnderTest(memory, peer, memory, 30, clock.sleep, is_virtual=True, dead_letter_after=3)


class _Peer(MemoryQueue):
    """A second worker of a memory queue: shares everything but `close`."""

    def __init__(self, other: MemoryQueue) -> None:
        self.__dict__.update(other.__dict__)


class TestLocalQueueKeepsTheContract(InboxSuite):
    @pytest.fixture
    def queue(self, tmp_path: Path) -> Iterator[QueueUnderTest]:
        clock = ManualClock()
        inbox, peer = (
            LocalQueue(tmp_path / "queue.db", clock=clock, visibility_seconds=30, dead_letter_after=3) for _ in range(2)
        )
        yield QueueUnderTest(inbox, peer, peer, 30, clock.sleep, is_virtual=True, dead_letter_after=3)
        inbox.close()
        peer.close()


class TestLocalQueueKeepsTheContractInRealTime(InboxSuite):
    @pytest.fixture
    def queue(self, tmp_path: Path) -> Iterator[QueueUnderTest]:
        inbox, peer = (LocalQueue(tmp_path / "queue.db", clock=WallClock(), visibility_seconds=0.5) for _ in range(2))
        yield QueueUnderTest(inbox, peer, peer, 0.5, time.sleep, is_virtual=False, dead_letter_after=10)
        inbox.close()
        peer.close()


@pytest.fixture
def clock() -> ManualClock:
    """Virtual time, shared with the fixture `queue`."""
    return ManualClock()


@pytest.fixture(params=["memory", "local"])
def queue(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[LookIn]:
    """A queue of 30 s visibility, two receives per message, at most 25 in flight."""
    limits = {"visibility_seconds": 30.0, "dead_letter_after": 2, "in_flight_max": 25}
    found: LookIn = (
        MemoryQueue(clock=clock, **limits)
        if request.param == "memory"
        else LocalQueue(tmp_path / "queue.db", clock=clock, **limits)
    )
    assert isinstance(found, Inbox)
    yield found
    found.close()


def _send(queue: Outbound, group: str, *texts: str) -> None:
    queue.send([Message(text, group, uuid.uuid4().hex) for text in texts])


def _poison(queue: LookIn, *groups: str) -> None:
    """Make one message of each group a dead letter."""
    for group in groups:
        _send(queue, group, f"poison {group}")
    for _ in range(2):
        queue.release(receipts(queue.receive(max_messages=10, wait_seconds=0)))
    assert queue.receive(max_messages=10, wait_seconds=0) == []


def test_the_group_that_waits_longest_is_served_first(queue: LookIn) -> None:
    """Fairness: oldest visible head first; a group gives what it has before the next one."""
    _send(queue, "hot", *[str(n) for n in range(13)])
    _send(queue, "quiet", "q")
    first = queue.receive(max_messages=10, wait_seconds=0)
    assert {d.group_id for d in first} == {"hot"}
    assert bodies(queue.receive(max_messages=10, wait_seconds=0)) == ["q"]
    _send(queue, "later", "l")
    queue.acknowledge(receipts(first))
    assert bodies(queue.receive(max_messages=10, wait_seconds=0)) == ["10", "11", "12", "l"]


def test_sqs05_at_the_in_flight_cap_receives_are_empty(queue: LookIn) -> None:
    """Full is an ordinary answer; acknowledging makes room."""
    for n in range(40):
        _send(queue, f"g{n}", str(n))
    sizes = [len(queue.receive(max_messages=10, wait_seconds=0)) for _ in range(4)]
    assert sizes == [10, 10, 5, 0]
    assert queue.depth().in_flight == 25


def test_extension_ends_twelve_hours_after_the_receive(queue: LookIn, clock: ManualClock) -> None:
    """However often a message is extended, the queue takes it back then."""
    _send(queue, "g", "a")
    held = receipts(queue.receive(max_messages=10, wait_seconds=0))
    for _ in range(13):
        queue.extend(held, 3660)
        clock.sleep(3600)
    assert queue.acknowledge(held).confirmed == frozenset()
    assert bodies(queue.receive(max_messages=10, wait_seconds=0)) == ["a"]


def test_acknowledging_twice_is_confirmed_twice(queue: LookIn) -> None:
    """Confirmed means gone; a retry after a lost reply learns the truth."""
    _send(queue, "g", "a")
    held = receipts(queue.receive(max_messages=10, wait_seconds=0))
    assert queue.acknowledge(held).confirmed == set(held)
    assert queue.acknowledge(held).confirmed == set(held)


def test_locked_groups_say_who_blocks_and_how_much_waits(queue: LookIn, clock: ManualClock) -> None:
    """SQS-01: empty receives over a backlog can be explained."""
    _send(queue, "b", *[str(n) for n in range(12)])
    _send(queue, "free", "f")
    queue.receive(max_messages=10, wait_seconds=0)
    (locked,) = queue.locked_groups()
    assert (locked.group_id, locked.in_flight, locked.waiting) == ("b", 10, 2)
    assert locked.locked_until == clock.now() + 30
    clock.sleep(31)
    assert queue.locked_groups() == []


def test_oldest_age_is_that_of_the_oldest_living_message(queue: LookIn, clock: ManualClock) -> None:
    """In flight counts too; an empty queue has no age."""
    assert queue.depth().oldest_age_seconds is None
    _send(queue, "g", "a")
    clock.sleep(5)
    _send(queue, "h", "b")
    clock.sleep(2)
    assert queue.depth().oldest_age_seconds == pytest.approx(7, abs=0.01)
    (a, _) = queue.receive(max_messages=10, wait_seconds=0)
    queue.acknowledge([a.receipt])
    assert queue.depth().oldest_age_seconds == pytest.approx(2, abs=0.01)


def test_dead_letters_are_listed_whole_and_redriven_in_order(queue: LookIn) -> None:
    """Redrive gives a fresh count and a fresh, higher sequence number to the same message."""
    _poison(queue, "a", "b")
    letters = queue.dead_letters()
    assert [letter.message.body for letter in letters] == ["poison a", "poison b"]
    assert [letter.receive_count for letter in letters] == [2, 2]
    assert queue.depth().dead_letter == 2
    assert queue.redrive() == 2
    again = queue.receive(max_messages=10, wait_seconds=0)
    assert bodies(again) == ["poison a", "poison b"]
    assert [d.message_id for d in again] == [letter.message_id for letter in letters]
    assert [d.receive_count for d in again] == [1, 1]
    assert again[0].sequence_number > letters[1].sequence_number
    assert queue.dead_letters() == []


def test_a_receipt_of_a_dead_letter_is_refused(queue: LookIn) -> None:
    """Nobody may believe a message gone that lies among the dead letters."""
    _send(queue, "g", "a")
    old = receipts(queue.receive(max_messages=10, wait_seconds=0))
    queue.release(old)
    queue.release(receipts(queue.receive(max_messages=10, wait_seconds=0)))
    assert queue.receive(max_messages=10, wait_seconds=0) == []
    assert set(queue.acknowledge(old).refused) == set(old)


@pytest.mark.parametrize(
    "message",
    [
        Message("", "g", "d"),
        Message("a\x00b", "g", "d"),
        Message("a", "with space", "d"),
        Message("a", "", "d"),
        Message("a", "g", "x" * 129),
        Message("é" * (1 << 19) + "x", "g", "d"),
    ],
)
def test_what_sqs_would_refuse_is_refused_and_nothing_is_sent(queue: LookIn, message: Message) -> None:
    """A local test must not pass with messages that the real queue would not take."""
    with pytest.raises(ValueError, match="message 1 cannot be sent"):
        queue.send([Message("good", "g", "d0"), message])
    assert queue.depth().is_empty


def test_wrong_limits_are_refused_at_start() -> None:
    """A visibility of nothing would hand everything out twice."""
    with pytest.raises(SettingsError):
        MemoryQueue(clock=ManualClock(), visibility_seconds=0)


def test_a_receipt_of_a_deleted_file_means_nothing_in_a_new_one(tmp_path: Path, clock: ManualClock) -> None:
    """A file that was removed and made anew starts with other receipts, though its numbers repeat."""
    found: list[str] = []
    for name in ("one.db", "two.db"):
        queue = LocalQueue(tmp_path / name, clock=clock)
        _send(queue, "g", "a")
        found += receipts(queue.receive(max_messages=1, wait_seconds=0))
        answer = queue.acknowledge(found[:1])
        assert (name == "one.db") == (answer.confirmed == set(found[:1]))
        queue.close()


def test_the_file_does_not_grow_with_what_was_ever_sent(tmp_path: Path, clock: ManualClock) -> None:
    """Rows of finished messages go, and so do old deduplication ids."""
    path = tmp_path / "queue.db"
    queue = LocalQueue(path, clock=clock)
    sizes = []
    for turn in range(6):
        queue.send([Message("x" * 500, f"g{n % 7}", f"{turn}-{n}") for n in range(500)])
        while got := queue.receive(max_messages=10, wait_seconds=0):
            queue.acknowledge(receipts(got))
        clock.sleep(301)
        queue.close()
        sizes.append(path.stat().st_size)
        queue = LocalQueue(path, clock=clock)
    queue.close()
    assert sizes[-1] <= sizes[1]


def test_a_broken_file_is_a_transient_error_with_its_path(tmp_path: Path, clock: ManualClock) -> None:
    """Foreign errors are translated in one place."""
    (tmp_path / "queue.db").mkdir()
    with pytest.raises(TransientError, match=r"queue\.db"):
        LocalQueue(tmp_path / "queue.db", clock=clock).depth()


def test_a_synced_queue_forces_sends_to_the_disk_and_nothing_else(tmp_path: Path) -> None:
    """A lost receive or delete costs a redelivery, a lost send would lose a message."""
    queue = LocalQueue(tmp_path / "queue.db", clock=ManualClock(), is_synced=True)
    statements: list[str] = []
    queue._file._connection().set_trace_callback(statements.append)

    _send(queue, "g", "a")
    turn = [one.split()[0] for one in statements]
    assert (turn[:2], turn[-2:]) == (["PRAGMA", "BEGIN"], ["COMMIT", "PRAGMA"])
    assert (statements[0], statements[-1]) == ("PRAGMA synchronous = FULL", "PRAGMA synchronous = NORMAL")
    statements.clear()
    queue.acknowledge(receipts(queue.receive(max_messages=10, wait_seconds=0)))
    assert [one for one in statements if one.startswith("PRAGMA")] == []
    queue.close()
