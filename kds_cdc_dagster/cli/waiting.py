"""What a command that waits for idleness says meanwhile, on standard error."""

from __future__ import annotations

import time

import click

from kds_cdc_dagster.journal import claims, outbox
from kds_cdc_dagster.wiring import Pipeline

EVERY_SECONDS = 10.0


class Waiting:
    """Says every ten seconds what is waited for, so that waiting does not look like hanging."""

    def __init__(self) -> None:
        self._said_at = time.monotonic()

    def say(self, parts: Pipeline, failure: str) -> None:
        """Say it if it is time."""
        if time.monotonic() - self._said_at < EVERY_SECONDS:
            return
        self._said_at = time.monotonic()
        depth = parts.inbox.depth()
        batches = sum(1 for _ in outbox.waiting(parts.store))
        logs = len(claims.open_claims(parts.store))
        text = f"waiting: {depth.visible} messages visible, {depth.in_flight} in flight (hidden until acknowledged or "
        text += (
            f"{parts.settings.visibility_seconds:g} s after their receive), {batches} batches to load, {logs} open logs"
        )
        click.echo(text + (f"; {failure}" if failure else ""), err=True)
