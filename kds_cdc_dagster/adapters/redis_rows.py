"""What goes over the wire to the Redis scripts and comes back: packed calls, replies and records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

import msgspec

from kds_cdc_dagster.adapters.stream_records import stream_address
from kds_cdc_dagster.core.decide import ACCEPTED, DecideCall, DecideReply, Result, SettleCall, Verdict
from kds_cdc_dagster.errors import InvariantBroken
from kds_cdc_dagster.ports import Marker, StreamRecord

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode

MARK_BYTES = 32
"""Stream tag (8), identity (16) and content hash (8)."""
_RECORD_VALUES = 10
_REPLY_VALUES = _RECORD_VALUES + 3

_LETTERS = {
    "a": ACCEPTED,
    "A": Result(Verdict.ACCEPTED_GAP),
    "g": Result(Verdict.GAP),
    "d": Result(Verdict.SAFE_DUPLICATE),
    "s": Result(Verdict.SUSPICIOUS_DUPLICATE),
    "o": Result(Verdict.STALE),
    "p": Result(Verdict.PARKED),
}
_IN_DOUBT = "i"


def decide_arguments(calls: Sequence[DecideCall]) -> list[bytes]:
    """ARGV[2] and ARGV[3] of decide.lua. Plain lists: this runs for every message."""
    rows: list[str | int] = []
    heads: dict[tuple[object, ...], int] = {}
    marks: list[str] = []
    orders: list[str] = []
    late: list[int] = []
    for call in calls:
        name, tag, _ = stream_address(call.source, call.stream)
        head = (call.claim, call.slot, call.is_dense, call.on_gap, call.is_release, call.known_absent)
        candidates = call.candidates
        rows += (name, call.floor, len(candidates), heads.setdefault(head, len(heads) + 1))
        late += [place for place, one in enumerate(candidates, len(marks) + 1) if one.declared_new]
        marks += [tag + one.identity + one.content_hash for one in candidates]
        orders += [one.order or "" for one in candidates]
    request = _pack((rows, list(heads), orders, late))
    return [request, _raw(marks)]


def settle_arguments(calls: Sequence[SettleCall]) -> list[bytes]:
    """ARGV[2] and ARGV[3] of settle.lua."""
    rows: list[str | int] = []
    runs = [len(call.markers) for call in calls if call.markers]
    marks: list[str] = []
    for call in calls:
        name, tag, _ = stream_address(call.source, call.stream)
        rows += (name, call.committed, call.row_position, call.lineage)
        rows += (call.message_id, call.sequence_number, call.worker, call.settled_at_ms)
        marks += [tag + identity + content_hash for identity, content_hash in call.markers]
    return [_pack((rows, runs)), _raw(marks)]


def load_arguments(streams: Sequence[StreamRecord], markers: Sequence[Marker]) -> list[bytes]:
    """ARGV[2] and ARGV[3] of load.lua."""
    rows: list[str | int] = []
    for record in streams:
        rows += (stream_address(record.source, record.stream).name, *_values(record))
    tags = [stream_address(marker.source, marker.stream).tag for marker in markers]
    runs = [len(list(run)) for _, run in groupby(tags)]
    marks = [tag + marker.identity + marker.content_hash for tag, marker in zip(tags, markers, strict=True)]
    return [_pack((rows, runs)), _raw(marks)]


def decide_replies(packed: bytes, count: int) -> list[DecideReply]:
    """Replies of decide.lua to `count` calls, in their order."""
    values = iter(_unpacked(packed, count * _REPLY_VALUES))
    replies = []
    for reply in zip(*[values] * _REPLY_VALUES, strict=True):
        committed, row_position, lineage, hold, _, _, _, _, _, _, verdicts, new_hold, doubts = reply
        results = _doubtful_results(verdicts, doubts) if doubts else _results(verdicts)
        replies.append(DecideReply(results, committed, row_position, lineage, hold or new_hold))
    return replies


def record_of(source: str, stream: str, packed: bytes) -> StreamRecord:
    """A packed record of hash `order`."""
    *values, parkers = _unpacked(packed, _RECORD_VALUES)
    committed, row_position, lineage, hold, hold_version, *informative = values
    flat = json.loads(parkers or "[]")
    by_claim = dict(zip(flat[::2], flat[1::2], strict=True))
    return StreamRecord(source, stream, committed, row_position, lineage, hold, hold_version, by_claim, *informative)


def _values(record: StreamRecord) -> tuple[str | int, ...]:
    flat = [item for parker in record.parkers.items() for item in parker]
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
        json.dumps(flat) if flat else "",
    )


def _unpacked(packed: bytes, count: int) -> list[Any]:
    """`count` values that stand one after the other: msgpack's header of a long list makes them one."""
    values: list[Any] = _unpack(b"\xdd" + count.to_bytes(4) + packed)
    return values


@lru_cache(4096)
def _results(verdicts: str) -> tuple[Result, ...]:
    """Most calls end alike: results are frozen, so replies share them."""
    return tuple([_LETTERS[letter] for letter in verdicts])


def _doubtful_results(verdicts: str, doubts: Iterable[str]) -> tuple[Result, ...]:
    segments = iter(doubts)
    return tuple([Result(Verdict.IN_DOUBT, next(segments)) if v == _IN_DOUBT else _LETTERS[v] for v in verdicts])


def _raw(marks: list[str]) -> bytes:
    """Hex texts as raw bytes, end to end: half the size in the store. Raises InvariantBroken."""
    try:
        raw = bytes.fromhex("".join(marks))
    except ValueError:
        raw = b""
    if len(raw) != MARK_BYTES * len(marks) or set(map(len, marks)) - {2 * MARK_BYTES}:
        raise InvariantBroken("identities and content hashes are hex of fixed width", mark_bytes=MARK_BYTES)
    return raw
