"""Calls to a state store in a line each: what its suites and property tests are written with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kds_cdc_dagster.core.decide import Candidate, DecideCall, DecideReply, SettleCall
from kds_cdc_dagster.core.position import counter, stream_order
from kds_cdc_dagster.ports import Marker, StateStore, StreamRecord

STREAM = "acct-001:0c5b…{7}|%7C a"
"""An odd name: braces, which Redis reads as a hash tag, the separator, an escape, beyond ASCII."""
Stores = Callable[[str], StateStore]
"""Pipeline -> a store on the same server or file; each call may be another client."""


def order(position: int, epoch: int = 0) -> str:
    """A dense stream order."""
    return stream_order(epoch, counter(position))


def identity(number: int) -> str:
    """An identity as `core` makes them."""
    return f"{number:032x}"


def content_hash(number: int) -> str:
    """A content hash as `core` makes them."""
    return f"{number:016x}"


def change(position: int, content: int = 0, **options: Any) -> Candidate:
    """The change at a position of a dense stream."""
    return Candidate(identity(position), content_hash(content), order(position), **options)


def snapshot_read(number: int) -> Candidate:
    """A snapshot read: no order."""
    return Candidate(identity(1000 + number), content_hash(number), None)


def call(*candidates: Candidate, claim: str = "a", slot: int = 1, stream: str = STREAM, **options: Any) -> DecideCall:
    """A decide call of a sparse stream, no floor."""
    return DecideCall("kdsprod", stream, claim, slot, options.pop("floor", ""), candidates, **options)


def settle_of(decided: DecideCall, **options: Any) -> SettleCall:
    """The settle of a segment that took every candidate of a call."""
    orders = [c.order for c in decided.candidates if c.order]
    markers = tuple((c.identity, c.content_hash) for c in decided.candidates)
    options.setdefault("committed", max(orders, default=""))
    return SettleCall(decided.source, decided.stream, decided.segment, markers, **options)


def verdicts(reply: DecideReply) -> list[str]:
    """The verdicts as text."""
    return [str(result.verdict) for result in reply.results]


def begun(store: StateStore, streams: Sequence[StreamRecord] = (), markers: Sequence[Marker] = ()) -> str:
    """A finished life."""
    life = store.begin_life()
    assert store.load(life, streams, markers)
    assert store.finish_life(life)
    return life
