"""Scenarios through the real daemon and code server, which one deployment serves for all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from kds_cdc_dagster.cli.run import _has_open_batch
from kds_cdc_dagster.demo.oracle import differences
from kds_cdc_dagster.intake import offers
from kds_cdc_dagster.journal import claims, outbox
from kds_cdc_dagster.load import dirty
from kds_cdc_dagster.load.export import current_export
from kds_cdc_dagster.traffic.simulate import Traffic
from kds_cdc_dagster_tests.defs.deployment import Deployment
from kds_cdc_dagster_tests.defs.mock_messages import Kitchens
from kds_cdc_dagster_tests.defs.site import Site

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
_STATIONS = "SELECT account_id, station_id, name FROM {}.station ORDER BY 1, 2"


class Live:
    """A deployment under way, and its traffic."""

    def __init__(self, site: Site, deployment: Deployment, instance: dg.DagsterInstance) -> None:
        self.site = site
        self.deployment = deployment
        self.instance = instance
        self.kitchens = Kitchens()

    def load(self, *messages: Any) -> None:
        """Publish, and wait until it is loaded and nothing waits."""
        self.site.send(messages)
        self.settle()

    def settle(self) -> None:
        """Until queue, open batch and outbox are empty, and no run is live."""
        self.deployment.wait_until(self._is_settled, "everything is loaded", seconds=240)
        assert list(offers.failures(self.site.parts.store)) == []

    def _is_settled(self) -> bool:
        parts = self.site.parts
        if not parts.inbox.depth().is_empty or _has_open_batch(parts) or any(outbox.waiting(parts.store)):
            return False
        return not dirty.marked(parts.store, parts.catalogue) and not self._live_runs()

    def _live_runs(self) -> list[dg.DagsterRun]:
        done = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED}
        return [run for run in self.instance.get_runs(limit=20) if run.status not in done]

    def run_job(self, job: str, **config: Any) -> dict[str, Any]:
        """Launch a job as the launchpad does, through queue and daemon; the metadata of its op's output."""
        text = json.dumps({"ops": {job: {"config": config}}})
        command = [sys.executable, "-m", "dagster", "job", "launch", "-w", str(self.deployment.workspace)]
        environment = {**os.environ, "DAGSTER_HOME": str(self.site.parts.settings.dagster_home)}
        subprocess.run([*command, "-j", job, "--config-json", text], env=environment, check=True, capture_output=True)
        ended = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
        wanted = dg.RunsFilter(job_name=job, statuses=ended)
        before = self.instance.get_runs_count(dg.RunsFilter(job_name=job)) - 1
        self.deployment.wait_until(lambda: self.instance.get_runs_count(wanted) > before, f"{job} has ended")
        (run,) = self.instance.get_runs(filters=wanted, limit=1)
        assert run.status is dg.DagsterRunStatus.SUCCESS
        (event,) = [log for log in self.instance.all_logs(run.run_id) if _is_output(log)]
        assert event.dagster_event is not None
        return {name: value.value for name, value in event.dagster_event.step_output_data.metadata.items()}


def _is_output(log: dg.EventLogEntry) -> bool:
    return log.is_dagster_event and log.dagster_event_type is dg.DagsterEventType.STEP_OUTPUT


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Daemon and code server run, sensors are on, nothing is loaded yet."""
    home = tmp_path_factory.mktemp("daemon")
    quick = {"tick_seconds": 2, "batch_age_seconds": 1, "visibility_seconds": 20, "safety_seconds": 2}
    with pytest.MonkeyPatch.context() as patch:
        site = Site(home, patch, intake="on", linger_seconds=0, export_every_seconds=0, **quick)
        with Deployment(home) as deployment:
            deployment.start_code_server()
            deployment.start_daemon()
            with site.instance() as instance:
                yield Live(site, deployment, instance)
        site.parts.close()


def test_s23_a_change_of_one_target_runs_its_export_only(live: Live) -> None:
    """The second batch holds stations of one tenant: no other target, and no other tenant's files, are written."""
    kitchens, store = live.kitchens, live.site.parts.store
    live.load(kitchens.station(1, 1, "grill"), kitchens.station(2, 1, "fryer"), kitchens.bump(1, 1))
    before = {name: current_export(store, name) for name in ("station", "bump_event")}
    live.load(kitchens.station(2, 1, "renamed"))
    old, new = before["station"], current_export(store, "station")
    assert old is not None and new is not None  # noqa: PT018 - narrows both
    assert new.files["acct-001"] == old.files["acct-001"]
    assert new.files["acct-002"] != old.files["acct-002"]
    assert current_export(store, "bump_event") == before["bump_event"]
    last = live.instance.get_runs(filters=dg.RunsFilter(job_name="load_batch"), limit=1)[0]
    stages = {("raw", "station"), ("staging", "station"), ("curated", "station"), ("export", "station")}
    assert {tuple(key.path) for key in last.asset_selection or ()} == stages


