"""Tenure: how a worker takes, keeps and gives up a claim."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from kds_cdc_dagster.errors import TransientError
from kds_cdc_dagster.intake.claim import Claim, new_claim
from kds_cdc_dagster.journal import claims
from kds_cdc_dagster.journal.claims import Heartbeat
from kds_cdc_dagster.ports import Clock, ObjectStore


@dataclass(frozen=True, slots=True)
class Incumbent:
    """Who takes claims: a worker's name, and the process that can be looked for on its host."""

    worker: str
    host: str
    process_id: int
    heartbeat_seconds: float


class Tenure:
    """The current claim of a worker, if any, and its heartbeat."""

    def __init__(self, store: ObjectStore, clock: Clock, incumbent: Incumbent) -> None:
        self._store = store
        self._clock = clock
        self._incumbent = incumbent
        self._beat_at = float("-inf")
        self.claim: Claim | None = None
        self.sealed_slot = 0

    def take(self) -> Claim:
        """The current claim, or a new one. Its heartbeat is written before any segment can be."""
        if self.claim is None:
            claim = new_claim(self._incumbent.worker, self._clock.now())
            self.sealed_slot = 0
            self._beat(claim)  # raises: then there is no claim, and nothing can be put that nobody would find
            self.claim = claim
        return self.claim

    def heartbeat(self, *, is_abandoned: bool = False) -> Heartbeat | None:
        """What the claim's heartbeat says now; None without a claim."""
        return self._heartbeat(self.claim, is_abandoned=is_abandoned) if self.claim is not None else None

    def _heartbeat(self, claim: Claim, *, is_abandoned: bool) -> Heartbeat:
        return Heartbeat(
            claim=claim.id,
            worker=self._incumbent.worker,
            host=self._incumbent.host,
            process_id=self._incumbent.process_id,
            started_at=claim.started_at,
            seen_at=self._clock.now(),
            sealed_slot=self.sealed_slot,
            is_abandoned=is_abandoned,
        )

    def beat(self, *, is_abandoned: bool = False) -> None:
        """Write the heartbeat of the claim, if there is one."""
        if self.claim is not None:
            self._beat(self.claim, is_abandoned=is_abandoned)

    def _beat(self, claim: Claim, *, is_abandoned: bool = False) -> None:
        heartbeat = self._heartbeat(claim, is_abandoned=is_abandoned)
        claims.beat(self._store, heartbeat)
        self._beat_at = heartbeat.seen_at

    def beat_if_due(self) -> None:
        """Keep the claim from being adopted."""
        if self._clock.now() - self._beat_at >= self._incumbent.heartbeat_seconds:
            self.beat()

    def abandon(self) -> None:
        """Give the claim up: anybody may adopt its log at once. Forgets everything it knew."""
        with suppress(TransientError):  # then its heartbeat grows old instead
            self.beat(is_abandoned=True)
        self.claim = None
