"""`kds-cdc dead-letters`: messages that were received too often, and their way back."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from kds_cdc_dagster.ports import DeadLetter
from kds_cdc_dagster.wiring import pipeline

LISTED_MAX = 100


@click.command("dead-letters")
@click.option("--redrive", is_flag=True, help="Put them back into the queue, each group in order.")
@click.option("--limit", type=click.IntRange(1), default=LISTED_MAX, show_default=True, help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def dead_letters(redrive: bool, limit: int, as_json: bool) -> None:
    """List the queue's dead letters, never their bodies; with --redrive send them through the intake again.

    Look for the cause first (OPERATE, Dead letters). What was taken in meanwhile ends as a duplicate, what is older
    than its stream's position as out_of_order in quarantine. SQS shows the oldest of each group only.
    """
    parts = pipeline()
    if redrive:
        moved = parts.dead_letters.redrive(limit=limit)
        click.echo(json.dumps({"redriven": moved}) if as_json else f"{moved} dead letters are back in the queue")
    else:
        found = parts.dead_letters.letters(limit=limit)
        now_ms = int(parts.clock.now() * 1000)
        click.echo(json.dumps([_document(one, now_ms) for one in found], indent=2) if as_json else _text(found, now_ms))
    parts.close()


def _document(letter: DeadLetter, now_ms: int) -> dict[str, object]:
    return {**asdict(letter), "age_seconds": _age_seconds(letter, now_ms)}


def _text(found: list[DeadLetter], now_ms: int) -> str:
    lines = [
        f"{one.group_id}  received {one.receive_count} times  {_age_seconds(one, now_ms)} s old  {one.message_id}"
        for one in found
    ]
    return "\n".join(lines) or "no dead letters"


def _age_seconds(letter: DeadLetter, now_ms: int) -> int:
    """Since it was sent."""
    return max(0, now_ms - letter.sent_at_ms) // 1000
