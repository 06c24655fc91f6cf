"""Random schedules hold every rule; a seed repeats exactly; and each rule taken away is found missing."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from itertools import chain

import pytest

from kds_cdc_dagster_tests.simulation.__main__ import main, run
from kds_cdc_dagster_tests.simulation.breaks import BREAKS
from kds_cdc_dagster_tests.simulation.plan import FAULTS, focused, plan
from kds_cdc_dagster_tests.simulation.schedule import simulate

SEEDS = range(1, 161)
"""A smoke test; `make simulate SEEDS=20000` is the proof. Together these seeds have every fault."""
SEEDS_PER_BREAK = 2000


@pytest.mark.parametrize("first", SEEDS[::20])
def test_random_schedules_hold_every_rule(first: int) -> None:
    """S02, S07 to S14, S16, S17, S27, S32 at random: crashes, zombies, flushes, lost replies, odd publishers."""
    accepted = 0
    for seed in range(first, first + 20):
        outcome = run(seed)
        assert outcome.findings == [], f"seed {seed}"
        accepted += outcome.accepted
    assert accepted > 100


def test_the_seeds_have_every_fault() -> None:
    """No fault is left to bigger runs only."""
    assert set(chain.from_iterable(plan(seed).faults for seed in SEEDS)) == set(FAULTS)


@pytest.mark.parametrize("rule", sorted(BREAKS))
def test_each_rule_taken_away_is_found_missing(rule: str) -> None:
    """The simulation can fail: beginning with a seed known to show it, some schedule finds the rule missing."""
    known = BREAKS[rule].seed
    seeds = [known, *(seed for seed in range(1, SEEDS_PER_BREAK) if seed != known)]
    found = next((seed for seed in seeds if run(seed, rule).findings), None)
    assert found is not None
    assert simulate(focused(found, BREAKS[rule].focus)).findings == [], "with the rule, the same schedule is sound"


def test_a_seed_repeats_exactly() -> None:
    """Every step and fault, also in another process with other hash seeds."""
    here = [trace_digest(seed) for seed in (3, 11)]
    code = f"from {__name__} import trace_digest as t; print([t(3), t(11)])"
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    there = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert there.stdout.strip() == str(here)


def trace_digest(seed: int) -> str:
    """What happened, in short."""
    return sha256("\n".join(simulate(plan(seed)).trace).encode()).hexdigest()


def test_a_failing_seed_says_how_to_repeat_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The seed, what it broke, every step on request; exit code 1."""
    seed = str(BREAKS["round-without-settle"].seed)
    assert main(["--first", seed, "--seeds", "1", "--break", "round-without-settle", "--trace"]) == 1
    printed = capsys.readouterr().out
    assert f"seed {seed}:" in printed
    assert "decide" in printed
    assert main(["--seeds", "2"]) == 0
