"""What goes over the wire to the Redis scripts and comes back: packed calls, replies and records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from kds_cdc_dagster.adapters.stream_records import stream_name, stream_tag
from kds_cdc_dagster.core.decide import DecideCall, DecideReply, Result, SettleCall, Verdict
from kds_cdc_dagster.errors import InvariantBroken
from kds_cdc_dagster.ports import Marker, StreamRecord

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode

IDENTITY_BYTES = 16
CONTENT_HASH_BYTES = 8

_LETTERS = {
    "a": Result(Verdict.ACCEPTED),
    "A": Result(Verdict.ACCEPTED_GAP),
    "g": Result(Verdict.GAP),
    "d": Result(Verdict.SAFE_DUPLICATE),
    "s": Result(Verdict.SUSPICIOUS_DUPLICATE),
    "o": Result(Verdict.STALE),
    "p": Result(Verdict.PARKED),
}
_IN_DOUBT = "i"


def decide_arguments(calls: Sequence[DecideCall]) -> list[bytes]:
    """ARGV[2] to ARGV[5] of decide.lua."""
    rows = [
        (
            stream_name(call.source, call.stream),
            call.segment,
            call.claim,
            call.slot,
            call.floor,
            call.is_dense,
            call.on_gap,
            call.is_release,
            call.known_absent,
            [c.order or "" for c in call.candidates],
            [i for i, c in enumerate(call.candidates, 1) if c.declared_new],
        )
        for call in calls
    ]
    return [
        _pack(rows),
        _raw([c.identity for call in calls for c in call.candidates], IDENTITY_BYTES),
        _raw([c.content_hash for call in calls for c in call.candidates], CONTENT_HASH_BYTES),
        b"".join([stream_tag(call.source, call.stream) for call in calls]),
    ]


def settle_arguments(calls: Sequence[SettleCall]) -> list[bytes]:
    """ARGV[2] to ARGV[5] of settle.lua."""
    rows = [
        (
            stream_name(call.source, call.stream),
            len(call.markers),
            call.committed,
            call.row_position,
            call.lineage,
            call.message_id,
            call.sequence_number,
            call.worker,
            call.settled_at_ms,
        )
        for call in calls
    ]
    return [
        _pack(rows),
        _raw([identity for call in calls for identity, _ in call.markers], IDENTITY_BYTES),
        _raw([content_hash for call in calls for _, content_hash in call.markers], CONTENT_HASH_BYTES),
        b"".join([stream_tag(call.source, call.stream) for call in calls]),
    ]


def load_arguments(streams: Sequence[StreamRecord], markers: Sequence[Marker]) -> list[bytes]:
    """ARGV[2] to ARGV[5] of load.lua."""
    return [
        _pack([(stream_name(record.source, record.stream), _packed(record)) for record in streams]),
        _raw([marker.identity for marker in markers], IDENTITY_BYTES),
        _raw([marker.content_hash for marker in markers], CONTENT_HASH_BYTES),
        b"".join([stream_tag(marker.source, marker.stream) for marker in markers]),
    ]


def decide_replies(packed: bytes) -> list[DecideReply]:
    """Replies of decide.lua, in the order of its calls."""
    return [
        DecideReply(
            _doubtful_results(verdicts, doubts) if doubts else _results(verdicts), committed, row, lineage, hold
        )
        for committed, row, lineage, hold, verdicts, doubts in _unpack(packed)
    ]


def record_of(source: str, stream: str, packed: bytes) -> StreamRecord:
    """A packed record of hash `order`."""
    *front, message_id, sequence_number, worker, settled_at_ms, parkers = _unpack(packed)
    flat = list(parkers)  # claim, slot, claim, slot, ...
    return StreamRecord(
        source,
        stream,
        *front,
        parkers=dict(zip(flat[::2], flat[1::2], strict=True)),
        message_id=message_id,
        sequence_number=sequence_number,
        worker=worker,
        settled_at_ms=settled_at_ms,
    )


def _packed(record: StreamRecord) -> tuple[Any, ...]:
    return (
        record.committed,
        record.row_position,
        record.lineage,
        record.hold,
        record.hold_version,
        record.message_id,
        record.sequence_number,
        record.worker,
        record.settled_at_ms,
        [item for parker in record.parkers.items() for item in parker],
    )


@lru_cache(4096)
def _results(verdicts: str) -> tuple[Result, ...]:
    """Most calls end alike: results are frozen, so replies share them."""
    return tuple([_LETTERS[letter] for letter in verdicts])


def _doubtful_results(verdicts: str, doubts: Iterable[str]) -> tuple[Result, ...]:
    segments = iter(doubts)
    return tuple([Result(Verdict.IN_DOUBT, next(segments)) if v == _IN_DOUBT else _LETTERS[v] for v in verdicts])


def _raw(texts: list[str], size_bytes: int) -> bytes:
    """Hex texts as raw bytes, end to end: half the size in the store. Raises InvariantBroken."""
    try:
        raw = bytes.fromhex("".join(texts))
    except ValueError:
        raw = b""
    if len(raw) != size_bytes * len(texts) or set(map(len, texts)) - {2 * size_bytes}:
        raise InvariantBroken("identities and content hashes are hex of fixed width", digits=2 * size_bytes)
    return raw
