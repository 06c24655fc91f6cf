"""Read the packaged samples: change events of a real Debezium engine, and the source's final rows."""

from __future__ import annotations

import json
import lzma
from importlib.resources import files
from typing import Any

SAMPLES = {"postgresql": "kdsprod-pg", "mysql": "kdsprod-mysql"}
"""Sample -> id of its source in the packaged catalogue."""


def events(sample: str) -> list[str]:
    """Lines of a capture, as `kds-cdc enqueue` reads them."""
    return _text(f"{sample}.jsonl.xz").splitlines()


def final_rows(sample: str) -> dict[str, list[dict[str, Any]]]:
    """Table -> rows that the source held at the end."""
    found: dict[str, list[dict[str, Any]]] = json.loads(_text(f"{sample}.state.json.xz"))
    return found


def _text(name: str) -> str:
    return lzma.decompress(files("kds_cdc_dagster.demo").joinpath("samples", name).read_bytes()).decode("utf-8")
