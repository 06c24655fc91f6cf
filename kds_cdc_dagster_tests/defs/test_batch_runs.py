"""Batches through the real sensor and its runs, in one process: narrow selections, slices, counts, backfills."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import msgspec
import pytest

from kds_cdc_dagster.core.change import Outcome
from kds_cdc_dagster.defs import assets
from kds_cdc_dagster.defs.driver import Driver
from kds_cdc_dagster.defs.partitions import BATCHES
from kds_cdc_dagster.errors import LoadRefused, WarehouseBusy
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.load import dirty
from kds_cdc_dagster.load.export import current_export
from kds_cdc_dagster.load.loader import Loader
from kds_cdc_dagster.load.merge import MergeReport
from kds_cdc_dagster.load.raw import RawArtifact, read_raw
from kds_cdc_dagster.traffic.simulate import Traffic
from kds_cdc_dagster_tests.defs.mock_messages import Kitchens
from kds_cdc_dagster_tests.defs.site import QUIET, Site, definitions, materialized


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """An empty pipeline."""
    return Site(tmp_path, monkeypatch)


def test_s18_one_poll_with_many_slices_keeps_every_slice_and_lane_apart(site: Site) -> None:
    """Four tenants × two entities in one batch: every slice is counted, found by offset, and of one tenant only."""
    kitchens = Kitchens()
    site.send([kitchens.station(account, n, f"s{n}") for n in (1, 2, 3) for account in (1, 2, 3, 4)])
    site.send([kitchens.bump(account, account) for account in (1, 2)])
    (batch,) = site.drive().batches
    manifest = site.manifest(batch["batch"])
    sealed = {(s.tenant, s.entity): s.changes for s in manifest.slices}
    assert sealed == {(f"acct-00{n}", "station"): 3 for n in (1, 2, 3, 4)} | {
        (f"acct-00{n}", "bump_event"): 1 for n in (1, 2)
    }
    assert {lane.stream for lane in manifest.lanes} == {kitchens.stream(n) for n in (1, 2, 3, 4)}
    artifact, rows = read_raw(site.parts.store, "station", manifest.batch)
    for part in artifact.slices:
        inside = rows.slice(part.offset, part.rows)
        assert set(inside["tenant"].to_pylist()) == {part.tenant}
        assert inside["stream_order"].to_pylist() == sorted(inside["stream_order"].to_pylist())
    assert {s.tenant: s.rows for s in artifact.slices} == {f"acct-00{n}": 3 for n in (1, 2, 3, 4)}
    exported = current_export(site.parts.store, "station")
    assert exported is not None
    assert {t: sum(f.rows for f in files) for t, files in exported.files.items()} == {
        f"acct-00{n}": 3 for n in (1, 2, 3, 4)
    }


def test_s23_a_batch_that_changes_one_target_exports_only_that_one(site: Site) -> None:
    """The second batch holds stations of one tenant: no other target is touched, no other tenant rewritten."""
    kitchens = Kitchens()
    site.send([kitchens.station(1, 1, "grill"), kitchens.station(2, 1, "fryer"), kitchens.bump(1, 1)])
    site.drive()
    before = {name: current_export(site.parts.store, name) for name in ("station", "bump_event")}
    site.send([kitchens.station(2, 1, "renamed")])
    site.drive()
    after = {name: current_export(site.parts.store, name) for name in ("station", "bump_event")}
    assert after["bump_event"] == before["bump_event"]
    old, new = before["station"], after["station"]
    assert old is not None and new is not None and new.watermark > old.watermark  # noqa: PT018 - narrows both
    assert new.files["acct-001"] == old.files["acct-001"]
    assert new.files["acct-002"] != old.files["acct-002"]
    with site.instance() as instance:
        assert materialized(instance, "export") == {"station": 2, "bump_event": 1}
        assert materialized(instance, "curated") == {"station": 2, "bump_event": 1}


def test_exports_are_coalesced_and_the_deferred_ones_happen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an hour between exports three batches cost one export at once and one in the end, which holds them all."""
    site = Site(tmp_path, monkeypatch, export_every_seconds=3600, batch_records_max=1)
    kitchens = Kitchens()
    site.send([kitchens.station(1, 1, "one")])
    site.drive()
    site.send([kitchens.station(1, 1, "two")])
    site.drive()
    site.send([kitchens.station(1, 2, "three")])
    summary = site.drive()
    assert summary.is_good
    assert dirty.marked(site.parts.store, site.parts.catalogue) == {}
    exported = current_export(site.parts.store, "station")
    assert exported is not None
    assert (exported.rows, exported.watermark) == (2, 3)
    with site.instance() as instance:
        runs = instance.get_runs(filters=dg.RunsFilter(tags={"kds/kind": "export"}))
        assert [run.asset_selection for run in runs] == [{dg.AssetKey(["export", "station"])}] * 2
        assert all("kds/batch" not in run.tags for run in runs), "a run of exports must not count as a batch's load"


