"""`kds-cdc doctor`: is everything there, reachable and set up as it must be; exit code 1 if something is not."""

from __future__ import annotations

import json
from collections import Counter

import click
import msgspec

from kds_cdc_dagster.doctor import examine, failed
from kds_cdc_dagster.doctor.finding import Finding, Severity
from kds_cdc_dagster.errors import SettingsError
from kds_cdc_dagster.wiring import pipeline


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def doctor(as_json: bool) -> None:
    """Look at every part of the chosen profile: settings, catalogue, queue, state, store, warehouse, drift.

    Each finding has a severity (ok, info, warn, error) and a remedy. Leaves nothing behind. Exit code 1 on errors.
    """
    found = _found()
    counts = Counter(finding.severity for finding in found)
    if as_json:
        document = {"ok": not counts[Severity.ERROR], "findings": msgspec.to_builtins(found)}
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo("\n".join(finding.line() for finding in found))
        click.echo(", ".join(f"{counts[severity]} {severity.value}" for severity in Severity))
    if counts[Severity.ERROR]:
        raise SystemExit(1)


def _found() -> list[Finding]:
    try:
        parts = pipeline()
    except SettingsError as error:
        return [failed("settings", error)]
    found = list(examine(parts))
    parts.close()
    return found
