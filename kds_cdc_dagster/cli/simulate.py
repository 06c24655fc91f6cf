"""`kds-cdc simulate`: seeded mock traffic."""

from __future__ import annotations

import time

import click

from kds_cdc_dagster.traffic.simulate import Traffic
from kds_cdc_dagster.wiring import pipeline

STEP_SECONDS = 0.25


@click.command()
@click.option("--rate", type=float, default=50.0, show_default=True, help="Messages a second.")
@click.option("--stores", type=int, default=10, show_default=True, help="Stores, which are streams.")
@click.option("--seconds", type=float, default=10.0, show_default=True, help="How long; 0 = until stopped.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--hot", type=float, default=0.0, show_default=True, help="Share of all traffic in one hot store.")
@click.option("--duplicates", is_flag=True, help="Send some messages twice.")
@click.option("--out-of-order", is_flag=True, help="Send some messages late.")
@click.option("--poison", is_flag=True, help="Send garbage, unknown tables, missing keys, conflicts.")
@click.option("--fast", is_flag=True, help="As fast as the queue takes it, without keeping to the rate.")
def simulate(  # noqa: PLR0917 - click passes options
    rate: float,
    stores: int,
    seconds: float,
    seed: int,
    hot: float,
    duplicates: bool,
    out_of_order: bool,
    poison: bool,
    fast: bool,
) -> None:
    """Send seeded kitchen traffic of the mock contract to the queue."""
    traffic = Traffic(seed, stores, rate=rate, hot=hot, duplicates=duplicates, out_of_order=out_of_order, poison=poison)
    parts = pipeline()
    sent = 0
    started = time.monotonic()
    elapsed = 0.0
    while seconds <= 0 or elapsed < seconds:
        elapsed += STEP_SECONDS
        sent += parts.outbound.send(traffic.until(elapsed))
        if not fast:
            time.sleep(max(0.0, started + elapsed - time.monotonic()))
    parts.close()
    click.echo(f"sent {sent} messages of {stores} stores in {time.monotonic() - started:.1f} s")
