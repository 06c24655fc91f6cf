"""`kds-cdc demo`: the main job on packaged samples, compared with the source's own final rows."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import click

from kds_cdc_dagster.cli.run import Summary, drive, summary_text
from kds_cdc_dagster.demo.oracle import differences
from kds_cdc_dagster.demo.samples import SAMPLES, events, final_rows
from kds_cdc_dagster.errors import SettingsError
from kds_cdc_dagster.ports import Transaction
from kds_cdc_dagster.traffic.enqueue import enqueue_lines
from kds_cdc_dagster.traffic.simulate import Traffic
from kds_cdc_dagster.wiring import Pipeline, pipeline

MARK = ".kds-cdc-demo"
"""A folder with this file may be emptied: it is an earlier demo's."""
MOCK_SECONDS, MOCK_RATE, MOCK_STORES, SEED = 12.0, 40.0, 6, 7


@click.command()
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    default=Path(".kds-cdc") / "demo",
    show_default=True,
    help="Where the demo leaves its queue, store, warehouse and Dagster files; emptied first.",
)
def demo(home: Path) -> None:
    """Run the main job on packaged samples and compare the curated tables with the source.

    Captured change events of PostgreSQL and MySQL/MariaDB, and mock traffic with duplicates and poison, go onto
    a local FIFO queue; the Dagster sensor drains them into micro-batches and their runs load them. Exit code 1 if
    anything differs from the source's own final rows.
    """
    started = time.monotonic()
    _make_fresh(home)
    parts = pipeline()
    traffic = _publish(parts)
    click.echo("draining and loading through the Dagster sensor and its runs …")
    summary = drive(parts, until_idle=True)
    click.echo(summary_text(summary))
    different = _compare(parts, traffic)
    parts.close()
    _close(home, summary, different, time.monotonic() - started)


def _make_fresh(home: Path) -> None:
    """An empty home with default settings, whatever else the environment says."""
    if home.exists() and any(home.iterdir()) and not (home / MARK).exists():
        raise SettingsError("the demo's folder holds something else", folder=home, hint="name another one with --home")
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    (home / MARK).write_text("made by kds-cdc demo\n", "utf-8")
    for name in [name for name in os.environ if name.startswith("KDS_CDC_")] + ["DAGSTER_HOME"]:
        os.environ.pop(name, None)
    os.environ["KDS_CDC_HOME"] = str(home.resolve())


def _publish(parts: Pipeline) -> Traffic:
    for sample in SAMPLES:
        report = enqueue_lines(events(sample), parts.outbound, catalogue=parts.catalogue, group=None)
        click.echo(f"{sample}: {report.sent} captured change events on the queue")
    traffic = Traffic(SEED, MOCK_STORES, rate=MOCK_RATE, duplicates=True, poison=True)
    sent = parts.outbound.send(traffic.until(MOCK_SECONDS))
    click.echo(f"mock: {sent} messages on the queue, among them duplicates and poison")
    return traffic


def _compare(parts: Pipeline, traffic: Traffic) -> int:
    """Print one line per source and table; returns the number of differences."""
    expected: dict[str, dict[str, list[dict[str, Any]]]] = {SAMPLES[name]: final_rows(name) for name in SAMPLES}
    expected["mock"] = {entity: list(rows.values()) for entity, rows in traffic.expected_rows().items()}
    total = 0
    click.echo("curated tables against the source's own final rows:")
    for source, tables in expected.items():
        for table, rows in tables.items():
            found = curated_rows(parts, table, source)
            texts = differences(parts.catalogue.entity_by_name[table], rows, found)
            total += len(texts)
            click.echo(f"  {source:<14} {table:<22} {len(rows):>5} rows: {'equal' if not texts else 'DIFFERENT'}")
            for text in texts[:5]:
                click.echo(f"    {text}")
    return total


def curated_rows(parts: Pipeline, target: str, source: str) -> list[dict[str, Any]]:
    """Live rows of one source in a curated table."""
    names = [column.name for column in parts.catalogue.target_entity(parts.catalogue.target_by_name[target]).columns]

    def read(tx: Transaction) -> list[tuple[Any, ...]]:
        table = f"{parts.schemas.curated}.{target}_rows"
        return tx.rows(f"SELECT {', '.join(names)} FROM {table} WHERE _source = ? AND NOT _is_deleted", (source,))

    return [dict(zip(names, row, strict=True)) for row in parts.warehouse.run(read)]


def _close(home: Path, summary: Summary, different: int, seconds: float) -> None:
    click.echo(f"\nhome: {home}\nlook around:")
    click.echo(f"  KDS_CDC_HOME={home} .venv/bin/kds-cdc status")
    click.echo(f"  KDS_CDC_HOME={home} .venv/bin/kds-cdc dev --no-traffic     # Dagster UI on it")
    if different or not summary.is_good:
        raise click.ClickException(f"{different} differences, see above")
    click.echo(f"every curated row equals the source's own; {seconds:.1f} s")
