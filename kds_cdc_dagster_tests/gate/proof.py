"""The proof: each stage under each fault against the undisturbed line, on one warehouse."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kds_cdc_dagster.adapters.duckdb_warehouse import DuckdbWarehouse
from kds_cdc_dagster.adapters.object_store import open_memory, open_s3
from kds_cdc_dagster.adapters.redshift_transaction import Exchange
from kds_cdc_dagster.load.layout import Schemas
from kds_cdc_dagster_tests.gate.faults import FAULTS, undisturbed
from kds_cdc_dagster_tests.gate.line import STAGES, Line, Outcome
from kds_cdc_dagster_tests.redshift.server import redshift_with_s3
from kds_cdc_dagster_tests.redshift.warehouse import site_on

NewLine = Callable[[str], Line]
"""Name -> a line with nothing loaded, in schemas and a store of its own."""


class Cell(NamedTuple):
    """One line of the table."""

    stage: str
    fault: str
    warehouse: str
    result: str
    is_same: bool

    def text(self) -> str:
        """For people."""
        return f"{self.stage:<8} {self.fault:<27} {self.warehouse:<9} {self.result}"


def prove(warehouse: str, new_line: NewLine, *, stages: Iterable[str] = STAGES) -> Iterator[Cell]:
    """Every cell of one warehouse."""
    clean = new_line("clean")
    undisturbed(clean)
    expected = clean.outcome()
    right = expected["consumers see the source's rows"] and all(expected["done"]) and bool(expected["export"])
    yield Cell("all", "undisturbed", warehouse, "as the source" if right else "NOT AS THE SOURCE", is_same=right)
    for stage in stages:
        for number, (fault, disturb) in enumerate(FAULTS.items()):
            line = new_line(f"{stage}_{number}")
            started = time.monotonic()
            deaths = disturb(line, stage)
            different = differing(expected, line.outcome())
            result = f"DIFFERS: {', '.join(different)}" if different else "same"
            told = f"{deaths} deaths, " if deaths else ""
            text = f"{result} ({told}{time.monotonic() - started:.1f} s)"
            yield Cell(stage, fault, warehouse, text, is_same=not different)


def differing(expected: Outcome, found: Outcome) -> list[str]:
    """Which parts of the outcome differ."""
    return [name for name, value in expected.items() if found[name] != value]


@contextmanager
def on_duckdb() -> Iterator[NewLine]:
    """A DuckDB file for each line."""
    opened: list[DuckdbWarehouse] = []
    with tempfile.TemporaryDirectory() as folder:

        def new_line(name: str) -> Line:
            store = open_memory("kds")

            def another() -> DuckdbWarehouse:
                opened.append(DuckdbWarehouse(Path(folder) / f"{name}.duckdb", store, threads=1))
                return opened[-1]

            return Line(another, store, Schemas())

        try:
            yield new_line
        finally:
            for warehouse in opened:
                warehouse.close()


@contextmanager
def on_redshift() -> Iterator[NewLine]:
    """Schemas and a prefix of the bucket for each line, in one stand-in."""
    with redshift_with_s3() as stand_in, site_on(stand_in.s3) as site:
        place = site.redshift.s3

        def new_line(name: str) -> Line:
            store = open_s3(place.bucket, name, endpoint_url=place.endpoint_url, region=place.region)
            schemas = Schemas(f"{name}_staging", f"{name}_curated", f"{name}_ops")
            exchange = Exchange(store, site.redshift.role)
            return Line(lambda: site.warehouse(exchange=exchange, lock_schema=schemas.ops), store, schemas)

        yield new_line


WAREHOUSES = {"duckdb": on_duckdb, "redshift": on_redshift}
