"""`kds-cdc rebuild-state` and `kds-cdc audit`."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from kds_cdc_dagster.intake.audit import audit as run_audit
from kds_cdc_dagster.intake.rebuild import rebuild
from kds_cdc_dagster.wiring import pipeline


@click.command("rebuild-state")
def rebuild_state() -> None:
    """Rebuild the state store from durable records under a new life.

    Happens by itself when the store was emptied; by hand after a restore of the store. Workers go on under
    new claims.
    """
    parts = pipeline()
    life = rebuild(parts.state, parts.store)
    parts.close()
    if life is None:
        raise click.ClickException("another worker's rebuild overtook this one; nothing to do")
    click.echo(f"rebuilt: life {life}")


@click.command()
@click.option("--since", default=None, metavar="YYYY-MM-DD[THH:MM]", help="Only what was received since (UTC).")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def audit(since: str | None, as_json: bool) -> None:
    """Prove that counts close: received = sum of outcomes, accepted = rows in sealed batches.

    Exit code 1 and the names of segments and batches that do not add up, if any.
    """
    parts = pipeline()
    moment = datetime.fromisoformat(since).replace(tzinfo=UTC) if since else None
    report = run_audit(parts.store, moment)
    parts.close()
    click.echo(report.json() if as_json else report.text())
    if report.problems:
        raise SystemExit(1)