def test_s32_a_held_stream_waits_while_others_flow_and_is_released_by_a_job(live: Live) -> None:
    """Its changes are parked, the neighbour's are loaded; the job of the launchpad lets them in, in order."""
    kitchens = live.kitchens
    command = [sys.executable, "-m", "kds_cdc_dagster.cli", "park", "--source", "mock", kitchens.stream(5)]
    subprocess.run(command, check=True, capture_output=True)
    live.load(*(kitchens.station(account, 1, name) for name in ("one", "two") for account in (5, 6)))
    held = [row for row in live.site.rows(_STATIONS.format("curated")) if row[0] in {"acct-005", "acct-006"}]
    assert held == [("acct-006", 1, "two")]
    assert live.run_job("release_stream", source="mock", stream=kitchens.stream(5))["release.accepted"] == 2
    live.deployment.wait_until(
        lambda: ("acct-005", 1, "two") in live.site.rows(_STATIONS.format("curated")), "the released are loaded"
    )
    live.settle()


def test_s33_a_replay_is_compared_and_swapped_while_live_traffic_flows(live: Live) -> None:
    """A damaged table is replayed apart and swapped in between live batches: repaired, and newer rows stay newer."""
    kitchens, site = live.kitchens, live.site
    live.load(*(kitchens.station(account, 1, "true") for account in (11, 12)))
    site.execute("UPDATE curated.station_rows SET name = 'damaged' WHERE account_id IN ('acct-011', 'acct-012')")
    site.send([kitchens.station(12, 1, "newer"), kitchens.station(13, 1, "new")])
    report = live.run_job("replay", schema_name="again", changes_per_second=5000.0)
    assert report["is_reconciled"]
    site.send([kitchens.station(13, 1, "newest")])
    swapped = live.run_job("compare_and_swap", schema_name="again", targets=["station"], is_swapped=True)
    assert swapped["swapped.station"]["applied"] >= 1
    live.settle()
    rows = [row for row in site.rows(_STATIONS.format("curated")) if row[0] in {"acct-011", "acct-012", "acct-013"}]
    assert rows == [("acct-011", 1, "true"), ("acct-012", 1, "newer"), ("acct-013", 1, "newest")]
    exported = current_export(site.parts.store, "station")
    assert exported is not None
    assert exported.rows == site.live_rows()["station"]


def test_s14_workers_join_while_traffic_flows(live: Live) -> None:
    """Two plain workers join the sensor under traffic: more streams at once, none out of order, no false duplicate."""
    traffic = Traffic(seed=14, stores=12)
    live.site.send(traffic.take(300))
    command = [sys.executable, "-m", "kds_cdc_dagster.cli", "worker", "--workers", "2", "--quiet"]
    workers = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while sum("worker" in heartbeat.claim for heartbeat in claims.open_claims(live.site.parts.store)) < 2:
            live.site.send(traffic.take(50))
            live.deployment.wait_until(lambda: live.site.parts.inbox.depth().visible < 50, "it flows")
        live.site.send(traffic.take(300))
        live.deployment.wait_until(lambda: live.site.parts.inbox.depth().is_empty, "the queue is empty")
    finally:
        workers.terminate()
        workers.wait()
    live.settle()
    refused = "SELECT count(*) FROM ops.quarantine WHERE outcome = 'rejected'"
    assert live.site.rows(refused) == [(0,)]
    for target, rows in traffic.expected_rows().items():
        entity = live.site.parts.catalogue.entity_by_name[target]
        names = [column.name for column in entity.columns]
        keys = {tuple(str(row[name]) for name in entity.primary_key) for row in rows.values()}
        found = [
            row
            for values in live.site.rows(f"SELECT {', '.join(names)} FROM curated.{target}")
            if tuple(str((row := dict(zip(names, values, strict=True)))[name]) for name in entity.primary_key) in keys
        ]
        assert not differences(entity, rows.values(), found)
