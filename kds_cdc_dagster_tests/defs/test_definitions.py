"""The code location as a whole: it loads without a connection, and says what an engineer expects to find."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
import yaml

from kds_cdc_dagster.definitions import definitions
from kds_cdc_dagster.defs import names
from kds_cdc_dagster_tests.defs.site import Site

ROOT = Path(__file__).parents[2]
JOBS = {
    "load_batch",
    "export_targets",
    "replay",
    "compare_and_swap",
    "redrive_quarantine",
    "discard_quarantine",
    "park_stream",
    "release_stream",
    "open_epoch",
    "rebuild_state",
    "prune",
    "restore_partitions",
    "check_all",
}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dg.RepositoryDefinition:
    """Everything, loaded as a code server loads it."""
    Site(tmp_path, monkeypatch, intake_sensors=3)
    found = definitions().get_repository_def()
    found.load_all_definitions()
    return found


def test_everything_loads_and_opens_nothing(repository: dg.RepositoryDefinition, tmp_path: Path) -> None:
    """A code server can load it all; no file of the pipeline came into being."""
    assert set(repository.job_names) >= JOBS
    assert [sensor.name for sensor in repository.sensor_defs] == ["intake_1", "intake_2", "intake_3"]
    assert list(tmp_path.iterdir()) == []


def test_every_asset_explains_itself(repository: dg.RepositoryDefinition) -> None:
    """Description, kinds and group everywhere; tables name themselves and their columns; blocking checks guard them."""
    graph = repository.asset_graph
    assert len(graph.get_all_asset_keys()) == 1 + 4 * 4
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description and node.kinds and node.group_name == key.path[0]  # noqa: PT018 - one list
        if key.path[0] in {"staging", "curated"}:
            assert {"dagster/table_name", "dagster/column_schema"} <= set(node.metadata)
        if key.path[0] != "ops":
            assert node.owners == ["team:data-eng"]
        assert any(check.asset_key == key for check in graph.asset_check_keys)


def test_runs_are_told_apart_bounded_and_live_ones_go_first() -> None:
    """Every kind has a priority and a longest run time, and the instance lets one of each kind run."""
    priorities = {kind: int(value) for kind, value in names.PRIORITY.items()}
    assert max(priorities, key=lambda kind: priorities[kind]) == "live"
    assert min(priorities, key=lambda kind: priorities[kind]) == "replay"
    config = yaml.safe_load((ROOT / "kds_cdc_dagster" / "dagster.yaml").read_text("utf-8"))
    limits = {limit["value"] for limit in config["concurrency"]["runs"]["tag_concurrency_limits"]}
    assert limits == set(names.PRIORITY) == set(names.RUN_SECONDS_MAX)
    assert (ROOT / "dagster.yaml").read_text("utf-8") == (ROOT / "kds_cdc_dagster" / "dagster.yaml").read_text("utf-8")
