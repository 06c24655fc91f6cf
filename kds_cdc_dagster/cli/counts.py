"""Rows of the curated tables and of the quarantine, as commands show them."""

from __future__ import annotations

from collections import Counter

from kds_cdc_dagster.load.figures import curated_figures, quarantine_counts
from kds_cdc_dagster.load.layout import Layout
from kds_cdc_dagster.wiring import Pipeline


def curated_rows(parts: Pipeline) -> dict[str, int]:
    """Target -> live rows."""
    parts.loader.ensure()
    layouts = [Layout.of(parts.catalogue, target.name, parts.schemas) for target in parts.catalogue.targets]
    return {layout.target.name: curated_figures(parts.warehouse, layout).live for layout in layouts}


def quarantine_rows(parts: Pipeline) -> dict[str, int]:
    """Reason -> open rows of the quarantine; parked deliveries are no rejections."""
    parts.loader.ensure()
    found: Counter[str] = Counter()
    for count in quarantine_counts(parts.warehouse, parts.schemas):
        found["parked" if count.outcome == "parked" else count.reason] += count.rows
    return dict(found)
