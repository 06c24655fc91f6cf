"""Adoption: close, settle and seal the log of a claim whose worker is gone.

The log is closed first with a create-only END at its next slot. If the judgement was wrong, the live
owner's next put fails and it starts a new claim: nothing lost, nothing doubled.
"""

from __future__ import annotations

from collections.abc import Callable

from kds_cdc_dagster.core.batch import CloseReason
from kds_cdc_dagster.intake.sealing import seal_all, written_again
from kds_cdc_dagster.intake.settling import settle
from kds_cdc_dagster.journal import claims
from kds_cdc_dagster.journal.claims import Heartbeat
from kds_cdc_dagster.journal.logs import closed_tail, sealed_slot
from kds_cdc_dagster.ports import Clock, ObjectStore, StateStore

IsGone = Callable[[Heartbeat, float], bool]
"""(heartbeat, now) -> whether its worker is certainly or probably gone."""


class Adoption:
    """Adopts dead claims' logs; also closes one's own."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        state: StateStore,
        clock: Clock,
        worker: str,
        records_max: int,
        is_gone: IsGone,
    ) -> None:
        self._store = store
        self._state = state
        self._clock = clock
        self._worker = worker
        self._records_max = records_max
        self._is_gone = is_gone

    def adopt_dead(self, life: str, *, own_claim: str | None) -> int:
        """Adopt every open log whose worker is gone; returns how many."""
        adopted = 0
        for heartbeat in claims.open_claims(self._store):
            if heartbeat.claim != own_claim and self._is_gone(heartbeat, self._clock.now()):
                self.adopt(life, heartbeat)
                adopted += 1
        return adopted

    def adopt(self, life: str, heartbeat: Heartbeat, reason: CloseReason = CloseReason.ADOPTED) -> None:
        """Close, settle, seal, forget: in this order, each step repeatable."""
        claim = heartbeat.claim
        start = sealed_slot(self._store, claim, heartbeat.sealed_slot)
        tail = closed_tail(self._store, claim, start)
        segments = []
        for found in tail.segments():
            written = written_again(found)
            settle(
                self._state,
                self._store,
                life,
                written.segment,
                written.content,
                worker=self._worker,
                now=self._clock.now(),
            )
            segments.append(written)
        seal_all(
            self._store,
            claim,
            segments,
            records_max=self._records_max,
            reason=reason,
            worker=self._worker,
            clock=self._clock,
        )
        claims.forget(self._store, claim)