def test_an_export_that_is_not_due_any_more_leaves_its_run_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for while another run was about to export: the step checks what is there, and exports nothing."""
    site = Site(tmp_path, monkeypatch, export_every_seconds=3600)
    kitchens = Kitchens()
    site.send([kitchens.station(1, 1, "one")])
    site.drive()
    site.send([kitchens.station(1, 1, "two")])
    with site.instance() as instance:
        asked = _requested(site, instance)
        request = asked._replace(asset_selection=[*(asked.asset_selection or ()), dg.AssetKey(["export", "station"])])
        (outcome,) = Driver(site.parts, instance, definitions()).execute([request])
        assert outcome.is_success
        assert materialized(instance, "export") == {"station": 1}
    assert list(dirty.marked(site.parts.store, site.parts.catalogue)) == ["station"]


def test_s25_every_kind_of_bad_traffic_is_counted_apart(site: Site) -> None:
    """Malformed, duplicate, suspicious and late messages together: each count is the generator's, and counts close."""
    traffic = Traffic(seed=11, stores=6, duplicates=True, out_of_order=True, poison=True)
    site.send(traffic.take(900))
    summary = site.drive()
    expected = dict(traffic.counts)
    found = {name.removeprefix("rejected."): number for name, number in summary.counts.items()}
    assert summary.counts["received"] == sum(expected.values())
    assert {name: found.get(name, 0) for name in expected} == expected
    refused = {k: v for k, v in expected.items() if k not in {Outcome.ACCEPTED, Outcome.SAFE_DUPLICATE}}
    assert len(refused) >= 4
    assert summary.quarantine == refused
    wanted = {entity: len(rows) for entity, rows in traffic.expected_rows().items()}
    assert site.live_rows() == wanted


def test_a_range_of_batches_is_materialized_in_one_run_and_changes_nothing(site: Site) -> None:
    """A backfill of three partitions is one run; every partition is materialized again, no row differs."""
    kitchens = Kitchens()
    for name in ("one", "two", "three"):
        site.send([kitchens.station(1, 1, name), kitchens.station(2, 1, name)])
        site.drive()
    before = site.rows("SELECT * FROM curated.station_rows ORDER BY station_id, account_id")
    with site.instance() as instance:
        batches = instance.get_dynamic_partitions(str(BATCHES.name))
        result = (
            definitions()
            .resolve_job_def("load_batch")
            .execute_in_process(
                instance=instance,
                run_config=QUIET,
                asset_selection=[dg.AssetKey([stage, "station"]) for stage in ("raw", "staging", "curated", "export")],
                tags={
                    "dagster/asset_partition_range_start": batches[0],
                    "dagster/asset_partition_range_end": batches[-1],
                },
            )
        )
        assert result.success
        assert all(check.passed for check in result.get_asset_check_evaluations())
        found = instance.fetch_materializations(dg.AssetKey(["curated", "station"]), limit=100).records
        assert sorted(record.partition_key for record in found) == sorted([*batches, *batches])
    assert site.rows("SELECT * FROM curated.station_rows ORDER BY station_id, account_id") == before


def test_one_entity_that_fails_leaves_the_other_chains_going(site: Site) -> None:
    """A broken raw artifact of one entity fails its chain; the other entity of the batch is curated all the same."""
    kitchens = Kitchens()
    site.send([kitchens.station(1, 1, "grill"), kitchens.bump(1, 1)])
    site.drive()
    with site.instance() as instance:
        (batch,) = instance.get_dynamic_partitions(str(BATCHES.name))
    key = keys.raw_sidecar("station", batch)
    sidecar = msgspec.json.decode(site.parts.store.get(key), type=RawArtifact)
    site.parts.store.overwrite(key, msgspec.json.encode(msgspec.structs.replace(sidecar, sha256="0" * 64)))
    with site.instance() as instance:
        result = (
            definitions()
            .resolve_job_def("load_batch")
            .execute_in_process(
                instance=instance,
                run_config=QUIET,
                partition_key=batch,
                raise_on_error=False,
                asset_selection=[
                    dg.AssetKey([s, e]) for s in ("raw", "staging", "curated") for e in ("station", "bump_event")
                ],
            )
        )
    outcome = {event.step_key: event.event_type_value for event in result.all_events if event.step_key}
    assert outcome["raw__station"] == "STEP_FAILURE"
    assert not {"staging__station", "curated__station"} & {e.step_key for e in result.all_events if e.is_step_start}
    assert outcome["curated__bump_event"] == "STEP_SUCCESS"
    (failed,) = [check for check in result.get_asset_check_evaluations() if not check.passed]
    assert failed.check_name == "artifact_checksum"


@pytest.mark.parametrize(("error", "attempts"), [(WarehouseBusy("locked"), 3), (LoadRefused("a value"), 1)])
def test_only_transient_errors_are_tried_again_in_the_step(
    site: Site, monkeypatch: pytest.MonkeyPatch, error: Exception, attempts: int
) -> None:
    """A busy warehouse is asked again and the run succeeds; a refusal is not repeated and fails the run."""
    monkeypatch.setattr(assets, "RETRY_SECONDS", 0.0)
    merge, calls = Loader.merge, []

    def failing(loader: Loader, target: str, manifest: Manifest) -> MergeReport:
        calls.append(target)
        if len(calls) < 3:
            raise error
        return merge(loader, target, manifest)

    monkeypatch.setattr(Loader, "merge", failing)
    site.send([Kitchens().station(1, 1, "grill")])
    with site.instance() as instance:
        requests = _requested(site, instance)
        result = (
            definitions()
            .resolve_job_def("load_batch")
            .execute_in_process(
                instance=instance,
                run_config=QUIET,
                partition_key=requests.partition_key,
                asset_selection=requests.asset_selection,
                raise_on_error=False,
            )
        )
    assert len(calls) == attempts
    assert result.success == (attempts == 3)


def _requested(site: Site, instance: dg.DagsterInstance) -> dg.RunRequest:
    """The one run that the sensor asks for."""
    site.parts.is_draining = True
    driver = Driver(site.parts, instance, definitions())
    (request,) = driver.tick()
    return request
