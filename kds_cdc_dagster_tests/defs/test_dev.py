"""`kds-cdc dev`: the UI answers, sensors are on, traffic becomes curated rows, and stopping it stops everything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from kds_cdc_dagster_tests.defs.deployment import free_port

_QUERY = """{
  assetNodes { assetKey { path } kinds owners { __typename } assetMaterializations(limit: 1) { runId } }
  sensorsOrError(repositorySelector: {repositoryName: "__repository__", repositoryLocationName: "kds_cdc_dagster"}) {
    __typename ... on Sensors { results { name sensorState { status } } }
  }
}"""


@pytest.mark.e2e
@pytest.mark.timeout(420)
def test_dev_shows_live_traffic_and_ends_whole(tmp_path: Path) -> None:
    """A curated asset is materialized by itself; after an interrupt no process of it is left."""
    port = free_port()
    environment = {
        **os.environ,
        "KDS_CDC_HOME": str(tmp_path),
        "KDS_CDC_BATCH_AGE_SECONDS": "2",
        "PYTHONWARNINGS": "ignore",
    }
    environment.pop("DAGSTER_HOME", None)
    command = [sys.executable, "-m", "kds_cdc_dagster.cli", "dev", "--port", str(port), "--rate", "3"]
    with (tmp_path / "dev.log").open("wb") as log:
        dev = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _wait(lambda: "curated" in {node["assetKey"]["path"][0] for node in _materialized(port)})
        found = _ask(port)
        assert len(found["assetNodes"]) == 17
        assert found["sensorsOrError"]["results"][0]["sensorState"]["status"] == "RUNNING"
        family = [dev, *psutil.Process(dev.pid).children(recursive=True)]
        dev.send_signal(signal.SIGINT)
        _wait(lambda: not any(_is_alive(process.pid) for process in family))
    finally:
        _kill(dev)


_TWO = """
import sys
from kds_cdc_dagster.cli.dev import _together
_together([[sys.executable, "-c", "import os, time; os.write(1, b'up' + bytes([10])); time.sleep(600)"]] * 2)
"""


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_whatever_stops_dev_stops_what_it_started(stop: signal.Signals) -> None:
    """An interrupt or a termination, also where a shell started it in the background: with interrupts ignored."""
    command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", sys.executable, "-c", _TWO]
    dev = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert dev.stdout is not None
    assert [dev.stdout.readline() for _ in range(2)] == ["up\n"] * 2
    children = psutil.Process(dev.pid).children()
    assert len(children) == 2
    dev.send_signal(stop)
    dev.communicate()
    assert not any(_is_alive(child.pid) for child in children)


def _ask(port: int) -> dict[str, Any]:
    body = json.dumps({"query": _QUERY}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/graphql", body, headers)
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
        found: dict[str, Any] = json.load(answer)["data"]
    return found


def _materialized(port: int) -> list[dict[str, Any]]:
    try:
        return [node for node in _ask(port)["assetNodes"] if node["assetMaterializations"]]
    except (OSError, TypeError, KeyError, ValueError):
        return []  # not up yet


def _wait(is_so: Callable[[], bool]) -> None:
    """Until it is so; what never comes ends with the test's own time limit."""
    while not is_so():
        time.sleep(1)


def _is_alive(process_id: int) -> bool:
    return psutil.pid_exists(process_id) and psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
    process.wait()
