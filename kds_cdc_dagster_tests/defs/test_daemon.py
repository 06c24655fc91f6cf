"""The real daemon and code server, killed where it hurts."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from kds_cdc_dagster.cli.status import collect
from kds_cdc_dagster.intake import offers
from kds_cdc_dagster.journal import outbox
from kds_cdc_dagster_tests.defs.deployment import Deployment
from kds_cdc_dagster_tests.defs.mock_messages import Kitchens
from kds_cdc_dagster_tests.defs.site import Site


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_s37_daemon_and_code_server_killed_at_any_moment_lose_and_double_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed right after acknowledging, between ticks and in the middle of a run: every batch loads, each once."""
    quick = {"tick_seconds": 2, "batch_age_seconds": 1, "visibility_seconds": 10, "safety_seconds": 2}
    site = Site(tmp_path, monkeypatch, intake="on", linger_seconds=0, store_fsync="on", **quick)
    kitchens = Kitchens()

    def send(name: str) -> None:
        site.send([kitchens.station(account, n, f"{name} {n}") for n in range(8) for account in (1, 2, 3)])

    def has_live_run() -> bool:
        with site.instance() as instance:
            return bool(instance.get_runs(filters=dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])))

    with Deployment(tmp_path) as deployment:
        send("first")
        deployment.start_code_server(kill_plan="inbox.acknowledge:after:1")
        deployment.start_daemon()
        deployment.wait_until(lambda: not deployment.is_running("code server"), "it dies right after acknowledging")

        deployment.start_code_server()
        send("second")
        deployment.wait_until(lambda: any(outbox.waiting(site.parts.store)), "a batch is sealed")
        deployment.kill("daemon")
        deployment.start_daemon()

        send("third")
        deployment.wait_until(has_live_run, "a run has begun")
        deployment.kill("code server", with_children=True)
        deployment.start_code_server()
        deployment.wait_until(lambda: _is_loaded(site), "everything is loaded", seconds=240)

    assert list(offers.failures(site.parts.store)) == []
    assert site.rows("SELECT sum(changes) FROM ops.load_ledger") == [(3 * 24,)]
    doubled = "SELECT target, batch_id FROM ops.load_ledger GROUP BY target, batch_id HAVING count(*) > 1"
    assert site.rows(doubled) == []
    found = site.rows("SELECT account_id, station_id, name FROM curated.station ORDER BY 1, 2")
    assert found == [(f"acct-00{account}", n, f"third {n}") for account in (1, 2, 3) for n in range(8)]


def _is_loaded(site: Site) -> bool:
    """The queue is empty, no log is open with unsealed segments, and nothing waits in the outbox."""
    found = collect(site.parts)
    unsealed = sum(log["unsealed_segments"] for log in found["open_logs"])
    depth = found["queue"]
    return not (depth["visible"] or depth["in_flight"] or unsealed or found["outbox"]["waiting"])
