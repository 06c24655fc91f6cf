"""`kds-cdc enqueue`: publish captured change events to the queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from kds_cdc_dagster.traffic.enqueue import enqueue_lines
from kds_cdc_dagster.wiring import pipeline


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--group", default=None, help="Put every message into this one FIFO group (a static group).")
def enqueue(files: tuple[Path, ...], group: str | None) -> None:
    """Publish change events from FILES to the queue.

    One JSON object a line: {"destination", "key", "value"} as a Debezium engine hands them over (the value is
    the message), or {"body", "group_id"[, "dedup_id"]}. The FIFO group is account:store of the row image, or
    source:table where the image does not carry them. Null values are skipped and counted.
    """
    parts = pipeline()
    with click.progressbar(length=sum(file.stat().st_size for file in files), label="enqueue") as bar:
        report = enqueue_lines(_lines(files, bar), parts.outbound, catalogue=parts.catalogue, group=group)
    parts.close()
    click.echo(
        f"sent {report.sent}, null values skipped {report.skipped_null}, suppressed as repeats {report.suppressed}"
    )
    for number, reason in report.unreadable_lines[:10]:
        click.echo(f"line {number} is not a message: {reason}", err=True)
    if report.unreadable_lines:
        raise click.ClickException(f"{len(report.unreadable_lines)} lines were not messages and were left out")


def _lines(files: tuple[Path, ...], bar: object) -> Iterator[str]:
    for file in files:
        with file.open(encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                bar.update(len(line))  # type: ignore[attr-defined]
                if line.strip():
                    yield line
