"""The intake of one worker: rounds under a claim, an open batch, and what keeps them safe.

Single-threaded by contract: the caller holds a mutex around every method (`intake.tick` does). The same
code runs in a sensor tick, in the plain worker and in the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kds_cdc_dagster.core.batch import BatchPolicy, CloseReason
from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.core.contracts import Parser
from kds_cdc_dagster.errors import SlotTaken, StateNotReady, TransientError
from kds_cdc_dagster.intake import counts as names
from kds_cdc_dagster.intake.adoption import Adoption, IsGone
from kds_cdc_dagster.intake.count_log import write_counts
from kds_cdc_dagster.intake.doubts import DurableRecords, Resolver
from kds_cdc_dagster.intake.judge import Judge
from kds_cdc_dagster.intake.rebuild import rebuild
from kds_cdc_dagster.intake.round import Round, RoundResult
from kds_cdc_dagster.intake.sealing import OpenBatch, seal
from kds_cdc_dagster.intake.stream_work import LineageBroken, old_history
from kds_cdc_dagster.intake.tenure import Incumbent, Tenure
from kds_cdc_dagster.journal import epochs, index
from kds_cdc_dagster.journal.epochs import SourceEpoch
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.ports import Clock, Inbox, ObjectStore, StateStore

COMPACT_EVERY = 8
"""Seals between two looks at the index's levels."""

_GIVE_UP = (SlotTaken, StateNotReady, TransientError, LineageBroken)
"""What ends a round, and the claim with it, before anything is acknowledged."""


@dataclass(frozen=True, slots=True)
class IntakePolicy:
    """What the intake may do and when, from the settings."""

    incumbent: Incumbent
    batch: BatchPolicy
    visibility_seconds: float
    safety_seconds: float


@dataclass(frozen=True, slots=True)
class Ports:
    """The outside of an intake."""

    inbox: Inbox
    state: StateStore
    store: ObjectStore
    clock: Clock


class GivenUp(Exception):
    """A round was given up before anything was acknowledged; its messages come again."""


