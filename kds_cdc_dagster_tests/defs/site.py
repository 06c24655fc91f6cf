"""A whole embedded pipeline in a folder: queue, state, store, warehouse and Dagster instance, driven in process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from kds_cdc_dagster.cli.run import Summary, drive
from kds_cdc_dagster.definitions import definitions
from kds_cdc_dagster.defs.instance import open_instance
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.load.figures import curated_figures
from kds_cdc_dagster.load.layout import Layout
from kds_cdc_dagster.ports import Message
from kds_cdc_dagster.wiring import Pipeline, pipeline

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")


class Site:
    """The pipeline under test."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch, **settings: object) -> None:
        for name, value in {"home": home, "batch_age_seconds": 600, **settings}.items():
            patch.setenv(f"KDS_CDC_{name.upper()}", str(value))
        patch.delenv("DAGSTER_HOME", raising=False)
        self._patch = patch
        definitions.cache_clear()
        self.parts: Pipeline = pipeline()

    def send(self, messages: Sequence[Message]) -> None:
        """Publish."""
        self.parts.outbound.send(messages)

    def drive(self) -> Summary:
        """Drain and load until nothing waits, through the real sensor and its runs."""
        summary = drive(self.parts, until_idle=True, timeout_seconds=240)
        self.parts.is_driven = False
        self.parts.close()  # as the command does: the next drive starts with a claim of its own
        return summary

    @contextmanager
    def instance(self) -> Iterator[dg.DagsterInstance]:
        """The Dagster instance."""
        with open_instance(self.parts.settings) as instance:
            yield instance

    def run_job(self, name: str, **config: Any) -> dg.ExecuteInProcessResult:
        """Run a repair job as the launchpad would."""
        with self.instance() as instance:
            return (
                definitions()
                .resolve_job_def(name)
                .execute_in_process(
                    instance=instance,
                    run_config={**QUIET, **({"ops": {name: {"config": config}}} if config else {})},
                    raise_on_error=False,
                )
            )

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Query the warehouse."""
        return self.parts.warehouse.run(lambda tx: tx.rows(sql))

    def execute(self, sql: str) -> None:
        """What somebody does by hand."""
        self.parts.warehouse.run(lambda tx: tx.execute(sql))

    def live_rows(self) -> dict[str, int]:
        """Target -> live rows."""
        layouts = [Layout.of(self.parts.catalogue, t.name, self.parts.schemas) for t in self.parts.catalogue.targets]
        return {layout.target.name: curated_figures(self.parts.warehouse, layout).live for layout in layouts}

    def manifest(self, batch: object) -> Manifest:
        """A sealed batch."""
        return self.parts.loader.manifest(str(batch))


def output_metadata(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """Metadata of the only op's output, plain."""
    (event,) = [e for e in result.all_events if e.event_type_value == "STEP_OUTPUT"]
    return {name: value.value for name, value in event.step_output_data.metadata.items()}


def materialized(instance: dg.DagsterInstance, stage: str) -> dict[str, int]:
    """Asset name -> materializations, of one stage."""
    keys = [key for key in instance.all_asset_keys() if key.path[0] == stage]
    return {key.path[1]: len(instance.fetch_materializations(key, limit=100).records) for key in keys}
