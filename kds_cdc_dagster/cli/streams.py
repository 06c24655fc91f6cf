"""`kds-cdc streams`, `park`, `release`, `open-epoch`: holds and what ends them."""

from __future__ import annotations

import getpass
import json
from contextlib import suppress
from typing import Any

import click

from kds_cdc_dagster.core.position import EPOCH_DIGITS
from kds_cdc_dagster.errors import SettingsError, WarehouseBusy
from kds_cdc_dagster.intake import release as releases
from kds_cdc_dagster.intake.engine import Intake
from kds_cdc_dagster.journal import parked
from kds_cdc_dagster.ports import StreamRecord
from kds_cdc_dagster.wiring import Pipeline, pipeline

_SOURCE = click.option("--source", default=None, help="Source id, where several sources have a stream of this name.")


@click.command()
@click.option("--held", is_flag=True, help="Only streams that are held.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def streams(held: bool, as_json: bool) -> None:
    """List streams: epoch, last position, hold."""
    parts = pipeline()
    records = sorted(parts.state.streams(held_only=held), key=lambda r: (r.source, r.stream))
    if as_json:
        click.echo(json.dumps([_document(parts, record) for record in records], indent=2))
    else:
        for record in records:
            click.echo(_line(_document(parts, record)))
    parts.close()


def _document(parts: Pipeline, record: StreamRecord) -> dict[str, Any]:
    found: dict[str, Any] = {
        "source": record.source,
        "stream": record.stream,
        "epoch": int(record.committed[:EPOCH_DIGITS] or "0", 16),
        "position": record.committed[EPOCH_DIGITS:],
        "hold": record.hold,
        "parked_segments": 0,
        "message_id": record.message_id,
        "settled_at_ms": record.settled_at_ms,
    }
    if record.hold:
        pointers = parked.outstanding(parts.store, record.source, record.stream)
        found["parked_segments"] = sum(pointer.claim != parked.BY_OPERATOR.claim for pointer in pointers)
    return found


def _line(found: dict[str, Any]) -> str:
    line = f"{found['source']}  {found['stream']}  epoch {found['epoch']}  position {found['position'] or '-'}"
    if found["hold"]:
        line += f"  HELD: {found['hold']} ({found['parked_segments']} segments with parked deliveries)"
    return line


@click.command()
@click.argument("stream")
@_SOURCE
@click.option("--reason", default="by hand", show_default=True)
def park(stream: str, source: str | None, reason: str) -> None:
    """Hold STREAM: its new changes are parked, durably and in order, until it is released."""
    parts = pipeline()
    intake = parts.intake("operator")
    releases.park_stream(intake, _source_of(parts, stream, source), stream, f"{reason} ({getpass.getuser()})")
    _finish(parts, intake)
    click.echo(f"{stream} is held; release it with: kds-cdc release {stream}")


@click.command()
@click.argument("stream")
@_SOURCE
def release(stream: str, source: str | None) -> None:
    """Take STREAM's parked deliveries in, in order, and let it flow again."""
    parts = pipeline()
    intake = parts.intake("operator")
    source = _source_of(parts, stream, source)
    record = parts.state.stream(source, stream)
    counts = releases.release_stream(intake, source, stream)
    is_held = record is not None and bool(record.hold)
    click.echo(f"{stream} {'flows again' if is_held or counts else 'was not held'}: {_counts(counts)}")
    _end_release(parts, intake)


@click.command("open-epoch")
@click.argument("source")
@click.option("--reason", default="opened by hand", show_default=True)
def open_epoch(source: str, reason: str) -> None:
    """Open the next epoch of SOURCE and release its held streams.

    Use it when the source's positions began anew (failover, restore, new replication slot). Positions of the
    new epoch rank above all of the old one.
    """
    parts = pipeline()
    if source not in parts.catalogue.source_by_id:
        raise SettingsError("no such source in the catalogue", source=source, hint="see `sources` in the catalogue")
    intake = parts.intake("operator")
    counts = releases.open_epoch(intake, source, reason, getpass.getuser())
    click.echo(f"{source} is in epoch {intake.epochs[source].number}: {_counts(counts)}")
    _end_release(parts, intake)


def _end_release(parts: Pipeline, intake: Intake) -> None:
    """The stream flows already: should the warehouse be busy, the next `prune` closes the quarantine's rows."""
    with suppress(WarehouseBusy):
        parts.loader.close_released()
    _finish(parts, intake)


def _finish(parts: Pipeline, intake: Intake) -> None:
    intake.close()
    parts.close()


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items())) or "nothing was parked"


def _source_of(parts: Pipeline, stream: str, source: str | None) -> str:
    if source is not None:
        return source
    known = {record.source for record in parts.state.streams() if record.stream == stream}
    if not known and len(parts.catalogue.sources) == 1:
        return parts.catalogue.sources[0].id
    if not known:
        names = ", ".join(sorted(parts.catalogue.source_by_id))
        raise click.UsageError(f"no stream {stream} is known; to name a new one give its --source, one of: {names}")
    if len(known) != 1:
        raise click.UsageError(f"several sources have this stream; give --source, one of: {', '.join(sorted(known))}")
    return known.pop()
