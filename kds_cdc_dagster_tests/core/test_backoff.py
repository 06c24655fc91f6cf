"""Pauses between tries."""

from __future__ import annotations

import pytest

from kds_cdc_dagster.core.backoff import Backoff


def test_backoff_doubles_to_its_longest_and_is_jittered() -> None:
    """Pauses double from the first to the longest; the dice move them between half and whole."""
    backoff = Backoff(first_seconds=0.1, longest_seconds=1.0)
    assert [backoff.pause_seconds(failures, 1.0) for failures in (1, 2, 3, 4, 5, 5000)] == [
        0.1,
        0.2,
        0.4,
        0.8,
        1.0,
        1.0,
    ]
    assert backoff.pause_seconds(3, 0.0) == pytest.approx(0.2)
