"""The SQS queue from settings. Nothing is connected until the first call."""

from __future__ import annotations

from functools import partial

import msgspec

from kds_cdc_dagster.adapters.sqs_access import SqsAccess
from kds_cdc_dagster.adapters.sqs_inbox import SqsInbox
from kds_cdc_dagster.adapters.sqs_large_bodies import LargeBodies
from kds_cdc_dagster.adapters.sqs_outbound import SqsDeadLetters, SqsOutbound
from kds_cdc_dagster.adapters.sqs_wire import SqsWire
from kds_cdc_dagster.errors import SettingsError
from kds_cdc_dagster.ports import Clock, Outbound
from kds_cdc_dagster.settings import Settings

PARALLEL_MIN = 4
"""Batch calls at once, where there are few receivers: a round's deletes are many calls of ten. With a single
receiver all calls go one by one."""


def open_inbox(settings: Settings, *, clock: Clock) -> SqsInbox:
    """The change queue's read side. Raises SettingsError for a queue that is not FIFO."""
    dead_url = settings.sqs_dead_letter_url
    access = _access(settings, settings.sqs_queue_url)
    follows = settings.sqs_large_bodies == "s3"
    return SqsInbox(
        _wire(settings, settings.sqs_queue_url, clock),
        visibility_seconds=settings.visibility_seconds,
        dead_letters=_wire(settings, dead_url, clock) if dead_url else None,
        large_bodies=LargeBodies(partial(access.client, "s3"), size_bytes_max=settings.body_bytes_max)
        if follows
        else None,
        parallel=_parallel(settings),
    )


def open_dead_letters(settings: Settings, queue: Outbound, *, clock: Clock) -> SqsDeadLetters:
    """The dead-letter queue; `queue` takes what is redriven. Bodies stay as they are, pointers too.

    Raises SettingsError without its address.
    """
    if not settings.sqs_dead_letter_url:
        raise SettingsError("the dead-letter queue is not known", variable="KDS_CDC_SQS_DEAD_LETTER_URL")
    wire = _wire(settings, settings.sqs_dead_letter_url, clock)
    return SqsDeadLetters(SqsInbox(wire, visibility_seconds=settings.visibility_seconds), queue)


def open_outbound(settings: Settings, *, clock: Clock) -> SqsOutbound:
    """The change queue's write side."""
    return SqsOutbound(_wire(settings, settings.sqs_queue_url, clock), parallel=_parallel(settings))


def queue_attributes(settings: Settings, queue_url: str, *, clock: Clock) -> dict[str, str]:
    """All attributes of a queue. Raises SettingsError, TransientError."""
    wire = _wire(settings, queue_url, clock)
    try:
        reply = wire.ask("GetQueueAttributes", {"AttributeNames": ["All"]})
        return msgspec.json.decode(reply, type=dict[str, dict[str, str]])["Attributes"]
    finally:
        wire.close()


def _access(settings: Settings, queue_url: str) -> SqsAccess:
    return SqsAccess(
        queue_url,
        role_arn=settings.sqs_role_arn,
        region=settings.aws_region,
        endpoint_url=settings.aws_endpoint_url,
    )


def _wire(settings: Settings, queue_url: str, clock: Clock) -> SqsWire:
    connections_max = settings.receivers + _parallel(settings)
    return SqsWire(_access(settings, queue_url), clock=clock, connections_max=connections_max)


def _parallel(settings: Settings) -> int:
    return 1 if settings.receivers == 1 else max(PARALLEL_MIN, settings.receivers)
