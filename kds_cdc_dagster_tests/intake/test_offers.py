"""Offers: what is handed on, as which attempt, and what is moved aside."""

from __future__ import annotations

import pytest

from kds_cdc_dagster.adapters.object_store import open_memory
from kds_cdc_dagster.clock import SystemClock
from kds_cdc_dagster.intake import offers
from kds_cdc_dagster.intake.offers import Runs, RunState
from kds_cdc_dagster.journal import manifest, outbox
from kds_cdc_dagster.journal.manifest import Manifest

BATCH = "claim-00000001"


class _Seen:
    """An orchestrator that says the same of every batch."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def runs(self, batch: str) -> Runs:
        assert batch == BATCH
        return self._runs


def _look(runs: Runs) -> offers.OutboxReport:
    store = open_memory("kds")
    outbox.announce(store, BATCH)
    sealed = Manifest(
        batch=BATCH, claim="claim", first_slot=1, last_slot=1, lanes=(), slices=(), entities=("station",), accepted=1,
        rejected=0, parked=0, counts={}, size_bytes=1, close_reason="drain", first_received_ms=0, last_received_ms=0,
        sealed_at_ms=0, worker="w",
    )  # fmt: skip
    assert manifest.write(store, sealed)
    return offers.look(store, _Seen(runs), SystemClock(), offers_max=10, attempts_max=3)


@pytest.mark.parametrize("attempts", [0, 1, 7])
def test_runs_that_died_with_their_process_do_not_use_up_the_attempts(attempts: int) -> None:
    """An operator who kills runs again and again does not make a good batch fail for good."""
    state = RunState.ENDED if attempts else RunState.NONE
    found = _look(Runs(state, attempts, failures=0))
    assert [offer.run_key for offer in found.offers] == [f"{BATCH}:{attempts + 1}"]


@pytest.mark.parametrize("runs", [Runs(RunState.ENDED, 3, failures=3), Runs(RunState.ENDED, 30, failures=0)])
def test_a_batch_that_fails_or_kills_too_often_is_moved_aside(runs: Runs) -> None:
    """Attempts are bounded either way, and the batch stays visible as failed."""
    found = _look(runs)
    assert (found.offers, found.failed) == ([], [BATCH])


def test_a_batch_with_a_live_run_waits() -> None:
    """Never two live runs of one batch."""
    found = _look(Runs(RunState.LIVE, 1))
    assert (found.offers, found.live) == ([], 1)
