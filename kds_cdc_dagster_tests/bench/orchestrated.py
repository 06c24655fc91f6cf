"""The whole path through Dagster: sensors and their runs driven in one process, as `kds-cdc run` does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kds_cdc_dagster.settings import Settings
from kds_cdc_dagster.wiring import Pipeline
from kds_cdc_dagster_tests.bench.measure import Figure, span
from kds_cdc_dagster_tests.bench.sites import check
from kds_cdc_dagster_tests.bench.workload import Workload


def dagster(*, quick: bool) -> Iterator[Figure]:
    """Embedded profile (SQLite queue and state, folder, DuckDB): one process, start of Dagster included."""
    streams, each = 500, 10 if quick else 100
    workload = Workload(streams)
    with tempfile.TemporaryDirectory() as folder:
        parts = Pipeline(Settings(home=Path(folder)))
        parts.outbound.send(workload.messages(1, each))
        parts.close()
        environment = {**os.environ, "KDS_CDC_HOME": folder, "PYTHONWARNINGS": "ignore"}
        command = [sys.executable, "-m", "kds_cdc_dagster.cli", "run", "--until-idle", "--json"]
        with span() as taken:
            done = subprocess.run(command, env=environment, capture_output=True, check=True)
        summary = json.loads(done.stdout)
        assert summary["counts"]["accepted"] == streams * each, summary
        check(parts.warehouse, workload)  # type: ignore[arg-type]  # the embedded profile has DuckDB
        parts.close()
    seconds = summary["seconds"]
    note = f"{len(summary['batches'])} runs in {seconds:.1f} s, and {taken.seconds - seconds:.1f} s to start and end"
    yield Figure("queue → curated through sensor and runs", streams * each / seconds, "/s", note=note)
