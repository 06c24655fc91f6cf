"""State store in Redis or Valkey, on one server or a cluster: the reference repeated in Lua.

Streams are spread over a fixed number of shards. All keys of a shard carry its hash tag and so sit in
one slot; names of streams are fields, percent-encoded, never parts of a key (RED-01):

===========================  =====================================================================
{<pipeline>:<n>/<of>}:life   the shard's sentinel: life id, finished, the server's replication id
...:order                    stream -> packed record (committed, hold, parkers, last message, ...)
...:pend:<generation>        stream tag -> packed segments, identities and content hashes, in flight
...:dup:<bucket>             stream tag and identity -> content hash, committed; dies with its bucket
===========================  =====================================================================

One script call decides many streams of one shard and checks the shard's life in the same step. A store
whose server has another replication id than at the life's beginning (failover, restart) may have lost
acknowledged writes: its life counts as lost. A first replica, or the loss of the last one for an hour,
changes that id too; the rebuild is then needless but harmless.

`order` has no time to live: the server must run with maxmemory-policy noeviction (`findings`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, unquote

from kds_cdc_dagster.adapters import redis_scripts
from kds_cdc_dagster.adapters.life_ids import LEASE_SECONDS, is_leased, next_life
from kds_cdc_dagster.adapters.marker_window import MarkerWindow
from kds_cdc_dagster.adapters.redis_findings import ServerFinding, findings
from kds_cdc_dagster.adapters.redis_rows import (
    decide_arguments,
    decide_replies,
    load_arguments,
    record_of,
    settle_arguments,
)
from kds_cdc_dagster.adapters.redis_turns import Turn, Turns
from kds_cdc_dagster.adapters.stream_records import HOLD_WITHOUT_REASON, stream_address
from kds_cdc_dagster.core.decide import DecideCall, DecideReply, SettleCall
from kds_cdc_dagster.errors import StateNotReady
from kds_cdc_dagster.ports import Clock, Marker, StreamRecord

SHARDS = 32
"""Enough to spread a cluster's nodes; a round's turn has at least so many script calls."""
_CALLS_MAX = 500
"""Streams in one script call: it blocks the server for about 10 ms at most."""
_TURNS_MAX = 64
"""Script calls in one network turn of a rebuild, so that buffers stay in the megabytes."""
_SLACK_SECONDS = 60
"""Keys outlive their markers by this much: which markers live is told by the bucket's number alone."""


class _OfStream(Protocol):
    @property
    def source(self) -> str: ...
    @property
    def stream(self) -> str: ...


_Call = TypeVar("_Call", bound=_OfStream)


