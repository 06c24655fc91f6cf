"""Checks notice what somebody, or a bug, does to a deployment; `kds-cdc checks` says so by its exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

from kds_cdc_dagster.cli.checks import checks
from kds_cdc_dagster.load.export import current_export
from kds_cdc_dagster_tests.defs.mock_messages import Kitchens
from kds_cdc_dagster_tests.defs.site import Site

Damage = Callable[[Site], None]


def _sql(text: str) -> Damage:
    return lambda site: site.execute(text)


def _lost_export_file(site: Site) -> None:
    current = current_export(site.parts.store, "station")
    assert current is not None
    site.parts.store.delete([current.files["acct-001"][0].key])


DAMAGES: dict[str, tuple[Damage, str]] = {
    "a value changed by hand": (
        _sql("UPDATE curated.station_rows SET name = 'by hand' WHERE station_id = 1"),
        "curated/station values_as_staged: rows_compared=4, values_different=2, columns=name",
    ),
    "a value made null": (
        _sql("UPDATE curated.station_rows SET config = NULL WHERE station_id = 2"),
        "curated/station values_as_staged: rows_compared=4, values_different=2, columns=config",
    ),
    "a row removed": (
        _sql("DELETE FROM curated.station_rows WHERE station_id = 2 AND account_id = 'acct-001'"),
        "curated/station newest_version_wins: rows_missing=1",
    ),
    "a row doubled": (
        _sql("INSERT INTO curated.station_rows SELECT * FROM curated.station_rows WHERE station_id = 2"),
        "curated/station keys_are_unique: keys_twice=2",
    ),
    "a row marked deleted": (
        _sql("UPDATE curated.station_rows SET _is_deleted = TRUE WHERE station_id = 2"),
        "curated/station newest_version_wins: rows_missing=0, rows_older=0, rows_contradictory=2",
    ),
    "an older version put back": (
        _sql("UPDATE curated.station_rows SET _row_order = '0', _image_order = '0' WHERE station_id = 1"),
        "curated/station newest_version_wins: rows_missing=0, rows_older=4",
    ),
    "a staged value changed": (
        _sql("UPDATE staging.station SET kind = 'by hand' WHERE station_id = 2"),
        "staging_equals_artifact",
    ),
    "an export file lost": (_lost_export_file, "export/station export_equals_curated"),
}


def _loaded(site: Site) -> None:
    kitchens = Kitchens()
    for name in ("first", "second"):
        site.send([kitchens.station(account, 1, name) for account in (1, 2)])
        site.send([kitchens.station(account, 2, "fryer") for account in (1, 2) if name == "first"])
        site.drive()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two loaded batches, copied by each test."""
    home = tmp_path_factory.mktemp("loaded")
    with pytest.MonkeyPatch.context() as patch:
        _loaded(Site(home, patch))
    return home


@pytest.fixture
def site(loaded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A copy of the loaded pipeline."""
    import shutil

    shutil.copytree(loaded, tmp_path / "home")
    return Site(tmp_path / "home", monkeypatch)


def test_checks_pass_on_a_sound_deployment(site: Site) -> None:
    """Nothing is wrong: exit code 0, and every stage was looked at."""
    result = CliRunner().invoke(checks)
    assert result.exit_code == 0, result.output
    for stage in ("raw/station", "staging/station", "curated/station", "export/station"):
        assert stage in result.output


@pytest.mark.parametrize("name", DAMAGES)
def test_checks_fail_and_name_the_damage(site: Site, name: str) -> None:
    """Each damage makes the command fail, naming asset, check and what is off; never a row's values."""
    damage, expected = DAMAGES[name]
    damage(site)
    result = CliRunner().invoke(checks)
    assert result.exit_code == 1
    failed = [line for line in result.output.splitlines() if line.startswith("FAILED")]
    assert any(expected in line for line in failed), result.output
    assert "by hand" not in result.output


def test_the_check_job_fails_and_records_the_failure_on_the_asset(site: Site) -> None:
    """In Dagster the same damage fails the run and stands on the curated asset's check."""
    site.execute("UPDATE curated.station_rows SET name = 'by hand' WHERE station_id = 1")
    result = site.run_job("check_all")
    assert not result.success
    key = dg.AssetCheckKey(dg.AssetKey(["curated", "station"]), "values_as_staged")
    with site.instance() as instance:
        summary = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    assert summary.status.value == "FAILED"
