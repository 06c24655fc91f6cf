"""The whole way on the aws profile: SQS, S3, Redis and Redshift over their own clients and wires."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kds_cdc_dagster.catalogue import load_catalogue
from kds_cdc_dagster.demo.oracle import differences
from kds_cdc_dagster.demo.samples import events, final_rows
from kds_cdc_dagster.load.export import current_export
from kds_cdc_dagster.traffic.enqueue import enqueue_lines
from kds_cdc_dagster.wiring import Pipeline
from kds_cdc_dagster_tests.aws.site import AwsSite, aws_site
from kds_cdc_dagster_tests.captures import capture
from kds_cdc_dagster_tests.pipeline.site import Site, site
from kds_cdc_dagster_tests.servers import valkey

CATALOGUE = load_catalogue()


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsSite]:
    """All services."""
    with aws_site(tmp_path_factory.mktemp("home")) as opened:
        yield opened


def _view(parts: Pipeline, target: str) -> list[dict[str, Any]]:
    """What consumers see; PostgreSQL's form of bytes as the oracle's."""
    columns = CATALOGUE.entity_by_name[target].columns
    select = f"SELECT {', '.join(column.name for column in columns)} FROM {parts.schemas.curated}.{target}"
    rows = parts.warehouse.run(lambda tx: tx.rows(select))
    return [
        {
            column.name: bytes.fromhex(value[2:]) if column.type == "binary" and value is not None else value
            for column, value in zip(columns, row, strict=True)
        }
        for row in rows
    ]


def _everything(parts: Pipeline) -> dict[str, list[tuple[Any, ...]]]:
    """Every curated row with its metadata, and the load ledger."""
    tables = [f"curated.{target.name}_rows" for target in CATALOGUE.targets] + ["ops.load_ledger", "ops.quarantine"]
    return {
        table: sorted(parts.warehouse.run(lambda tx, t=table: tx.rows(f"SELECT * FROM {t}")), key=repr)
        for table in tables
    }


def _published_and_run(line: AwsSite, file: Path) -> dict[str, Any]:
    published = line.kds_cdc("enqueue", str(file))
    assert published.returncode == 0, published.stderr
    ran = line.kds_cdc("run", "--until-idle", "--json", "--timeout", "250")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    document: dict[str, Any] = json.loads(ran.stdout)
    return document


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_a_capture_through_the_aws_profile_ends_as_the_source_twice(line: AwsSite, tmp_path: Path) -> None:
    """Processes of the command line bring real events to Redshift and S3; sent again, they change nothing."""
    file = tmp_path / "events.jsonl"
    file.write_text("\n".join(events("postgresql")), "utf-8")
    expected = final_rows("postgresql")
    first = _published_and_run(line, file)
    assert first["quarantine"] == {}
    assert first["failed_runs"] == []
    parts = Pipeline(line.settings())
    for target, rows in expected.items():
        assert differences(CATALOGUE.entity_by_name[target], rows, _view(parts, target)) == []
        exported = current_export(parts.store, target)
        assert exported is not None
        assert exported.rows == len(rows)
    once = _everything(parts)
    second = _published_and_run(line, file)
    assert second["counts"]["safe_duplicate"] == second["counts"]["received"] == first["counts"]["received"]
    assert _everything(parts) == once
    assert line.redis.client().dbsize() > 0
    parts.close()


@pytest.mark.timeout(120)
def test_redis_as_the_only_foreign_part_may_be_emptied(tmp_path: Path) -> None:
    """KDS_CDC_STATE=redis beside embedded parts: after FLUSHALL it is rebuilt, and what was taken is known again."""
    recorded = capture("mysql-envelope")
    lines = [json.dumps({"destination": "", "value": body.decode()}) for body in recorded.bodies if body is not None]
    half = len(lines) // 2
    with valkey() as server, site(tmp_path, state="redis", redis_url=server.url) as embedded:
        _sent(embedded, lines[:half])
        accepted_first = embedded.counts["accepted"]
        assert accepted_first > 0
        server.client().flushall()
        _sent(embedded, lines)
        embedded.load()
        embedded.assert_sound(recorded.state)
        # Snapshot reads have no position; a rebuild brings back the markers of the unsealed tail alone.
        reads = sum(line.count('\\"op\\":\\"r\\"') for line in lines[:half])
        assert accepted_first - reads <= embedded.counts["safe_duplicate"] <= accepted_first
        assert 0 < reads < accepted_first


def _sent(embedded: Site, lines: list[str]) -> None:
    enqueue_lines(lines, embedded.parts.outbound, catalogue=embedded.parts.catalogue)
    embedded.drain()


@pytest.mark.parametrize(
    ("endpoint", "receivers"),
    [("", 8), ("http://127.0.0.1:5000", 1), ("https://vpce-1.sqs.eu-west-1.vpce.amazonaws.com", 8)],
)
def test_an_emulator_gets_one_receiver(endpoint: str, receivers: int, line: AwsSite) -> None:
    """FIFO locks of emulators need not hold between overlapping receives; a setting still wins."""
    assert line.settings(receivers="", aws_endpoint_url=endpoint).receivers == receivers
    assert line.settings(receivers="3", aws_endpoint_url=endpoint).receivers == 3
