"""Recovery: no more faults, fresh workers tick, adopt, release and close until nothing is left to do."""

from __future__ import annotations

from unittest import mock

from kds_cdc_dagster.intake.engine import GivenUp
from kds_cdc_dagster.intake.release import release_stream
from kds_cdc_dagster.intake.tick import Ticker
from kds_cdc_dagster.journal import claims, parked
from kds_cdc_dagster_tests.simulation.baton import Crash
from kds_cdc_dagster_tests.simulation.ports import Steps
from kds_cdc_dagster_tests.simulation.site import DEAD_AFTER_SECONDS, VISIBILITY_SECONDS, Site
from kds_cdc_dagster_tests.simulation.workers import ticker_of

TURNS_TO_REST = 90
"""Workers' lives after which a calm pipeline must have come to rest."""


def settle_down(site: Site, *, worker: str, is_reversed: bool = False) -> None:
    """Calm: fresh workers tick, adopt, release and close until nothing is left to do."""
    site.is_calm, site.is_state_down = True, False
    listed = claims.open_claims
    order = (lambda store: list(reversed(listed(store)))) if is_reversed else listed
    with mock.patch.object(claims, "open_claims", order):
        for turn in range(TURNS_TO_REST):
            if _turn_of_calm(site, f"{worker}{turn}"):
                return
    site.findings.append("no rest: the calm pipeline does not drain its queue")


def _turn_of_calm(site: Site, worker: str) -> bool:
    """One worker's short life; whether it left nothing to do."""
    site.clock.sleep(VISIBILITY_SECONDS + DEAD_AFTER_SECONDS + 1)
    site.redrive()
    ticker = ticker_of(site, worker, Steps(site, None))
    try:
        report = ticker.tick(budget_seconds=1e9, wait_seconds=0.0, is_draining=True)
    except Crash:  # a killer: its message comes again, until it was received too often
        return False
    held = {(record.source, record.stream) for record in site.state.streams(held_only=True)}
    by_hand = {stream for stream in parked.held_streams(site.store) if _is_held_by_hand(site, *stream)}
    failed = [stream for stream in sorted(held | by_hand) if not _is_released(ticker, *stream)]
    ticker.close()
    is_drained = site.queue.depth().is_empty and not site.queue.dead_letters()
    return not failed and is_drained and not report.failure and not list(claims.open_claims(site.store))


def _is_released(ticker: Ticker, source: str, stream: str) -> bool:
    """A release that meets a new history opens its epoch and is repeated, as an operator would."""
    try:
        release_stream(ticker.intake, source, stream)
    except GivenUp:
        return False
    return True


def _is_held_by_hand(site: Site, source: str, stream: str) -> bool:
    """Perhaps by an operator whose command failed half way."""
    return parked.BY_OPERATOR in parked.outstanding(site.store, source, stream)
