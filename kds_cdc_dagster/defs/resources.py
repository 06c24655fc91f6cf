"""The resource that gives assets and sensors the pipeline's parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from kds_cdc_dagster.defs.names import TAG_PROCESS
from kds_cdc_dagster.defs.runs import this_process

if TYPE_CHECKING:
    from kds_cdc_dagster.wiring import Pipeline


class PipelineResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A thin handle: parts live once per process, since Dagster builds resources anew for every tick."""

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """In a run, note which process executes it: a run whose process is gone can then be told (`defs.runs`)."""
        run = context.run
        if run is not None and context.instance is not None and context.instance.has_run(run.run_id):
            context.instance.add_run_tags(run.run_id, {TAG_PROCESS: this_process()})

    def parts(self) -> Pipeline:
        """The parts of the pipeline that the environment describes. Opens nothing by itself."""
        from kds_cdc_dagster.wiring import pipeline

        return pipeline()
