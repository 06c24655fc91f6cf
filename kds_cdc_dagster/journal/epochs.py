"""Epochs of a source: stretches in which its positions compare. Durable, opened one after the other.

A source is *held* while its current epoch has a lineage hold: its new history must not be mixed with the
old one until an operator opens the next epoch (or the policy does).
"""

from __future__ import annotations

import msgspec

from kds_cdc_dagster.errors import ObjectExists
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.ports import ObjectStore


class EpochNote(msgspec.Struct, frozen=True):
    """Why an epoch was opened, or why the source is held."""

    source: str
    number: int
    reason: str
    by: str
    at: float
    """Seconds since the epoch (of the clock)."""


class SourceEpoch(msgspec.Struct, frozen=True):
    """Where a source stands."""

    number: int = 0
    hold: str = ""
    """Reason of the lineage hold; empty if the source flows."""


def current(store: ObjectStore, source: str) -> SourceEpoch:
    """The source's epoch (0 before any was opened) and whether it is held."""
    numbers = [_number(info.key) for info in store.scan(f"epochs/{keys.part(source)}/")]
    number = max(numbers, default=0)
    key = keys.lineage_hold(source, number)
    if not store.exists(key):
        return SourceEpoch(number)
    return SourceEpoch(number, msgspec.json.decode(store.get(key), type=EpochNote).reason)


def open_next(store: ObjectStore, source: str, after: int, *, reason: str, by: str, at: float) -> int:
    """Open epoch `after + 1`; one winner, all callers get the number."""
    note = EpochNote(source, after + 1, reason, by, at)
    try:
        store.create(keys.epoch(source, after + 1), msgspec.json.encode(note))
    except ObjectExists:
        return current(store, source).number
    return after + 1


def hold(store: ObjectStore, source: str, epoch: int, *, reason: str, by: str, at: float) -> None:
    """Hold the source in `epoch`."""
    note = EpochNote(source, epoch, reason, by, at)
    try:
        store.create(keys.lineage_hold(source, epoch), msgspec.json.encode(note))
    except ObjectExists:
        return


def _number(key: str) -> int:
    return int(key.rsplit("/", 1)[1].removesuffix(".json"))
