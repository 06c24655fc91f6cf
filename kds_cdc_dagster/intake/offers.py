"""Offers: which sealed batches to hand on to a run now, and as which attempt.

A batch waits in the outbox until `done/` says that every target has it. One with a live run waits; one
whose run ended badly is offered again under the next attempt number, up to a cap; then it is moved aside
as failed, visible and alerted, so that it never stands in the way of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import msgspec

from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.errors import ObjectExists
from kds_cdc_dagster.journal import keys, outbox
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.ports import Clock, ObjectStore

FAILED = "failed/"
DEATHS_PER_FAILURE = 10
"""Runs whose process died count this much less: a deploy or an operator kills many, a batch that kills its
process is found all the same."""
LOOKED_AT_MAX = 500
"""Outbox entries looked at in one go: bounds a tick whatever has piled up."""


class RunState(StrEnum):
    """What an orchestrator says of a batch's runs."""

    NONE = "none"
    LIVE = "live"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of one batch: how many there were, and whether one still lives."""

    state: RunState
    attempts: int
    failures: int = 0
    """Attempts that failed by themselves. The others died with their process, which says nothing of the batch."""


class RunView(Protocol):
    """Looks runs of a batch up in the orchestrator."""

    def runs(self, batch: str) -> Runs:
        """State of the batch's runs."""
        ...


@dataclass(frozen=True, slots=True)
class Offer:
    """A batch to run now, as attempt 1, 2, …"""

    manifest: Manifest
    attempt: int

    @property
    def run_key(self) -> str:
        """Never used twice for different work: batch and attempt."""
        return f"{self.manifest.batch}:{self.attempt}"


@dataclass(slots=True)
class OutboxReport:
    """What waits in the outbox."""

    offers: list[Offer] = field(default_factory=list)
    live: int = 0
    done: int = 0
    held: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Batches that ran out of attempts in this look."""
    waiting: int = 0
    """Entries that stay, offers included."""


class Failure(msgspec.Struct, frozen=True):
    """Why a batch is not offered any more."""

    batch: str
    reason: str
    at: float


def look(store: ObjectStore, runs: RunView, clock: Clock, *, offers_max: int, attempts_max: int) -> OutboxReport:
    """Look through the outbox: drop what is done, collect what to offer, move aside what failed for good."""
    report = OutboxReport()
    for seen, batch in enumerate(outbox.waiting(store)):
        if seen >= LOOKED_AT_MAX or len(report.offers) >= offers_max:
            break
        _look_at(report, store, batch, runs, clock, attempts_max)
    return report


def _look_at(
    report: OutboxReport, store: ObjectStore, batch: str, runs: RunView, clock: Clock, attempts_max: int
) -> None:
    if outbox.is_done(store, batch):
        outbox.leave(store, batch)
        report.done += 1
        return
    manifest = outbox.sealed(store, batch)
    if manifest is None:
        return  # void: the sealing died half way, and its segments are sealed under the same id later
    report.waiting += 1
    if manifest.held:
        _move_aside(store, batch, f"held at sealing: {manifest.held}", clock)
        report.held.append(batch)
        return
    found = runs.runs(batch)
    if found.state is RunState.LIVE:
        report.live += 1
    elif found.failures >= attempts_max or found.attempts >= attempts_max * DEATHS_PER_FAILURE:
        reason = f"{found.attempts} runs ended without loading it, {found.failures} of them by a failure of their own"
        _move_aside(store, batch, reason, clock)
        report.failed.append(batch)
    else:
        report.offers.append(Offer(manifest, found.attempts + 1))


def _move_aside(store: ObjectStore, batch: str, reason: str, clock: Clock) -> None:
    with suppress(ObjectExists):
        store.create(FAILED + keys.part(batch), msgspec.json.encode(Failure(batch, reason, clock.now())))
    outbox.leave(store, batch)


def failures(store: ObjectStore) -> Iterator[Failure]:
    """Batches that were moved aside and are not done since."""
    for info in store.scan(FAILED):
        failure = msgspec.json.decode(store.get(info.key), type=Failure)
        if not outbox.is_done(store, failure.batch):
            yield failure


@dataclass(frozen=True, slots=True)
class Affected:
    """What a batch touches: the names of its assets by stage."""

    entities: tuple[str, ...]
    targets: tuple[str, ...]
    has_quarantine: bool


def affected(manifest: Manifest, catalogue: Catalogue) -> Affected:
    """Entities with changes, the targets they feed, and whether anything was rejected or parked."""
    targets = {target.name for entity in manifest.entities for target in catalogue.targets_of.get(entity, ())}
    return Affected(manifest.entities, tuple(sorted(targets)), manifest.rejected + manifest.parked > 0)
