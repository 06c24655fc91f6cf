"""Parts of a round: the state store decides about one while the next is being parsed.

Only streams that are message groups are asked about early: nothing of them can come in a later part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

from kds_cdc_dagster.core.change import Delivery

PART_MESSAGES = 1_000
"""Some fifteen milliseconds of parsing: as long as the store takes for them."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """How a round works ahead: calls that wait for others run on `executor` meanwhile."""

    executor: Executor
    """One thread is enough, and keeps the calls in order."""
    part_messages: int
    """Smaller parts hide more of the waiting and cost more calls."""


def ahead() -> Ahead:
    """For a state store that is a server."""
    return Ahead(ThreadPoolExecutor(1, thread_name_prefix="ahead"), PART_MESSAGES)


def parts_of(deliveries: Sequence[Delivery], messages: int) -> Iterator[Sequence[Delivery]]:
    """The deliveries in their order, cut where at least so many are together and no group goes on."""
    last = {delivery.group_id: place for place, delivery in enumerate(deliveries)}
    start = until = 0
    for place, delivery in enumerate(deliveries):
        until = max(until, last[delivery.group_id])
        if until == place and place - start + 1 >= messages:
            yield deliveries[start : place + 1]
            start = place + 1
    if start < len(deliveries):
        yield deliveries[start:]
