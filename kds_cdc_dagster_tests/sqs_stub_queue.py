"""One FIFO queue of the SQS stub: what the service documents, with each rule that emulators lose on by default."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

EXPIRED = "InvalidParameterValue"
"""What DeleteMessageBatch and ChangeMessageVisibilityBatch answer on FIFO for a handle whose time is over."""
DEDUP_SECONDS = ATTEMPT_SECONDS = 300.0
VISIBILITY_TOTAL_SECONDS = 43_200.0


class Refused(Exception):
    """The whole call fails with this error code."""


@dataclass(slots=True)
class StubMessage:
    """A message and its life in the queue."""

    group: str
    body: str
    message_id: str
    sequence: int
    sent_ms: int
    receipt: str = ""
    visible_at: float = 0.0
    receive_count: int = 0
    first_received_at: float = 0.0

    def shown(self) -> dict[str, Any]:
        """As ReceiveMessage gives it."""
        return {
            "Body": self.body,
            "MessageId": self.message_id,
            "ReceiptHandle": self.receipt,
            "Attributes": {
                "MessageGroupId": self.group,
                "SequenceNumber": f"{self.sequence:020d}",
                "ApproximateReceiveCount": str(self.receive_count),
                "SentTimestamp": str(self.sent_ms),
            },
        }


@dataclass
class StubQueue:
    """Group lock, visibility, receive counts, attempt ids, deduplication, in-flight cap, dead letters."""

    in_flight_max: int = 120_000
    is_cap_silent: bool = True
    """At the cap: an empty answer (as FIFO queues give), or the OverLimit error."""
    dead: StubQueue | None = None
    dead_after: int = 0
    now: Callable[[], float] = time.time
    groups: dict[str, dict[int, StubMessage]] = field(default_factory=dict)
    in_flight: dict[str, StubMessage] = field(default_factory=dict)
    _locked: dict[str, int] = field(default_factory=dict)
    _ready: deque[str] = field(default_factory=deque)
    _expiry: list[tuple[float, str]] = field(default_factory=list)
    _dedup: dict[str, tuple[float, StubMessage]] = field(default_factory=dict)
    _attempts: dict[str, tuple[float, list[str]]] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def visible(self) -> int:
        """Messages that are not in flight."""
        return sum(map(len, self.groups.values())) - len(self.in_flight)

    def put(self, group: str, body: str, dedup: str) -> StubMessage:
        """Add a message unless its deduplication id was used in the last five minutes."""
        since, known = self._dedup.get(dedup, (-DEDUP_SECONDS, None))
        if known is not None and self.now() - since < DEDUP_SECONDS:
            return known
        number = next(self._numbers)
        message = StubMessage(group, body, f"m-{number}", number, int(self.now() * 1000))
        self._dedup[dedup] = (self.now(), message)
        if not self.groups.setdefault(group, {}) and group not in self._ready:
            self._ready.append(group)
        self.groups[group][number] = message
        return message

    def SendMessageBatch(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        """Add up to ten messages."""
        done = []
        for entry in body["Entries"]:
            message = self.put(entry["MessageGroupId"], entry["MessageBody"], entry["MessageDeduplicationId"])
            done.append(
                {"Id": entry["Id"], "MessageId": message.message_id, "SequenceNumber": f"{message.sequence:020d}"}
            )
        return {"Successful": done}

    def ReceiveMessage(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        """Up to ten messages of groups that have none in flight; the same ones again for the same attempt id."""
        self._expire()
        attempt = body.get("ReceiveRequestAttemptId", "")
        if attempt in self._attempts:
            return self._again(attempt, float(body["VisibilityTimeout"]))
        if len(self.in_flight) >= self.in_flight_max:
            if self.is_cap_silent:
                return {}
            raise Refused("OverLimit")
        taken: list[StubMessage] = []
        while self._ready and len(taken) < body["MaxNumberOfMessages"]:
            room = min(body["MaxNumberOfMessages"] - len(taken), self.in_flight_max - len(self.in_flight))
            if room < 1:
                break
            taken += self._take(self._ready.popleft(), room, float(body["VisibilityTimeout"]))
        if taken and attempt:
            self._attempts[attempt] = (self.now(), [message.receipt for message in taken])
        return {"Messages": [message.shown() for message in taken]} if taken else {}

    def DeleteMessageBatch(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        """Remove messages whose handle is still good."""
        return self._each(body, lambda entry: self._remove(entry["ReceiptHandle"]))

    def ChangeMessageVisibilityBatch(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        """Hide longer, or show again at 0; at most twelve hours after the first receive."""
        return self._each(body, lambda entry: self._hide(entry["ReceiptHandle"], entry["VisibilityTimeout"]))

    def GetQueueAttributes(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        """The numbers of the backlog."""
        self._expire()
        numbers = {"": self.visible, "NotVisible": len(self.in_flight), "Delayed": 0}
        return {"Attributes": {f"ApproximateNumberOfMessages{name}": str(number) for name, number in numbers.items()}}

    def _take(self, group: str, room: int, seconds: float) -> list[StubMessage]:
        taken: list[StubMessage] = []
        for message in list(itertools.islice(self.groups[group].values(), room)):
            if self.dead is not None and message.receive_count >= self.dead_after:
                del self.groups[group][message.sequence]
                self.dead.put(group, message.body, message.message_id)
                continue
            message.receive_count += 1
            message.receipt = f"{message.message_id}/{message.receive_count}"
            message.first_received_at = message.first_received_at or self.now()
            message.visible_at = self.now() + seconds
            heapq.heappush(self._expiry, (message.visible_at, message.receipt))
            self.in_flight[message.receipt] = message
            self._locked[group] = self._locked.get(group, 0) + 1
            taken.append(message)
        if not taken and self.groups[group]:
            self._ready.append(group)
        return taken

    def _again(self, attempt: str, seconds: float) -> dict[str, Any]:
        since, receipts = self._attempts[attempt]
        if self.now() - since > ATTEMPT_SECONDS or not all(receipt in self.in_flight for receipt in receipts):
            raise Refused("InvalidParameterValue")
        for receipt in receipts:
            self._show_at(self.in_flight[receipt], self.now() + seconds)
        return {"Messages": [self.in_flight[receipt].shown() for receipt in receipts]}

    def _each(self, body: dict[str, Any], act: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        self._expire()
        done, failed = [], []
        for entry in body["Entries"]:
            if act(entry):
                done.append({"Id": entry["Id"]})
                self._spoil_attempts(entry["ReceiptHandle"])
            else:
                failed.append({"Id": entry["Id"], "Code": EXPIRED, "SenderFault": True, "Message": "has expired"})
        return {"Successful": done, "Failed": failed}

    def _spoil_attempts(self, receipt: str) -> None:
        for since_receipts in self._attempts.values():
            if receipt in since_receipts[1]:
                since_receipts[1].append("touched")

    def _remove(self, receipt: str) -> bool:
        message = self.in_flight.get(receipt)
        if message is None:
            return receipt.startswith("m-") and not self._is_stored(receipt)
        del self.groups[message.group][message.sequence]
        self._unlock(message)
        return True

    def _is_stored(self, receipt: str) -> bool:
        """A handle of a deleted message is no error; one of a message that lives on is."""
        number = int(receipt.removeprefix("m-").partition("/")[0])
        return any(number in messages for messages in self.groups.values())

    def _hide(self, receipt: str, seconds: float) -> bool:
        message = self.in_flight.get(receipt)
        if message is None or self.now() + seconds - message.first_received_at > VISIBILITY_TOTAL_SECONDS:
            return False
        self._show_at(message, self.now() + seconds)
        self._expire()
        return True

    def _show_at(self, message: StubMessage, visible_at: float) -> None:
        message.visible_at = visible_at
        heapq.heappush(self._expiry, (visible_at, message.receipt))

    def _expire(self) -> None:
        while self._expiry and self._expiry[0][0] <= self.now():
            _due, receipt = heapq.heappop(self._expiry)
            message = self.in_flight.get(receipt)
            if message is not None and message.visible_at <= self.now():
                self._unlock(message)

    def _unlock(self, message: StubMessage) -> None:
        del self.in_flight[message.receipt]
        self._locked[message.group] -= 1
        if not self._locked[message.group]:
            del self._locked[message.group]
            if self.groups[message.group] and message.group not in self._ready:
                self._ready.append(message.group)
