"""A real deployment on loopback: a code server (gRPC) and a Dagster daemon as processes that may be killed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from kds_cdc_dagster.defs.instance import open_instance
from kds_cdc_dagster.settings import read_settings


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Deployment:
    """Processes under one KDS_CDC_HOME; all are ended, with their children, by process id."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._port = free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.workspace = home / "workspace.yaml"
        self.workspace.write_text(
            f"load_from:\n  - grpc_server: {{host: 127.0.0.1, port: {self._port}, location_name: kds_cdc_dagster}}\n",
            "utf-8",
        )

    def __enter__(self) -> Self:
        open_instance(read_settings()).dispose()  # one process alone makes the databases
        return self

    def start_code_server(self, *, kill_plan: str = "") -> None:
        """Start it; `kill_plan`: where it kills itself (`adapters.killing`)."""
        address = ["-h", "127.0.0.1", "-p", str(self._port)]
        plan = {"KDS_CDC_TEST_KILL": kill_plan} if kill_plan else {}
        module = ["-m", "kds_cdc_dagster.definitions", "--max-workers", "16", "--location-name", "kds_cdc_dagster"]
        self._start("code server", ["dagster", "api", "grpc", *address, *module], plan)
        self.wait_until(lambda: not self.is_running("code server") or self._answers(), "the code server answers")

    def start_daemon(self) -> None:
        """Start the daemon."""
        self._start("daemon", ["dagster._daemon", "run", "-w", str(self.workspace)], {})

    def _start(self, name: str, module: list[str], extra: dict[str, str]) -> None:
        environment = {**os.environ, "DAGSTER_HOME": str(self._home / "dagster"), "PYTHONWARNINGS": "ignore", **extra}
        with (self._home / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", *module]
            self._processes[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def is_running(self, name: str) -> bool:
        """Whether it has not ended."""
        return self._processes[name].poll() is None

    def process_ids(self) -> dict[str, int]:
        """Name -> process id of what runs."""
        return {name: process.pid for name, process in self._processes.items() if self.is_running(name)}

    def kill(self, name: str, *, with_children: bool = False) -> None:
        """SIGKILL; `with_children`: as a container dies, its runs included."""
        process = self._processes[name]
        children = psutil.Process(process.pid).children(recursive=True) if self.is_running(name) else []
        process.kill()
        process.wait()
        for child in children if with_children else []:
            if child.is_running():
                child.kill()

    def wait_until(self, is_so: Callable[[], bool], what: str, seconds: float = 150.0) -> None:
        """Look often, for a bounded time."""
        deadline = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}\n{self._tails()}"
            time.sleep(0.3)

    def _tails(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text('utf-8')[-1500:]}" for log in self._home.glob("*.log"))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self._processes:
            self.kill(name, with_children=True)
        for process in psutil.process_iter(["pid", "environ"]):  # runs that outlived their code server
            home = (process.info["environ"] or {}).get("KDS_CDC_HOME")
            if home == str(self._home) and process.pid != os.getpid():
                process.kill()
