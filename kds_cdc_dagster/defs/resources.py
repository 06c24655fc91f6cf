"""The resource that gives assets and sensors the pipeline's parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from kds_cdc_dagster.wiring import Pipeline


class PipelineResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A thin handle: parts live once per process, since Dagster builds resources anew for every tick."""

    def parts(self) -> Pipeline:
        """The parts of the pipeline that the environment describes. Opens nothing by itself."""
        from kds_cdc_dagster.wiring import pipeline

        return pipeline()
