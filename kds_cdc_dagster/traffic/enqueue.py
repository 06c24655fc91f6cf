"""`kds-cdc enqueue`: captured change events, one JSON object a line, to the queue."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.core.fifo import broken_rule
from kds_cdc_dagster.ports import Message, Outbound
from kds_cdc_dagster.traffic.groups import Groups

CHUNK_MESSAGES = 1000
"""Messages per send: what is held in memory, and how often progress is told."""


@dataclass(frozen=True, slots=True)
class EnqueueReport:
    """What became of the lines so far."""

    sent: int = 0
    skipped_null: int = 0
    """Deliveries without a value (tombstones): no SQS message can say them."""
    suppressed: int = 0
    """Known deduplication ids."""
    unreadable_lines: tuple[tuple[int, str], ...] = ()
    """(line number from 1, reason) of lines that are no message; they were left out."""


class UnreadableLine(ValueError):
    """A line that is no message; the text says why and shows nothing of it."""


def message_of(line: str, *, groups: Groups, group: str | None = None, dedup_id: str) -> Message | None:
    """The message in a line, or None for a null value. Raises UnreadableLine.

    `{"destination", "key", "value"}`: the value is the body, exactly as given; its group is `group`, or chosen by
    `groups`. `{"body", "group_id"[, "dedup_id"]}`: as it says (`group` wins).
    """
    document = _object(line)
    if "body" in document:
        body = _text(document, "body")
        chosen = _text(document, "group_id") if group is None else group
        dedup_id = _text(document, "dedup_id") if "dedup_id" in document else dedup_id
    elif document.get("value", "") is None:
        return None
    else:
        body = _text(document, "value")
        chosen = groups.of(body, str(document.get("destination") or "")) if group is None else group
    if rule := broken_rule(body, chosen, dedup_id):
        raise UnreadableLine(rule)
    return Message(body, chosen, dedup_id)


def _text(document: dict[str, object], name: str) -> str:
    text = document.get(name)
    if not isinstance(text, str):
        raise UnreadableLine(f"`{name}` is missing or no text")
    return text


def _object(line: str) -> dict[str, object]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        raise UnreadableLine("not JSON") from None
    if not isinstance(document, dict):
        raise UnreadableLine("no JSON object")
    return document


def enqueue_lines(
    lines: Iterable[str],
    outbound: Outbound,
    *,
    catalogue: Catalogue,
    group: str | None = None,
    on_progress: Callable[[EnqueueReport], object] = lambda _: None,
) -> EnqueueReport:
    """Publish `lines` in order and report; bad ones are named and left out. Raises TransientError of the queue."""
    counts = _Counts()
    chunk: list[Message] = []
    for message in _messages(lines, counts, Groups(catalogue), group):
        chunk.append(message)
        if len(chunk) == CHUNK_MESSAGES:
            counts.send(outbound, chunk)
            on_progress(counts.report())
            chunk = []
    counts.send(outbound, chunk)
    on_progress(counts.report())
    return counts.report()


def _messages(lines: Iterable[str], counts: _Counts, groups: Groups, group: str | None) -> Iterator[Message]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            message = message_of(line, groups=groups, group=group, dedup_id=uuid.uuid4().hex)
        except UnreadableLine as error:
            counts.unreadable.append((number, str(error)))
        else:
            if message is None:
                counts.skipped_null += 1
            else:
                yield message


class _Counts:
    """The report while it grows."""

    def __init__(self) -> None:
        self.sent = self.skipped_null = self.suppressed = 0
        self.unreadable: list[tuple[int, str]] = []

    def send(self, outbound: Outbound, chunk: list[Message]) -> None:
        new = outbound.send(chunk) if chunk else 0
        self.sent += new
        self.suppressed += len(chunk) - new

    def report(self) -> EnqueueReport:
        return EnqueueReport(self.sent, self.skipped_null, self.suppressed, tuple(self.unreadable))
