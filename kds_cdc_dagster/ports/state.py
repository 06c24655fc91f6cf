"""Shared ordering and duplicate state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from kds_cdc_dagster.core.decide import DecideCall, DecideReply, SettleCall


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """What is known of one stream, for status, holds and rebuilds."""

    source: str
    stream: str
    committed: str = ""
    row_position: str = ""
    lineage: str = ""
    hold: str = ""
    hold_version: int = 0
    parkers: Mapping[str, int] = field(default_factory=dict)
    message_id: str = ""
    sequence_number: str = ""
    worker: str = ""
    settled_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Marker:
    """A committed marker, as a rebuild loads it."""

    source: str
    stream: str
    identity: str
    content_hash: str


@runtime_checkable
class StateStore(Protocol):
    """Shared ordering and duplicate state, scoped by pipeline; one atomic step per stream and call.

    *Life*: the store carries a sentinel. A store without one was emptied (or is new): it must be
    rebuilt from durable records before anything is decided. Calls name the life they belong to and
    raise StateNotReady, having changed nothing, when it is not the store's current, finished life.
    All methods raise StateUnavailable when the store cannot be reached.
    """

    def life(self) -> str | None:
        """Id of the finished life, or None: rebuild first."""
        ...

    def begin_life(self, *, is_yielding: bool = False) -> str | None:
        """Start a rebuild under a new life id. Nothing is decided until `finish_life`.

        Yielding, it gives None and changes nothing where a life is finished, or where another rebuild is under
        way: one that began, or called `load`, less than a lease ago.
        """
        ...

    def load(self, life: str, streams: Sequence[StreamRecord], markers: Sequence[Marker]) -> bool:
        """Load rebuilt state into the unfinished life; never lowers anything.

        False, with nothing written, when another life has begun since. Renews the lease, also with nothing to load.
        """
        ...

    def finish_life(self, life: str) -> bool:
        """Open the rebuilt life for decisions; False when another life has begun since."""
        ...

    def decide(self, life: str, calls: Sequence[DecideCall]) -> list[DecideReply]:
        """`core.decide.decide` for each call, each atomic, all in one network turn."""
        ...

    def settle(self, life: str, calls: Sequence[SettleCall]) -> None:
        """`core.decide.settled` for each call. Repeating it changes nothing."""
        ...

    def hold(self, life: str, source: str, stream: str, reason: str) -> None:
        """Hold a stream: from now on its new changes are parked."""
        ...

    def unhold(self, life: str, source: str, stream: str, hold_version: int) -> bool:
        """End a hold if nothing was parked since `hold_version`; False otherwise."""
        ...

    def stream(self, source: str, stream: str) -> StreamRecord | None:
        """One stream's record."""
        ...

    def streams(self, *, held_only: bool = False) -> Iterator[StreamRecord]:
        """All streams of the pipeline, in no order."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...