class Intake:
    """One worker's intake."""

    def __init__(
        self, ports: Ports, policy: IntakePolicy, *, parser: Parser, catalogue: Catalogue, is_gone: IsGone
    ) -> None:
        self.ports = ports
        self.policy = policy
        self.tenure = Tenure(ports.store, ports.clock, policy.incumbent)
        self.resolver = Resolver(store=ports.store, state=ports.state, clock=ports.clock, worker=self.worker)
        self._catalogue = catalogue
        self._round = Round(
            parser=parser,
            catalogue=catalogue,
            state=ports.state,
            store=ports.store,
            judge=Judge(state=ports.state, resolver=self.resolver, durable=DurableRecords(ports.store)),
            clock=ports.clock,
            worker=self.worker,
        )
        self._adoption = Adoption(
            store=ports.store,
            state=ports.state,
            clock=ports.clock,
            worker=self.worker,
            records_max=policy.batch.records_max,
            is_gone=is_gone,
        )
        self.life: str | None = None
        self.batch: OpenBatch | None = None
        self.epochs: dict[str, SourceEpoch] = {}
        self._carried: dict[str, int] = {}
        self._seals = 0

    @property
    def worker(self) -> str:
        """Name of the worker."""
        return self.policy.incumbent.worker

    def ready(self) -> str:
        """Make sure of a finished life of the state store, know the epochs, adopt dead logs.

        Returns the life. Raises StateUnavailable (fail closed), or StateNotReady while another worker
        rebuilds.
        """
        self.life = self.ports.state.life() or self._rebuild()
        self.read_epochs()
        claim = self.tenure.claim
        self._adoption.adopt_dead(self.life, own_claim=claim.id if claim else None)
        return self.life

    def _rebuild(self) -> str:
        self.abandon()  # the rebuild closes every log, this one too
        life = rebuild(self.ports.state, self.ports.store, is_yielding=True)
        if life is None:
            raise StateNotReady("another worker is rebuilding the state store")
        return life

    def read_epochs(self) -> None:
        """Where every source stands now."""
        self.epochs = {source.id: epochs.current(self.ports.store, source.id) for source in self._catalogue.sources}

    # --- rounds ------------------------------------------------------------------------------

    def round(self, deliveries: Sequence[Delivery]) -> dict[str, int]:
        """Take deliveries in and acknowledge them; returns the counts of the round.

        Raises GivenUp: nothing was acknowledged and the claim is gone.
        """
        started = self.ports.clock.now()
        try:
            result = self._take_in(deliveries, is_release=False)
        except _GIVE_UP as error:
            old = deliveries[: old_history(deliveries, error)]
            self.ports.inbox.release([delivery.receipt for delivery in deliveries[len(old) :]])
            if old:
                return self.round(old)
            raise GivenUp(f"{type(error).__name__}: {error}") from error
        if self.ports.clock.now() - started > self.policy.visibility_seconds - self.policy.safety_seconds:
            self.ports.inbox.extend(result.receipts, self.policy.safety_seconds)
        self._acknowledge(result)
        return result.counts

    def take_released(self, deliveries: Sequence[Delivery]) -> dict[str, int]:
        """Take deliveries from a park in; nothing to acknowledge. Raises GivenUp."""
        try:
            return self._take_in(deliveries, is_release=True).counts
        except _GIVE_UP as error:
            at = old_history(deliveries, error)
            if at:
                return names.total(self.take_released(deliveries[:at]), self.take_released(deliveries[at:]))
            raise GivenUp(f"{type(error).__name__}: {error}") from error

    def _take_in(self, deliveries: Sequence[Delivery], *, is_release: bool) -> RoundResult:
        """One round; when it fails, the claim is given up, its counts are kept, and the error goes on."""
        if self.life is None:
            raise StateNotReady("the intake was not made ready")
        claim = self.tenure.take()
        slot = claim.next_slot
        try:
            result = self._round.run(
                deliveries,
                claim=claim,
                life=self.life,
                epochs=self.epochs,
                carried=self._carried,
                is_release=is_release,
            )
        except Exception as error:  # whatever it was: the decision may have written markers for this slot
            lost = len(deliveries) - old_history(deliveries, error)
            self._after_failure(error, lost, is_written=claim.next_slot > slot, is_release=is_release)
            raise
        self._keep(claim.id, result)
        return result

    def _keep(self, claim: str, result: RoundResult) -> None:
        if result.written is None:
            self._carried = names.total(self._carried, result.counts)
            return
        self._carried = {}
        if self.batch is None:
            self.batch = OpenBatch(claim, result.written.segment.slot)
        self.batch.add(result.written)

    def _after_failure(self, error: Exception, deliveries: int, *, is_written: bool, is_release: bool) -> None:
        self.abandon()  # first of all: what follows may fail, too
        prefix = names.RELEASE if is_release else ""
        lost = {prefix + names.RECEIVED: deliveries, f"{prefix}{names.GIVEN_UP}{type(error).__name__}": deliveries}
        # A segment that was put already carries the counts of the round and of those before it.
        self._carried = {} if is_written else names.total(self._carried, lost)
        if isinstance(error, LineageBroken) and error.at is None:
            self._end_epoch(error)

    def _acknowledge(self, result: RoundResult) -> None:
        answer = self.ports.inbox.acknowledge(result.receipts)
        if answer.refused:
            self._carried = names.total(self._carried, {names.NOT_DELETED: len(answer.refused)})

    def _end_epoch(self, broken: LineageBroken) -> None:
        """By policy: open the next epoch, or hold the source until an operator does."""
        store, now = self.ports.store, self.ports.clock.now()
        number = self.epochs.get(broken.source, SourceEpoch()).number
        if epochs.current(store, broken.source).number == number:
            is_auto = self._catalogue.source_by_id[broken.source].on.new_epoch == "auto"
            act = epochs.open_next if is_auto else epochs.hold
            act(store, broken.source, number, reason=broken.reason, by=self.worker, at=now)
        self.read_epochs()

    def abandon(self) -> None:
        """Give the claim up: its log is adopted like a dead worker's. Forgets everything it knew."""
        self.tenure.abandon()
        self.batch = None

    # --- batches -----------------------------------------------------------------------------

    def seal_if_due(self, *, is_backlogged: bool = False) -> Manifest | None:
        """Seal the open batch if a limit is reached."""
        batch = self.batch
        if batch is None:
            return None
        reason = self.policy.batch.due(
            records=batch.records,
            size_bytes=batch.size_bytes,
            age_seconds=batch.age_seconds(self.ports.clock.now()),
            is_backlogged=is_backlogged,
        )
        return self.seal(reason) if reason is not None else None

    def seal(self, reason: CloseReason) -> Manifest | None:
        """Seal the open batch now; None if nothing is open."""
        batch = self.batch
        if batch is None:
            return None
        manifest = seal(self.ports.store, batch, reason=reason, worker=self.worker, clock=self.ports.clock)
        self.batch = None
        if manifest.last_slot != batch.last_slot:
            self.abandon()  # somebody else sealed our log: judged dead, and what is left is adopted
            return manifest
        self.tenure.sealed_slot = batch.last_slot
        self.tenure.beat()
        self._seals += 1
        if self._seals % COMPACT_EVERY == 0:
            index.compact(self.ports.store)
        return manifest

    def write_counts(self) -> None:
        """Make counts of rounds without a segment durable (at the end of a tick)."""
        if self._carried:
            write_counts(self.ports.store, self.worker, self._carried, self.ports.clock.now())
            self._carried = {}

    def close(self) -> None:
        """Seal what is open, close the own log and leave the registry: a clean end."""
        self.write_counts()
        self.seal(CloseReason.DRAIN)
        heartbeat = self.tenure.heartbeat()
        if heartbeat is not None and self.life is not None:
            self._adoption.adopt(self.life, heartbeat, CloseReason.DRAIN)
            self.tenure.claim = None
