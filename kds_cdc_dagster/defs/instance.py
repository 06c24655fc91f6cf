"""The Dagster instance of the embedded profile: its files live under KDS_CDC_HOME."""

from __future__ import annotations

import fcntl
import os
from importlib.resources import files
from pathlib import Path

import dagster as dg

from kds_cdc_dagster.settings import Settings


def dagster_home(settings: Settings) -> Path:
    """DAGSTER_HOME, or the embedded profile's own folder, made ready with a dagster.yaml."""
    home = Path(os.environ.get("DAGSTER_HOME") or settings.dagster_home)
    home.mkdir(parents=True, exist_ok=True)
    config = home / "dagster.yaml"
    if not config.exists():
        config.write_text(files("kds_cdc_dagster").joinpath("dagster.yaml").read_text("utf-8"), "utf-8")
    return home


def open_instance(settings: Settings) -> dg.DagsterInstance:
    """Open the instance; the first process on an empty home makes its databases alone."""
    home = dagster_home(settings)
    os.environ["DAGSTER_HOME"] = str(home)
    with (home / ".making").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        instance = dg.DagsterInstance.from_config(str(home))
        instance.get_runs(limit=1)  # touches the run database; event and schedule storage open theirs too
        return instance
