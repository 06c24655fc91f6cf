"""`kds-cdc checks`: every check on what is there, for CI and for people; exit code 1 if one fails, naming it."""

from __future__ import annotations

import json

import click
import msgspec

from kds_cdc_dagster.wiring import pipeline


@click.command()
@click.option(
    "--batches", default=50, show_default=True, help="Newest loaded batches to check; tables are checked whole."
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def checks(batches: int, as_json: bool) -> None:
    """Check raw artifacts, staging, curated tables and exports of this deployment.

    Reads only. Warnings (freshness) do not fail it. The job `check_all` does the same in Dagster and records
    the results on the assets.
    """
    from kds_cdc_dagster.defs.acts import newest_loaded
    from kds_cdc_dagster.defs.checks import all_findings, failed

    parts = pipeline()
    found = list(all_findings(parts, newest_loaded(parts, batches)))
    parts.close()
    bad = failed(found)
    if as_json:
        click.echo(json.dumps({"ok": not bad, "checks": msgspec.to_builtins(found)}, indent=2))
    else:
        click.echo("\n".join(finding.line() for finding in found))
        click.echo("\n".join([f"{len(found)} checks, {len(bad)} failed", *(finding.line() for finding in bad)]))
    if bad:
        raise SystemExit(1)
