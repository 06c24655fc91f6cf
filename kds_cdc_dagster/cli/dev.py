"""`kds-cdc dev`: Dagster UI and daemon on the embedded profile, with simulated traffic."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import click

from kds_cdc_dagster.defs.instance import open_instance
from kds_cdc_dagster.settings import read_settings

PORT = 3000


@click.command()
@click.option("--port", type=int, default=PORT, show_default=True, help="Of the web UI; the next free one if taken.")
@click.option("--traffic/--no-traffic", default=True, show_default=True, help="Send simulated kitchen traffic.")
@click.option("--rate", type=float, default=10.0, show_default=True, help="Messages a second of the traffic.")
def dev(port: int, traffic: bool, rate: float) -> None:
    """Start the Dagster UI with sensors on, and simulated traffic (Ctrl-C ends all)."""
    os.environ.setdefault("KDS_CDC_HOME", str(Path(".kds-cdc").resolve()))
    os.environ["KDS_CDC_HOME"] = str(Path(os.environ["KDS_CDC_HOME"]).resolve())
    os.environ["KDS_CDC_INTAKE"] = "on"
    os.environ.setdefault("DAGSTER_GRPC_MAX_WORKERS", "24")
    settings = read_settings()
    open_instance(settings).dispose()  # one process alone makes the databases
    port = _free(port)
    commands = [
        [sys.executable, "-m", "dagster", "dev", "-w", str(workspace()), "-h", "127.0.0.1", "-p", str(port)],
    ]
    if traffic:
        options = ["--seconds", "0", "--rate", str(rate), "--duplicates", "--poison"]
        commands.append([sys.executable, "-m", "kds_cdc_dagster.cli", "simulate", *options])
    click.echo(f"home {settings.home}\nUI   http://127.0.0.1:{port}")
    _together(commands)


def workspace() -> Path:
    """The project's workspace.yaml."""
    return Path(str(files("kds_cdc_dagster").joinpath("workspace.yaml")))


def _free(port: int) -> int:
    for candidate in range(port, port + 50):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", candidate)) != 0:
                return candidate
    raise click.ClickException(f"no free port from {port} on")


def _together(commands: list[list[str]]) -> None:
    """Run all; when one ends or we are stopped, end all."""
    for stop in (signal.SIGINT, signal.SIGTERM):  # a shell lets what it starts in the background ignore interrupts
        signal.signal(stop, signal.default_int_handler)
    processes = [subprocess.Popen(command) for command in commands]  # noqa: S603 - our own modules
    try:
        processes[0].wait()
    except KeyboardInterrupt:
        pass
    finally:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in processes:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
