"""State store in this process: dicts around the reference. For simulation and benchmarks.

It can forget on command what a real store may forget: one marker, or everything.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from kds_cdc_dagster.adapters.life_ids import LEASE_SECONDS, is_leased, next_life
from kds_cdc_dagster.adapters.marker_window import MarkerWindow
from kds_cdc_dagster.adapters.stream_records import (
    decided,
    held_record,
    loaded_record,
    settled_record,
    unheld_record,
)
from kds_cdc_dagster.core.decide import DecideCall, DecideReply, Pending, SettleCall
from kds_cdc_dagster.errors import StateNotReady
from kds_cdc_dagster.ports import Clock, Marker, StreamRecord

_Key = tuple[str, str]


class _Committed(NamedTuple):
    content_hash: str
    until: int


class _InFlight(NamedTuple):
    mark: Pending
    until: int


_Mark = TypeVar("_Mark", _Committed, _InFlight)


class _Life(NamedTuple):
    id: str
    is_finished: bool


class MemoryState:
    """`StateStore` in dicts; safe for threads. Markers live by `window` on the injected clock."""

    def __init__(self, clock: Clock, window: MarkerWindow | None = None) -> None:
        self._clock = clock
        self._window = window or MarkerWindow()
        self._lock = threading.RLock()
        self._swept_bucket = -1
        self.forget_everything()

    def forget_everything(self) -> None:
        """What a flush does."""
        with self._lock:
            self._life: _Life | None = None
            self._leased_until = 0.0
            self._records: dict[_Key, StreamRecord] = {}
            self._pending: dict[_Key, dict[str, _InFlight]] = {}
            self._committed: dict[_Key, dict[str, _Committed]] = {}

    def forget_marker(self, source: str, stream: str, identity: str) -> None:
        """What the end of a marker's time does, before its time."""
        with self._lock:
            self._pending.get((source, stream), {}).pop(identity, None)
            self._committed.get((source, stream), {}).pop(identity, None)

    def life(self) -> str | None:
        """Id of the finished life, or None: rebuild first."""
        life = self._life
        return life.id if life and life.is_finished else None

    def begin_life(self, *, is_yielding: bool = False) -> str | None:
        """Start a rebuild under a new life id."""
        with self._lock:
            now = self._clock.now()
            if is_yielding and self._life and (self._life.is_finished or is_leased(self._leased_until, now)):
                return None
            self._leased_until = now + LEASE_SECONDS
            self._life = _Life(next_life(self._life.id if self._life else ""), is_finished=False)
            return self._life.id

    def load(self, life: str, streams: Sequence[StreamRecord], markers: Sequence[Marker]) -> bool:
        """Load rebuilt state into the unfinished life; never lowers anything."""
        with self._lock:
            if self._life != (life, False):
                return False
            self._leased_until = self._clock.now() + LEASE_SECONDS
            for rebuilt in streams:
                key = (rebuilt.source, rebuilt.stream)
                self._records[key] = loaded_record(self._record(key), rebuilt)
            until = self._window.committed_until(self._clock.now())
            for marker in markers:
                self._commit((marker.source, marker.stream), marker.identity, marker.content_hash, until)
            return True

    def finish_life(self, life: str) -> bool:
        """Open the rebuilt life for decisions; False when another life has begun since."""
        with self._lock:
            if self._life is None or self._life.id != life:
                return False
            self._life = _Life(life, is_finished=True)
            return True

    def decide(self, life: str, calls: Sequence[DecideCall]) -> list[DecideReply]:
        """`core.decide.decide` for each call."""
        with self._lock:
            self._check(life)
            self._sweep()
            return [self._decide(call) for call in calls]

    def settle(self, life: str, calls: Sequence[SettleCall]) -> None:
        """`core.decide.settled` for each call."""
        with self._lock:
            self._check(life)
            until = self._window.committed_until(self._clock.now())
            for call in calls:
                key = (call.source, call.stream)
                self._records[key] = settled_record(self._record(key), call)
                for identity, content_hash in call.markers:
                    self._commit(key, identity, content_hash, until)

    def hold(self, life: str, source: str, stream: str, reason: str) -> None:
        """Hold a stream: from now on its new changes are parked."""
        with self._lock:
            self._check(life)
            self._records[source, stream] = held_record(self._record((source, stream)), reason)

    def unhold(self, life: str, source: str, stream: str, hold_version: int) -> bool:
        """End a hold if nothing was parked since `hold_version`; False otherwise."""
        with self._lock:
            self._check(life)
            record = self._record((source, stream))
            if record.hold_version != hold_version:
                return False
            if record.hold:
                self._records[source, stream] = unheld_record(record)
            return True

    def stream(self, source: str, stream: str) -> StreamRecord | None:
        """One stream's record."""
        return self._records.get((source, stream))

    def streams(self, *, held_only: bool = False) -> Iterator[StreamRecord]:
        """All streams of the pipeline, in no order."""
        with self._lock:
            records = list(self._records.values())
        return (record for record in records if record.hold or not held_only)

    def close(self) -> None:
        """Nothing to give back."""

    def _check(self, life: str) -> None:
        if self._life != (life, True):
            raise StateNotReady("the state store does not carry this life", life=life, store=self._life)

    def _record(self, key: _Key) -> StreamRecord:
        return self._records.get(key) or StreamRecord(*key)

    def _decide(self, call: DecideCall) -> DecideReply:
        key, now = (call.source, call.stream), self._clock.now()
        pending, committed = self._pending.get(key, {}), self._committed.get(key, {})
        wanted = {candidate.identity for candidate in call.candidates}
        reply, effect, record = decided(
            self._record(key),
            call,
            {i: pending[i].mark for i in wanted if i in pending and pending[i].until > now},
            {i: committed[i].content_hash for i in wanted if i in committed and committed[i].until > now},
        )
        if effect.parker is not None:
            self._records[key] = record
        until = self._window.pending_until(now)
        for identity, mark in effect.pending.items():
            self._pending.setdefault(key, {})[identity] = _InFlight(mark, until)
        return reply

    def _commit(self, key: _Key, identity: str, content_hash: str, until: int) -> None:
        self._committed.setdefault(key, {})[identity] = _Committed(content_hash, until)
        self._pending.get(key, {}).pop(identity, None)

    def _sweep(self) -> None:
        """Drop dead markers, once per bucket: the cost is spread over the calls of a bucket."""
        now = self._clock.now()
        if self._swept_bucket == self._window.bucket(now):
            return
        self._swept_bucket = self._window.bucket(now)
        self._pending = _alive(self._pending, now)
        self._committed = _alive(self._committed, now)


def _alive(marks: dict[_Key, dict[str, _Mark]], now: float) -> dict[_Key, dict[str, _Mark]]:
    kept = {key: {i: mark for i, mark in of_stream.items() if mark.until > now} for key, of_stream in marks.items()}
    return {key: of_stream for key, of_stream in kept.items() if of_stream}
