"""`kds-cdc doctor` on embedded parts and on Redis: what is right is called so, each fault has its finding."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner

from kds_cdc_dagster.cli import main
from kds_cdc_dagster.doctor import examine
from kds_cdc_dagster.doctor.finding import Finding, Severity
from kds_cdc_dagster.doctor.store import probed
from kds_cdc_dagster.load.schema import ensure_schema
from kds_cdc_dagster.settings import Settings
from kds_cdc_dagster.wiring import Pipeline
from kds_cdc_dagster_tests.servers import free_port, valkey


def of(found: Iterable[Finding], severity: Severity) -> list[tuple[str, str]]:
    """(part, what) of the findings of a severity."""
    return [(finding.part, finding.what) for finding in found if finding.severity is severity]


def parts(home: Path, **settings: object) -> Pipeline:
    """An embedded pipeline."""
    return Pipeline(Settings(home=home, **settings))  # type: ignore[arg-type]


def test_a_fresh_home_is_well(tmp_path: Path) -> None:
    """No warning and no error, every part is looked at, and no probe stays behind."""
    line = parts(tmp_path)
    found = list(examine(line))
    assert of(found, Severity.ERROR) == of(found, Severity.WARN) == []
    assert {finding.part for finding in found} >= {"settings", "catalogue", "disk", "queue", "state", "store", "tables"}
    assert list(line.store.scan("probe/")) == []


def test_the_command_prints_and_says_by_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 and a document where all is well; 1 and the variable's name where a setting is wrong."""
    monkeypatch.setenv("KDS_CDC_HOME", str(tmp_path))
    well = CliRunner().invoke(main, ["doctor", "--json"])
    document = json.loads(well.stdout)
    assert (well.exit_code, document["ok"]) == (0, True)
    assert {"severity", "part", "what", "remedy"} == set(document["findings"][0])
    monkeypatch.setenv("KDS_CDC_RECEIVES_MAX", "none")
    wrong = CliRunner().invoke(main, ["doctor"])
    assert wrong.exit_code == 1
    assert "KDS_CDC_RECEIVES_MAX" in wrong.stdout


def test_redis_that_evicts_is_an_error(tmp_path: Path) -> None:
    """Positions must never be evicted; no append-only file is worth a warning."""
    with valkey(options=("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")) as server:
        line = parts(tmp_path, state="redis", redis_url=server.url)
        found = list(examine(line))
        line.close()
    ((part, what),) = of(found, Severity.ERROR)
    assert part == "state"
    assert "allkeys-lru" in what
    assert ["append-only" in what for _, what in of(found, Severity.WARN)] == [True]


def test_redis_that_is_away_does_not_hide_the_rest(tmp_path: Path) -> None:
    """One error, of its part; the parts after it are looked at."""
    url = f"redis://127.0.0.1:{free_port()}"
    found = list(examine(parts(tmp_path, state="redis", redis_url=url, redis_timeout_seconds=0.2)))
    assert [part for part, _ in of(found, Severity.ERROR)] == ["state"]
    assert "warehouse" in [part for part, _ in of(found, Severity.OK)]


def test_tables_are_held_against_the_catalogue(tmp_path: Path) -> None:
    """A narrower column warns, another type is an error, missing and extra ones are told."""
    line = parts(tmp_path)
    ensure_schema(line.warehouse, line.catalogue, line.schemas)
    assert "fit the catalogue" in str(of(examine(line), Severity.OK))
    for change in (
        "ALTER COLUMN total TYPE DECIMAL(10,2)",
        "ALTER COLUMN status TYPE INTEGER",
        "DROP COLUMN notes",
        "ADD COLUMN lane VARCHAR",
    ):
        line.warehouse.alter(f"ALTER TABLE staging.kitchen_ticket {change}")
    found = list(examine(line))
    ((_, narrow),) = of(found, Severity.WARN)
    ((_, other),) = of(found, Severity.ERROR)
    assert narrow.startswith("staging.kitchen_ticket.total is decimal(10,2), the catalogue says decimal(12,2)")
    assert other.startswith("staging.kitchen_ticket.status is integer, the catalogue says varchar")
    told = str(of(found, Severity.INFO))
    assert "notes is not there yet" in told
    assert "lane is not in the catalogue" in told


def test_a_store_that_overwrites_is_an_error(tmp_path: Path) -> None:
    """A create-only put that takes effect twice is found by the probe."""
    store = parts(tmp_path).store
    store.create = store.overwrite  # type: ignore[method-assign]
    assert [(part, what[:40]) for part, what in of(probed(store), Severity.ERROR)] == [
        ("store", "a create-only put overwrote an object: t"),
        ("store", "the store does not give back what was pu"),
    ]
