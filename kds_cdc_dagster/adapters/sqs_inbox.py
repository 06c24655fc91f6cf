"""The SQS FIFO queue as an Inbox: long polls, confirmed deletes, visibility, a close that strands nothing.

SQS-nn in comments are the field reports each rule answers.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence

import msgspec

from kds_cdc_dagster.adapters.sqs_attempts import Attempts
from kds_cdc_dagster.adapters.sqs_entries import EntryCalls
from kds_cdc_dagster.adapters.sqs_large_bodies import LargeBodies
from kds_cdc_dagster.adapters.sqs_wire import REPLY_SECONDS, CallRefused, SqsWire
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.errors import TransientError
from kds_cdc_dagster.ports import Acknowledgement, QueueDepth

MESSAGES_MAX = 10
WAIT_MAX_SECONDS = 20
VISIBILITY_MAX_SECONDS = 43_200
FULL_PAUSE_SECONDS = 1.0
"""Pause before an OverLimit answer is passed on as an empty one: it comes at once, and would spin."""
_ATTRIBUTES = ("MessageGroupId", "SequenceNumber", "ApproximateReceiveCount", "SentTimestamp")


class _Message(msgspec.Struct, rename="pascal"):
    message_id: str
    receipt_handle: str
    body: msgspec.Raw = msgspec.Raw(b'""')
    attributes: dict[str, str] = {}

    def delivery(self) -> Delivery:
        try:
            body = msgspec.json.decode(self.body, type=str).encode()
        except (msgspec.DecodeError, UnicodeError):
            body = bytes(self.body)  # text that is none must not stop its neighbours: it is quarantined as it is
        found = self.attributes
        return Delivery(
            body=body,
            group_id=found.get("MessageGroupId", ""),
            sequence_number=found.get("SequenceNumber", ""),
            message_id=self.message_id,
            receipt=self.receipt_handle,
            receive_count=int(found.get("ApproximateReceiveCount", "1")),
            sent_at_ms=int(found.get("SentTimestamp", "0")),
        )


class _Received(msgspec.Struct, rename="pascal"):
    messages: list[_Message] | None = None


class _Numbers(msgspec.Struct, rename="pascal"):
    attributes: dict[str, str] = {}


class SqsInbox:
    """The queue's read side. Any number of threads may use one.

    An empty answer is ordinary: nothing there, every group locked, or the in-flight cap reached, which a
    FIFO queue does not tell apart (SQS-05). `depth` counts what waits.
    """

    def __init__(
        self,
        wire: SqsWire,
        *,
        visibility_seconds: float,
        dead_letters: SqsWire | None = None,
        large_bodies: LargeBodies | None = None,
        parallel: int = 4,
    ) -> None:
        self._wire = wire
        self._visibility_seconds = math.ceil(visibility_seconds)
        self._dead_letters = dead_letters
        self._large_bodies = large_bodies
        self._attempts = Attempts()
        self._entries = EntryCalls(wire, parallel=parallel)
        self._polls_changed = threading.Condition()
        self._polls = 0
        self._closing = threading.Event()

    def counts(self) -> Mapping[str, int]:
        """Trouble met since the start, by kind.

        transient, refused: calls; full, attempt_refused: receives; not_deleted, not_extended, not_released,
        body_missing: messages.
        """
        return self._wire.counts()

    def receive(self, *, max_messages: int, wait_seconds: float) -> list[Delivery]:
        """As the port says. The wait is rounded up to whole seconds; nothing is handed out once closing."""
        with self._polls_changed:
            if self._closing.is_set():
                return []
            self._polls += 1
        try:
            deliveries = self._received(min(max_messages, MESSAGES_MAX), min(math.ceil(wait_seconds), WAIT_MAX_SECONDS))
            if self._closing.is_set():  # SQS-08: what a poll brings in after all goes back at once
                self.release([one.receipt for one in deliveries])
                return []
            return deliveries
        finally:
            with self._polls_changed:
                self._polls -= 1
                self._polls_changed.notify_all()

    def acknowledge(self, receipts: Sequence[str]) -> Acknowledgement:
        """Delete. Refused: expired handles (SQS-02), and whatever the service did not confirm (SQS-03).

        Batches go in parallel: everything acknowledged is durable, so a later message of a group that is
        gone before an earlier one costs a duplicate, never order.
        """
        refused = self._change("DeleteMessageBatch", receipts, "not_deleted")
        return Acknowledgement(frozenset(receipts) - refused.keys(), refused)

    def release(self, receipts: Sequence[str]) -> None:
        """Visible again at once, best effort; the group opens when its last message is."""
        self._change("ChangeMessageVisibilityBatch", receipts, "not_released", VisibilityTimeout=0)

    def extend(self, receipts: Sequence[str], seconds: float) -> None:
        """Hide for `seconds` from now. Fails for good twelve hours after the first receive (SQS-04)."""
        whole_seconds = min(math.ceil(seconds), VISIBILITY_MAX_SECONDS)
        self._change("ChangeMessageVisibilityBatch", receipts, "not_extended", VisibilityTimeout=whole_seconds)

    def depth(self) -> QueueDepth:
        """The service's approximate numbers; delayed messages count as visible: they are still to come."""
        visible, in_flight = _numbers(self._wire)
        dead_letter = sum(_numbers(self._dead_letters)) if self._dead_letters else 0
        return QueueDepth(visible, in_flight, dead_letter)

    def close(self) -> None:
        """Let polls end, give back what they bring. Waits no longer than the longest poll can take."""
        with self._polls_changed:
            self._closing.set()
            self._polls_changed.wait_for(lambda: not self._polls, WAIT_MAX_SECONDS + REPLY_SECONDS)
        self._entries.close()
        self._wire.close()
        if self._dead_letters:
            self._dead_letters.close()

    def _received(self, max_messages: int, wait_seconds: int) -> list[Delivery]:
        """Tries until there is an answer; a lost reply's attempt id goes first (SQS-09)."""
        failures = 0
        while True:
            attempt = self._attempts.next(self._wire.clock.now())
            wait_seconds = 0 if self._closing.is_set() else wait_seconds
            try:
                return self._whole(self._polled(attempt.id, max_messages, wait_seconds=wait_seconds))
            except CallRefused as refused:
                if refused.code == "OverLimit":
                    return self._full(wait_seconds)
                if not (attempt.is_reused and refused.code.startswith("InvalidParameterValue")):
                    raise
                self._wire.count("attempt_refused")
            except TransientError:
                self._attempts.lost(attempt)
                failures += 1
                if failures >= self._wire.backoff.tries_max:
                    raise
                self._wire.pause(failures)

    def _polled(self, attempt_id: str, max_messages: int, *, wait_seconds: int) -> list[Delivery]:
        body = {
            "MaxNumberOfMessages": max_messages,
            "WaitTimeSeconds": wait_seconds,
            "VisibilityTimeout": self._visibility_seconds,
            "ReceiveRequestAttemptId": attempt_id,
            "MessageSystemAttributeNames": _ATTRIBUTES,
        }
        reply = self._wire.call("ReceiveMessage", body, wait_seconds=wait_seconds)
        try:
            messages = msgspec.json.decode(reply, type=_Received).messages or []
        except msgspec.DecodeError as error:
            raise TransientError("SQS gave a receive reply that cannot be read", size_bytes=len(reply)) from error
        return [message.delivery() for message in messages]

    def _whole(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Bodies from S3. One that cannot be read now keeps itself and its group's later ones back.

        They stay hidden until their visibility ends, which is the pause before the next try; releasing them
        at once would use up their receive counts.
        """
        if self._large_bodies is None:
            return deliveries
        whole: list[Delivery] = []
        blocked: set[str] = set()
        for one in deliveries:
            if one.group_id in blocked:
                continue
            try:
                whole.append(msgspec.structs.replace(one, body=self._large_bodies.whole(one.body)))
            except TransientError:
                blocked.add(one.group_id)
                self._wire.count("body_missing")
        return whole

    def _full(self, wait_seconds: float) -> list[Delivery]:
        self._wire.count("full")
        self._wire.clock.sleep(min(wait_seconds, FULL_PAUSE_SECONDS))
        return []

    def _change(self, action: str, receipts: Sequence[str], trouble: str, **entry: int) -> dict[str, str]:
        unique = list(dict.fromkeys(receipts))
        refused = self._entries.refused(action, [{"ReceiptHandle": receipt, **entry} for receipt in unique])
        if refused:
            self._wire.count(trouble, len(refused))
        return {unique[index]: reason for index, reason in refused.items()}


def _numbers(wire: SqsWire) -> tuple[int, int]:
    """Waiting and in flight."""
    names = [f"ApproximateNumberOfMessages{which}" for which in ("", "Delayed", "NotVisible")]
    reply = wire.ask("GetQueueAttributes", {"AttributeNames": names})
    found = msgspec.json.decode(reply, type=_Numbers).attributes
    waiting, delayed, in_flight = (int(found.get(name, 0)) for name in names)
    return waiting + delayed, in_flight
