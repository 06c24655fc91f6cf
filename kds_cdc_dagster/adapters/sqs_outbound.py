"""The SQS FIFO queue's write side: enqueue, simulate, and redrive from the dead-letter queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from kds_cdc_dagster.adapters.local_queue import refuse_unsendable
from kds_cdc_dagster.adapters.sqs_entries import ENTRIES_MAX, EntryCalls
from kds_cdc_dagster.adapters.sqs_wire import SqsWire
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.errors import TransientError
from kds_cdc_dagster.ports import DeadLetter, Inbox, Message, Outbound

IDLE_ANSWERS = 2
"""Empty receives after which the dead-letter queue counts as drained (or locked: its groups are in flight)."""


class SqsOutbound:
    """Publishes in order: of one group, a message is sent only once the one before it is confirmed.

    Entries of one call fail singly, so two of a group never share a call: a failed first with a sent second
    would turn them round. Different groups share calls, and calls go in parallel.
    """

    def __init__(self, wire: SqsWire, *, parallel: int = 4) -> None:
        self._wire = wire
        self._entries = EntryCalls(wire, parallel=parallel)

    def send(self, messages: Sequence[Message]) -> int:
        """How many were taken. SQS does not tell which of them deduplication suppressed: those count too.

        Raises TransientError with the number sent; sending all again within five minutes doubles nothing.
        Raises ValueError, before sending any, for what SQS refuses.
        """
        refuse_unsendable(messages)
        sent = 0
        for turn in _turns(messages):
            refused = self._entries.refused("SendMessageBatch", [_entry(message) for message in turn])
            sent += len(turn) - len(refused)
            if refused:
                reasons = ", ".join(sorted(set(refused.values())))
                raise TransientError("messages were not taken by the queue", sent=sent, reasons=reasons)
        return sent

    def close(self) -> None:
        """End threads and connections."""
        self._entries.close()
        self._wire.close()


class SqsDeadLetters:
    """Port DeadLetters: the dead-letter queue, and the queue that its letters go back to."""

    def __init__(self, dead_letters: Inbox, queue: Outbound) -> None:
        self._dead_letters = dead_letters
        self._queue = queue

    def letters(self, *, limit: int) -> list[DeadLetter]:
        """Received to be looked at, then released: SQS has no other way, and counts it as a receive."""
        found: list[Delivery] = []
        try:
            for letters in _received(self._dead_letters, limit):
                found += letters
        finally:
            self._dead_letters.release([one.receipt for one in found])
        return [DeadLetter(one.group_id, one.message_id, one.receive_count, one.sent_at_ms) for one in found]

    def redrive(self, *, limit: int) -> int:
        """Move letters back, each group in order; returns how many were moved.

        A letter is deleted after the queue has it. Its message id is the deduplication id: a redrive that dies
        between the two and is repeated within five minutes sends it once; later it ends as a duplicate in the intake.
        """
        moved = 0
        for letters in _received(self._dead_letters, limit):
            self._queue.send([Message(one.body.decode(), one.group_id, f"redrive-{one.message_id}") for one in letters])
            self._dead_letters.acknowledge([one.receipt for one in letters])
            moved += len(letters)
        return moved

    def close(self) -> None:
        """Give connections back."""
        self._dead_letters.close()


def _received(inbox: Inbox, limit: int) -> Iterator[list[Delivery]]:
    """What the queue gives, up to `limit` messages, until it gives nothing more."""
    left, idle = limit, 0
    while left > 0 and idle < IDLE_ANSWERS:
        found = inbox.receive(max_messages=min(ENTRIES_MAX, left), wait_seconds=1)
        left, idle = left - len(found), 0 if found else idle + 1
        yield found


def _entry(message: Message) -> dict[str, str]:
    return {
        "MessageBody": message.body,
        "MessageGroupId": message.group_id,
        "MessageDeduplicationId": message.dedup_id,
    }


def _turns(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The first message of every group, then the second of every group that has one, and so on."""
    groups: defaultdict[str, list[Message]] = defaultdict(list)
    for message in messages:
        groups[message.group_id].append(message)
    for place in range(max(map(len, groups.values()), default=0)):
        yield [group[place] for group in groups.values() if place < len(group)]