class RedisState:
    """`StateStore` over `url` (redis:// or rediss://, a cluster is recognised); connects at the first call."""

    def __init__(
        self,
        url: str,
        pipeline: str,
        clock: Clock,
        *,
        window: MarkerWindow | None = None,
        timeout_seconds: float = 2.0,
    ) -> None:
        self._clock = clock
        self._window = window or MarkerWindow()
        self._turns = Turns(url, timeout_seconds)
        self._prefixes = [f"{{{quote(pipeline, safe='')}:{shard}/{SHARDS}}}:" for shard in range(SHARDS)]

    def life(self) -> str | None:
        """Id of the finished life that every shard carries, or None: rebuild first."""
        found = set(self._lives())
        id_, state = found.pop()
        return id_ if not found and state == "finished" else None

    def begin_life(self, *, is_yielding: bool = False) -> str | None:
        """Start a rebuild under a new life id. Of several that yield the first shard chooses one."""
        seen = self._turns.run([self._lease_turn("", "read")])[0]
        lives = self._lives()  # in this order: who finishes in between is seen here, or changes what was seen there
        life = next_life(max(id_ for id_, _ in lives))
        if is_yielding:
            is_finished = set(lives) == {(lives[0][0], "finished")}
            if is_finished or is_leased(int(seen[2] or 0) / 1000, self._clock.now()):
                return None
            if self._turns.run([self._lease_turn(life, "begin", *seen)]) == [0]:
                return None
        self._on_every_shard(life, "begin")
        self._turns.run([self._lease_turn(life, "renew")])
        return life

    def load(self, life: str, streams: Sequence[StreamRecord], markers: Sequence[Marker]) -> bool:
        """Load rebuilt state into the unfinished life; never lowers anything.

        False when another life has begun on any shard. What a shard of this life has taken by then
        are durable facts, of which nothing is lowered: they hurt no other life.
        """
        turns = [self._lease_turn(life, "renew")]
        turns += [self._load_turn(life, shard, [streams[i] for i in part], []) for shard, part in _parts(streams)]
        turns += [self._load_turn(life, shard, [], [markers[i] for i in part]) for shard, part in _parts(markers)]
        for first in range(0, len(turns), _TURNS_MAX):
            if 0 in self._turns.run(turns[first : first + _TURNS_MAX]):
                return False
        return True

    def finish_life(self, life: str) -> bool:
        """Open the rebuilt life for decisions; False when another life has begun since."""
        if any(id_ != life or state == "lost" for id_, state in self._lives()):
            return False
        return 0 not in self._on_every_shard(life, "finish")

    def decide(self, life: str, calls: Sequence[DecideCall]) -> list[DecideReply]:
        """`core.decide.decide` for each call, all in one network turn (a cluster: one a shard).

        On StateNotReady other shards may have written pending markers: as after a lost reply.
        """
        parts = list(_parts(calls))
        ttl = self._ttl_seconds(self._window.pending_until(self._clock.now()))
        turns = [
            Turn(
                redis_scripts.DECIDE,
                self._keys(shard, self._window.buckets(self._clock.now())),
                [life, *decide_arguments([calls[i] for i in part]), ttl],
            )
            for shard, part in parts
        ]
        replies: dict[int, DecideReply] = {}
        for (_, part), packed in zip(parts, self._run_in_life(life, turns), strict=True):
            replies.update(zip(part, decide_replies(packed, len(part)), strict=True))
        return [replies[i] for i in range(len(calls))]

    def settle(self, life: str, calls: Sequence[SettleCall]) -> None:
        """`core.decide.settled` for each call. Repeating it changes nothing."""
        turns = [
            self._marking_turn(redis_scripts.SETTLE, life, shard, settle_arguments([calls[i] for i in part]))
            for shard, part in _parts(calls)
        ]
        self._run_in_life(life, turns)

    def hold(self, life: str, source: str, stream: str, reason: str) -> None:
        """Hold a stream: from now on its new changes are parked."""
        self._hold(life, source, stream, "hold", reason or HOLD_WITHOUT_REASON)

    def unhold(self, life: str, source: str, stream: str, hold_version: int) -> bool:
        """End a hold if nothing was parked since `hold_version`; False otherwise."""
        is_done: bool = self._hold(life, source, stream, "unhold", hold_version) == 1
        return is_done

    def stream(self, source: str, stream: str) -> StreamRecord | None:
        """One stream's record."""
        key = self._prefixes[_shard(source, stream)] + "order"
        with self._turns.sorted_errors():
            packed = self._turns.client().hget(key, stream_address(source, stream).name)
        return record_of(source, stream, packed) if packed else None

    def streams(self, *, held_only: bool = False) -> Iterator[StreamRecord]:
        """All streams of the pipeline, in no order."""
        for prefix in self._prefixes:
            seen: set[bytes] = set()  # a scan may show a field twice
            with self._turns.sorted_errors():
                for name, packed in self._turns.client().hscan_iter(prefix + "order", count=1000):
                    source, stream = map(unquote, name.decode().split("|"))
                    record = record_of(source, stream, packed)
                    if name not in seen and (record.hold or not held_only):
                        yield record
                    seen.add(name)

    def findings(self) -> list[ServerFinding]:
        """What an operator should change on the servers; empty if nothing (`kds-cdc doctor`)."""
        with self._turns.sorted_errors():
            return [found for server in self._turns.servers() for found in findings(server)]

    def close(self) -> None:
        """Give connections back."""
        self._turns.close()

    def _lives(self) -> list[tuple[str, str]]:
        """(id or '', state) of each shard."""
        return [(id_.decode(), state.decode()) for id_, state in self._on_every_shard("", "read")]

    def _on_every_shard(self, life: str, act: str) -> list[Any]:
        return self._turns.run([Turn(redis_scripts.LIFE, [prefix + "life"], [life, act]) for prefix in self._prefixes])

    def _hold(self, life: str, source: str, stream: str, *args: str | int) -> Any:
        prefix = self._prefixes[_shard(source, stream)]
        keys = [prefix + "life", prefix + "order"]
        turn = Turn(redis_scripts.HOLD, keys, [life, stream_address(source, stream).name, *args])
        return self._run_in_life(life, [turn])[0]

    def _lease_turn(self, life: str, act: str, *seen: bytes) -> Turn:
        until_ms = int((self._clock.now() + LEASE_SECONDS) * 1000)
        return Turn(redis_scripts.LEASE, [self._prefixes[0] + "life"], [life, act, until_ms, *seen])

    def _load_turn(self, life: str, shard: int, streams: list[StreamRecord], markers: list[Marker]) -> Turn:
        return self._marking_turn(redis_scripts.LOAD, life, shard, load_arguments(streams, markers))

    def _marking_turn(self, script: redis_scripts.Script, life: str, shard: int, arguments: list[bytes]) -> Turn:
        """A call that commits markers: they all go into the bucket of now."""
        now = self._clock.now()
        keys = self._keys(shard, [self._window.bucket(now)])
        return Turn(script, keys, [life, *arguments, self._ttl_seconds(self._window.committed_until(now))])

    def _keys(self, shard: int, buckets: Sequence[int]) -> list[str]:
        prefix = self._prefixes[shard]
        pending = [f"{prefix}pend:{generation}" for generation in self._window.generations(self._clock.now())]
        return [prefix + "life", prefix + "order", *pending, *[f"{prefix}dup:{bucket}" for bucket in buckets]]

    def _ttl_seconds(self, until: int) -> int:
        return int(until - self._clock.now()) + _SLACK_SECONDS

    def _run_in_life(self, life: str, turns: Sequence[Turn]) -> list[Any]:
        replies = self._turns.run(turns)
        if 0 in replies:
            raise StateNotReady("the state store does not carry this life", life=life)
        return replies


def _shard(source: str, stream: str) -> int:
    return stream_address(source, stream).number % SHARDS


def _parts(calls: Sequence[_Call]) -> Iterator[tuple[int, list[int]]]:
    """(shard, indices of calls of its streams), in order, at most `_CALLS_MAX` calls each."""
    by_shard: dict[int, list[int]] = {}
    for index, call in enumerate(calls):
        by_shard.setdefault(stream_address(call.source, call.stream).number % SHARDS, []).append(index)
    for shard, indices in by_shard.items():
        for first in range(0, len(indices), _CALLS_MAX):
            yield shard, indices[first : first + _CALLS_MAX]
