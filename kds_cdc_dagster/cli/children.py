"""Worker processes that a command starts beside itself and ends with itself."""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import Self


class Children:
    """`count` processes of `kds-cdc worker`."""

    def __init__(self, count: int) -> None:
        command = [sys.executable, "-m", "kds_cdc_dagster.cli", "worker", "--quiet"]
        self._processes = [
            subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 - our own module
            for _ in range(count)
        ]

    @property
    def are_running(self) -> bool:
        """Whether at least one still runs."""
        return any(process.poll() is None for process in self._processes)

    def end(self) -> None:
        """Ask all to end cleanly."""
        for process in self._processes:
            if process.poll() is None:
                process.terminate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        for process in self._processes:
            process.wait()
