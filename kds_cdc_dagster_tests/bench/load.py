"""The load of one sealed batch: raw, staging and curated in DuckDB."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from kds_cdc_dagster.adapters.memory_state import MemoryState
from kds_cdc_dagster.core.batch import CloseReason
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster_tests.bench.measure import RUNS, Figure, Span, rate, span
from kds_cdc_dagster_tests.bench.sites import LoadSite, check, open_intake, open_load
from kds_cdc_dagster_tests.bench.workload import Workload

SIZES = ((1_000, None), (10_000, 40_000.0), (100_000, 60_000.0))
"""Changes in a batch, target a second."""
STREAMS = 500


def load(*, quick: bool) -> Iterator[Figure]:
    """Raw, staging and curated of one batch, from its sealed segments, into a warehouse that has one before it."""
    for size, target in SIZES[: 2 if quick else 3]:
        runs = 1 if quick else RUNS
        with tempfile.TemporaryDirectory() as folder:
            workload = Workload(STREAMS)
            batches, site = sealed(Path(folder), workload, size, runs + 1)
            site.load(batches[0])  # imports, and tables that are not empty
            yield rate(
                f"load of {size:,} changes", size, [_timed(site, batch) for batch in batches[1:]], at_least=target
            )
            check(site.warehouse, workload)
            site.warehouse.close()


def sealed(folder: Path, workload: Workload, size: int, count: int) -> tuple[list[Manifest], LoadSite]:
    """`count` batches of `size` changes in a folder's store, and a loader for them."""
    site = open_intake(folder, batch_records=size)
    assert isinstance(site.state, MemoryState)
    batches = []
    for _ in range(count):
        left = size
        while left:
            part = min(5_000, left)
            site.intake.round(workload.deliveries(1, part // STREAMS))
            left -= part
        batch = site.intake.seal(CloseReason.COUNT)
        assert batch is not None
        assert batch.accepted == size
        batches.append(batch)
    return batches, open_load(folder, site.store)


def _timed(site: LoadSite, batch: Manifest) -> Span:
    with span() as taken:
        site.load(batch)
    return taken
