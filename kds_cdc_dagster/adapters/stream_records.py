"""The steps of one stream's record that `core.decide` leaves to the stores, as pure functions.

The memory and the embedded store run them, the Redis scripts repeat them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import quote

from kds_cdc_dagster.core.decide import (
    DecideCall,
    DecideEffect,
    DecideReply,
    Pending,
    SettleCall,
    StreamState,
    applied,
    decide,
    settled,
)
from kds_cdc_dagster.ports import StreamRecord

HOLD_WITHOUT_REASON = "held"
STREAMS_REMEMBERED = 65_536
"""Addresses kept in the cache below, some 30 MB at most: hashing a name costs more than a dict look-up."""


class StreamAddress(NamedTuple):
    """How stores name a stream."""

    name: str
    """`source|stream`, percent-encoded, so that no character of either can be taken for the separator."""
    tag: str
    """16 hex digits that stand for the stream in a marker's key; only markers of equal identity could collide."""
    number: int
    """The tag as a signed 64-bit number."""


@lru_cache(STREAMS_REMEMBERED)
def stream_address(source: str, stream: str) -> StreamAddress:
    """The address of a stream; the same on every worker."""
    name = f"{quote(source, safe='')}|{quote(stream, safe='')}"
    tag = blake2b(name.encode(), digest_size=8).digest()
    return StreamAddress(name, tag.hex(), int.from_bytes(tag, signed=True))


def decided(
    record: StreamRecord, call: DecideCall, pending: Mapping[str, Pending], committed_markers: Mapping[str, str]
) -> tuple[DecideReply, DecideEffect, StreamRecord]:
    """Run the reference on a record and the live markers of the call; the record after its effect."""
    state = _state(record, pending, committed_markers)
    reply, effect = decide(state, call)
    if effect.parker is None:  # only parking touches the record
        return reply, effect, record
    return reply, effect, _with_state(record, applied(state, effect))


def settled_record(record: StreamRecord, call: SettleCall) -> StreamRecord:
    """The record after `call`. Informative fields are those of the settle that is latest by its own clock."""
    latest = call if call.settled_at_ms >= record.settled_at_ms else record
    return _with_state(latest, settled(_state(record, {}, {}), call))


def loaded_record(record: StreamRecord, rebuilt: StreamRecord) -> StreamRecord:
    """The record after a rebuild met it: nothing is lowered, a hold on either side stays."""
    newer, older = (rebuilt, record) if rebuilt.committed >= record.committed else (record, rebuilt)
    claims = {*record.parkers, *rebuilt.parkers}
    return replace(
        newer,
        row_position=max(record.row_position, rebuilt.row_position),
        lineage=newer.lineage or older.lineage,
        hold=record.hold or rebuilt.hold,
        hold_version=max(record.hold_version, rebuilt.hold_version),
        parkers={claim: max(record.parkers.get(claim, 0), rebuilt.parkers.get(claim, 0)) for claim in claims},
    )


def held_record(record: StreamRecord, reason: str) -> StreamRecord:
    """The record under a hold. A new hold raises the version, so that a release under way fails."""
    reason = reason or HOLD_WITHOUT_REASON
    if record.hold == reason:
        return record
    return replace(record, hold=reason, hold_version=record.hold_version + 1)


def unheld_record(record: StreamRecord) -> StreamRecord:
    """The record after its hold ended: everything parked was released, so the parkers go too."""
    return replace(record, hold="", parkers={})


def _state(record: StreamRecord, pending: Mapping[str, Pending], committed_markers: Mapping[str, str]) -> StreamState:
    return StreamState(
        committed=record.committed,
        row_position=record.row_position,
        lineage=record.lineage,
        hold=record.hold,
        hold_version=record.hold_version,
        parkers=record.parkers,
        pending=pending,
        committed_markers=committed_markers,
    )


def _with_state(informative: StreamRecord | SettleCall, state: StreamState) -> StreamRecord:
    """A record of `state`, with who and what was last from a record or a settle of the stream."""
    return StreamRecord(
        informative.source,
        informative.stream,
        state.committed,
        state.row_position,
        state.lineage,
        state.hold,
        state.hold_version,
        state.parkers,
        informative.message_id,
        informative.sequence_number,
        informative.worker,
        informative.settled_at_ms,
    )
