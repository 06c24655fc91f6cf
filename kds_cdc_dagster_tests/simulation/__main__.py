"""Run seeds: `python -m kds_cdc_dagster_tests.simulation --first 1 --seeds 200 [--trace] [--break RULE]`.

A failing seed prints itself, what it broke, and with --trace every step; the same seed repeats exactly.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from kds_cdc_dagster_tests.simulation.breaks import BREAKS
from kds_cdc_dagster_tests.simulation.plan import focused, plan
from kds_cdc_dagster_tests.simulation.schedule import Outcome, simulate

REPEAT = "repeat: python -m kds_cdc_dagster_tests.simulation --first {seed} --seeds 1 --trace"
CHUNK = 25
"""Seeds per piece of work handed to a process."""


def run(seed: int, rule: str = "") -> Outcome:
    """One seed; or, with a rule switched off, the seed under the faults that make the rule needed."""
    if not rule:
        return simulate(plan(seed))
    with BREAKS[rule].off():
        return simulate(focused(seed, BREAKS[rule].focus))


def main(arguments: list[str]) -> int:
    """Exit code 1 if any seed found something."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--trace", action="store_true", help="print every step of a failing seed")
    parser.add_argument("--break", dest="rule", choices=sorted(BREAKS), default="", help="switch this rule off")
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.seeds)
    started, failed = time.monotonic(), 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for outcome in pool.map(partial(run, rule=options.rule), seeds, chunksize=CHUNK):
            if outcome.findings:
                failed += 1
                _show(outcome, is_traced=options.trace)
    print(f"{len(seeds)} schedules, {failed} failed, {time.monotonic() - started:.1f} s")
    return 1 if failed else 0


def _show(outcome: Outcome, *, is_traced: bool) -> None:
    lines = outcome.trace if is_traced else [REPEAT.format(seed=outcome.seed)]
    print("\n".join([f"seed {outcome.seed}:", *(f"  {finding}" for finding in outcome.findings), *lines]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
