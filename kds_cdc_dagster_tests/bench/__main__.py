"""Run benchmarks: all of them, or those named; `--quick` for fewer and smaller ones in under two minutes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

from kds_cdc_dagster_tests.bench import daemon, daemon_growth, growth, load, lock, orchestrated, path, rounds, sqs
from kds_cdc_dagster_tests.bench.measure import Figure, conditions

BENCHMARKS: dict[str, Callable[..., Iterator[Figure]]] = {
    "rounds": rounds.rounds,
    "streams": rounds.streams,
    "lock": lock.lock,
    "load": load.load,
    "path": path.path,
    "dagster": orchestrated.dagster,
    "sqs": sqs.sqs,
    "batches": growth.batches,
    "curated": growth.curated,
}
LONG: dict[str, Callable[..., Iterator[Figure]]] = {
    "daemon-1000": daemon.steady_1000,
    "daemon-300": daemon.steady_300,
    "daemon-backlog": daemon.backlog,
    "daemon-growth": daemon_growth.growth,
}
"""Minutes each: only when named."""


def main() -> None:
    """Print one line a figure as it is measured."""
    known = {**BENCHMARKS, **LONG}
    parser = argparse.ArgumentParser(prog="python -m kds_cdc_dagster_tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *known], metavar="name", help=", ".join(known))
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    print(conditions())
    for name in arguments.names or BENCHMARKS:
        started = time.monotonic()
        print(f"{name}: {(known[name].__doc__ or '').splitlines()[0]}")
        for figure in known[name](quick=arguments.quick):
            print(figure.line(), flush=True)
        print(f"  ({time.monotonic() - started:.0f} s)")


if __name__ == "__main__":
    main()
