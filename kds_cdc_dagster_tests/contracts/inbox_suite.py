"""What every FIFO queue adapter must do. A subclass gives the fixture `queue`; tests read as sentences.

Sources: the AWS documentation of FIFO queues, and the field reports SQS-01, 02, 03, 05 and 08.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest

from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.ports import Inbox, Message, Outbound


@dataclass
class QueueUnderTest:
    """An empty queue with the means to test it."""

    inbox: Inbox
    peer: Inbox
    """Another worker's connection to the same queue (may be the same object if that is not possible)."""
    outbound: Outbound
    visibility_seconds: float
    pass_time: Callable[[float], None]
    """Let seconds pass for the queue: moves a virtual clock, or sleeps."""
    is_virtual: bool
    """Whether minutes can pass at no cost."""
    dead_letter_after: int | None = None

    def send(self, group: str, *bodies: str) -> None:
        """Publish bodies to one group, in order."""
        self.outbound.send([Message(body, group, uuid.uuid4().hex) for body in bodies])

    def receive(self, inbox: Inbox | None = None) -> list[Delivery]:
        """One short receive of ten."""
        return (inbox or self.inbox).receive(max_messages=10, wait_seconds=0)

    def drain(self) -> list[Delivery]:
        """Receive and acknowledge until nothing waits or flies."""
        found: list[Delivery] = []
        while got := self.receive():
            self.inbox.acknowledge(receipts(got))
            found += got
        return found


def bodies(deliveries: Iterable[Delivery]) -> list[str]:
    """Bodies as text."""
    return [delivery.body.decode() for delivery in deliveries]


def receipts(deliveries: Iterable[Delivery]) -> list[str]:
    """Receipt handles."""
    return [delivery.receipt for delivery in deliveries]


