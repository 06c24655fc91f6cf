"""What one FIFO group can do at most here: ten messages for the time from their receive to their delete."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator

from kds_cdc_dagster.doctor.finding import Finding, Notes
from kds_cdc_dagster.doctor.store import PROBES
from kds_cdc_dagster.intake.collect import RECEIVE_MAX
from kds_cdc_dagster.wiring import Pipeline

NOTE = Notes("queue")
QUEUE_CALLS, STATE_CALLS = 2, 2
"""Of a round: receive and delete; decide and settle. Between them one put."""
TRIES = 3
ROUND_BYTES = 20_000


def look(parts: Pipeline) -> Iterator[Finding]:
    """Times the calls of a round, best of three. One group may be all of a queue (a static group)."""
    queue_seconds = _best(parts.inbox.depth)
    state_seconds = _best(parts.state.life)
    keys = [f"{PROBES}{secrets.token_hex(8)}" for _ in range(TRIES)]
    unused = iter(keys)
    put_seconds = _best(lambda: parts.store.create(next(unused), bytes(ROUND_BYTES)))
    parts.store.delete(keys)
    round_seconds = QUEUE_CALLS * queue_seconds + STATE_CALLS * state_seconds + put_seconds
    reach = f"{RECEIVE_MAX / round_seconds:.0f} messages a second ({RECEIVE_MAX} / {round_seconds * 1000:.1f} ms)"
    yield NOTE.info(
        f"one group's ceiling here, from receive to delete, is about {reach}, however many workers there are",
        "more groups: one per store (README, The publisher contract)",
    )
    if any(source.stream.from_ == "payload" for source in parts.catalogue.sources):
        yield NOTE.info("a source puts all stores into one static group: the ceiling is that of the whole source")


def _best(call: Callable[[], object]) -> float:
    """Seconds."""
    found = []
    for _ in range(TRIES):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return max(min(found), 1e-6)
