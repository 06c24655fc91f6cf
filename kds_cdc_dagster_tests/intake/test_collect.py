"""Rounds are collected within their bounds."""

from __future__ import annotations

from pathlib import Path

from kds_cdc_dagster.adapters.local_inbox import LocalQueue
from kds_cdc_dagster.clock import SystemClock
from kds_cdc_dagster.intake.collect import DirectCollector, RoundLimits
from kds_cdc_dagster.ports import Message


def test_a_queue_that_gives_many_at_once_does_not_overfill_a_round(tmp_path: Path) -> None:
    """Given a receive of a hundred, a round of fifteen has fifteen; what is left comes with the next one."""
    queue = LocalQueue(tmp_path / "queue", clock=SystemClock(), receive_max=100)
    queue.send([Message("{}", f"group-{number}", str(number)) for number in range(40)])
    collector = DirectCollector(queue, SystemClock(), RoundLimits(15, 1 << 20, 0.0), receive_max=100)
    assert [len(collector.collect(0.0)) for _ in range(4)] == [15, 15, 10, 0]
