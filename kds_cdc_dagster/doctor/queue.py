"""The queue: is it FIFO, how long does it keep and hide messages, what becomes of poison, how fast may it go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from kds_cdc_dagster.doctor.finding import Finding, Notes
from kds_cdc_dagster.errors import KdsCdcError
from kds_cdc_dagster.settings import Settings
from kds_cdc_dagster.wiring import Pipeline

Attributes = Mapping[str, str]
_DAY_SECONDS = 86_400
NOTE = Notes("queue")


class _Redrive(msgspec.Struct, rename="camel"):
    max_receive_count: int | str


def look(parts: Pipeline) -> Iterator[Finding]:
    """Raises SettingsError and TransientError of the queue."""
    if parts.settings.queue == "sqs":
        yield from _sqs(parts)
    depth = parts.inbox.depth()
    yield NOTE.ok(f"answers: {depth.visible} messages wait, {depth.in_flight} in flight")
    if depth.dead_letter:
        yield NOTE.warn(f"{depth.dead_letter} dead letters", "find out why, then redrive them")


def _sqs(parts: Pipeline) -> Iterator[Finding]:
    from kds_cdc_dagster.adapters.sqs_open import queue_attributes

    s = parts.settings
    found = queue_attributes(s, s.sqs_queue_url, clock=parts.clock)
    if found.get("FifoQueue") != "true":
        yield NOTE.error("the queue is not FIFO: it keeps no order", "make a FIFO queue (infra/queue.yaml)")
        return
    yield from _speed(found)
    yield from _limits(s, found)
    yield from _redrive(s, found)
    dead_days = 0.0
    if s.sqs_dead_letter_url:
        try:
            dead_days = _days(queue_attributes(s, s.sqs_dead_letter_url, clock=parts.clock))
        except KdsCdcError as error:
            yield NOTE.error(f"the dead-letter queue: {error.what}", "KDS_CDC_SQS_DEAD_LETTER_URL and its rights")
    else:
        yield NOTE.warn("dead letters are not watched", "KDS_CDC_SQS_DEAD_LETTER_URL")
    yield from _retention(s, _days(found), dead_days)


def _speed(found: Attributes) -> Iterator[Finding]:
    is_fast = (found.get("DeduplicationScope"), found.get("FifoThroughputLimit"))
    if is_fast != ("messageGroup", "perMessageGroupId"):
        yield NOTE.warn(
            "not in high-throughput mode: 300 calls of each kind a second for the whole queue",
            "set DeduplicationScope=messageGroup and FifoThroughputLimit=perMessageGroupId",
        )
    if found.get("ContentBasedDeduplication") == "true":
        yield NOTE.info(
            "content-based deduplication: bodies equal in text within five minutes are dropped by the queue",
            "a publisher that sends a deduplication id (the stock Debezium sink sends none and needs this)",
        )


def _limits(s: Settings, found: Attributes) -> Iterator[Finding]:
    hidden_seconds = int(found.get("VisibilityTimeout", "30"))
    if hidden_seconds < s.visibility_seconds:
        yield NOTE.info(
            f"the queue hides messages for {hidden_seconds} s, receives of ours ask for {s.visibility_seconds:g} s",
            "set both alike, so that other consumers and tools do not surprise",
        )
    size_bytes = int(found.get("MaximumMessageSize", "0"))
    if size_bytes > s.body_bytes_max:
        yield NOTE.warn(
            f"messages of up to {size_bytes} bytes are let in, those above {s.body_bytes_max} are quarantined",
            "raise KDS_CDC_BODY_BYTES_MAX",
        )


def _redrive(s: Settings, found: Attributes) -> Iterator[Finding]:
    policy = found.get("RedrivePolicy")
    if not policy:
        yield NOTE.warn(
            "no redrive policy: a message that no worker survives comes back until it expires",
            f"a dead-letter queue after more than {s.receives_max} receives (infra/queue.yaml)",
        )
        return
    receives = int(msgspec.json.decode(policy, type=_Redrive).max_receive_count)
    if receives <= s.receives_max:
        yield NOTE.error(
            f"poison is moved away after {receives} receives, before it is quarantined at the {s.receives_max + 1}th",
            f"maxReceiveCount above KDS_CDC_RECEIVES_MAX ({s.receives_max}), better twice that",
        )


def _retention(s: Settings, days: float, dead_days: float) -> Iterator[Finding]:
    """What the queues really keep against what the settings say (`plain.settings` holds those together)."""
    if days >= s.journal_days:
        yield NOTE.error(
            f"messages live {days:g} days, the journal that answers for them {s.journal_days:g}",
            f"KDS_CDC_JOURNAL_DAYS above {days:g}",
        )
    for what, name, real_days, said_days in (
        ("messages", "QUEUE", days, s.queue_retention_days),
        ("dead letters", "DEAD_LETTER", dead_days, s.dead_letter_retention_days),
    ):
        if real_days > said_days:
            yield NOTE.warn(
                f"{what} live {real_days:g} days, the settings say {said_days:g}",
                f"KDS_CDC_{name}_RETENTION_DAYS={real_days:g}",
            )


def _days(found: Attributes) -> float:
    return int(found.get("MessageRetentionPeriod", "345600")) / _DAY_SECONDS