class InboxSuite:
    """Run by every adapter."""

    def test_a_receive_brings_at_most_ten_of_a_group_in_the_order_they_were_sent(self, queue: QueueUnderTest) -> None:
        """Order inside a group is the order of sending, and ten is the limit."""
        queue.send("g", *[str(n) for n in range(12)])
        assert bodies(queue.receive()) == [str(n) for n in range(10)]

    def test_a_delivery_carries_what_was_sent_and_the_queues_evidence(self, queue: QueueUnderTest) -> None:
        """Body, group, rising sequence numbers, a message id, a first receive and a sent time come along."""
        before_ms = int(time.time() * 1000) - 1000
        queue.send("acct-1:store-1", '{"name":"crème brûlée 🍮"}', "second")
        first, second = queue.receive()
        assert first.body.decode() == '{"name":"crème brûlée 🍮"}'
        assert (first.group_id, first.receive_count) == ("acct-1:store-1", 1)
        assert first.sequence_number.isdecimal()
        assert int(first.sequence_number) < int(second.sequence_number)
        assert first.message_id != second.message_id
        assert first.sent_at_ms >= before_ms or queue.is_virtual

    def test_sqs01_one_message_in_flight_locks_its_whole_group(self, queue: QueueUnderTest) -> None:
        """While a message of a group is in flight nobody gets another one of that group."""
        queue.send("g", *[str(n) for n in range(12)])
        held = queue.receive()
        queue.inbox.acknowledge(receipts(held[:9]))
        assert queue.receive(queue.peer) == []
        queue.inbox.acknowledge(receipts(held[9:]))
        assert bodies(queue.receive(queue.peer)) == ["10", "11"]

    def test_sqs01_other_groups_go_on_while_one_is_locked(self, queue: QueueUnderTest) -> None:
        """A stalled group of many stops itself only."""
        queue.send("stalled", "s1")
        stalled = queue.receive()
        for n in range(15):
            queue.send(f"g{n}", str(n))
        queue.send("stalled", "s2")
        assert bodies(stalled) == ["s1"]
        assert sorted(bodies(queue.drain()), key=int) == [str(n) for n in range(15)]

    def test_a_message_comes_again_when_its_visibility_ends(self, queue: QueueUnderTest) -> None:
        """Unacknowledged messages come back in order, counted, with another receipt."""
        queue.send("g", "a", "b")
        first = queue.receive()
        queue.pass_time(queue.visibility_seconds + 0.1)
        again = queue.receive(queue.peer)
        assert bodies(again) == ["a", "b"]
        assert [d.receive_count for d in again] == [2, 2]
        assert [d.message_id for d in again] == [d.message_id for d in first]
        assert not set(receipts(again)) & set(receipts(first))

    def test_sqs02_delete_after_the_visibility_ended_is_refused(self, queue: QueueUnderTest) -> None:
        """A zombie's late delete is an ordinary refusal, and the message comes again."""
        queue.send("g", "a")
        late = queue.receive()
        queue.pass_time(queue.visibility_seconds + 0.1)
        answer = queue.inbox.acknowledge(receipts(late))
        assert answer.confirmed == frozenset()
        assert set(answer.refused) == set(receipts(late))
        assert bodies(queue.receive(queue.peer)) == ["a"]

    def test_sqs02_an_old_receipt_is_refused_while_another_worker_holds_the_message(
        self, queue: QueueUnderTest
    ) -> None:
        """Only the newest receipt deletes; the holder is not disturbed."""
        queue.send("g", "a")
        old = queue.receive()
        queue.pass_time(queue.visibility_seconds + 0.1)
        new = queue.receive(queue.peer)
        assert queue.inbox.acknowledge(receipts(old)).confirmed == frozenset()
        assert queue.peer.acknowledge(receipts(new)).confirmed == set(receipts(new))
        assert queue.drain() == []

    def test_sqs03_only_confirmed_receipts_count_as_gone(self, queue: QueueUnderTest) -> None:
        """One bad receipt in a call is named and stops none of the good ones."""
        queue.send("g", "a", "b", "c")
        held = receipts(queue.receive())
        answer = queue.inbox.acknowledge([held[0], "no-such-receipt", held[2]])
        assert answer.confirmed == {held[0], held[2]}
        assert set(answer.refused) == {"no-such-receipt"}
        queue.pass_time(queue.visibility_seconds + 0.1)
        assert bodies(queue.receive()) == ["b"]

    def test_any_number_of_receipts_can_be_acknowledged_at_once(self, queue: QueueUnderTest) -> None:
        """More than the ten of one SQS call."""
        for n in range(25):
            queue.send(f"g{n}", str(n))
        held: list[str] = []
        for _ in range(25):
            held += receipts(queue.receive())
        assert len(held) == 25
        assert queue.inbox.acknowledge(held).confirmed == set(held)
        assert queue.inbox.depth().is_empty

    def test_acknowledging_nothing_is_fine(self, queue: QueueUnderTest) -> None:
        """An empty list is an ordinary call."""
        assert queue.inbox.acknowledge([]).confirmed == frozenset()

    def test_sqs05_an_empty_receive_is_not_an_empty_queue(self, queue: QueueUnderTest) -> None:
        """Depth tells what an empty answer cannot: something is in flight."""
        queue.send("g", "a", "b", "c")
        held = queue.receive()
        assert queue.receive(queue.peer) == []
        depth = queue.inbox.depth()
        assert not depth.is_empty
        assert (depth.visible, depth.in_flight) == (0, 3)
        queue.inbox.acknowledge(receipts(held))
        assert queue.inbox.depth().is_empty

    def test_released_messages_are_visible_at_once_and_in_order(self, queue: QueueUnderTest) -> None:
        """A round that is given up costs its successor no waiting."""
        queue.send("g", "a", "b", "c")
        queue.inbox.release([*receipts(queue.receive()), "no-such-receipt"])
        assert bodies(queue.receive(queue.peer)) == ["a", "b", "c"]

    def test_extended_messages_stay_hidden(self, queue: QueueUnderTest) -> None:
        """A slow round keeps its messages beyond the first visibility, and can still delete them."""
        queue.send("g", "a")
        held = receipts(queue.receive())
        queue.inbox.extend([*held, "no-such-receipt"], queue.visibility_seconds * 3)
        queue.pass_time(queue.visibility_seconds * 1.5)
        assert queue.receive(queue.peer) == []
        assert queue.inbox.acknowledge(held).confirmed == set(held)

    def test_a_deduplication_id_is_taken_once_even_after_its_message_was_deleted(self, queue: QueueUnderTest) -> None:
        """The window outlives the first copy."""
        message = Message("a", "g", uuid.uuid4().hex)
        queue.outbound.send([message, message])
        assert bodies(queue.drain()) == ["a"]
        queue.outbound.send([message])
        assert queue.drain() == []
        if queue.is_virtual:
            queue.pass_time(301)
            queue.outbound.send([message])
            assert bodies(queue.drain()) == ["a"]

    def test_a_message_received_too_often_becomes_a_dead_letter(self, queue: QueueUnderTest) -> None:
        """The receive after the last allowed one moves it, and its group goes on behind it."""
        if queue.dead_letter_after is None:
            pytest.skip("this queue has no dead letters")
        queue.send("g", "poison")
        for _ in range(queue.dead_letter_after):
            held = queue.receive()
            assert bodies(held) == ["poison"]
            queue.inbox.release(receipts(held))
        queue.send("g", "good")
        assert bodies(queue.drain()) == ["good"]
        assert queue.inbox.depth().dead_letter == 1

    def test_sqs08_closing_ends_a_long_poll_and_strands_nothing(self, queue: QueueUnderTest) -> None:
        """After close a poll returns soon; what is sent later reaches another worker at once."""
        if queue.is_virtual:
            queue.inbox.close()
            assert queue.inbox.receive(max_messages=10, wait_seconds=20) == []
        else:
            found: list[Delivery] = []
            poll = threading.Thread(
                target=lambda: found.extend(queue.inbox.receive(max_messages=10, wait_seconds=20)), daemon=True
            )
            poll.start()
            time.sleep(0.2)
            queue.inbox.close()
            poll.join(timeout=10)
            assert not poll.is_alive()
            assert found == []
        queue.send("g", "FIRED")
        assert bodies(queue.receive(queue.peer)) == ["FIRED"]

    def test_a_long_poll_wakes_up_when_a_message_arrives(self, queue: QueueUnderTest) -> None:
        """Waiting costs no more latency than the adapter's own."""
        if queue.is_virtual:
            pytest.skip("needs real time")
        sender = threading.Timer(0.2, lambda: queue.send("g", "a"))
        sender.start()
        start = time.monotonic()
        assert bodies(queue.inbox.receive(max_messages=10, wait_seconds=10)) == ["a"]
        assert time.monotonic() - start < 5
        sender.join()
