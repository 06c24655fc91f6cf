"""Processes of this host, and this one's garbage collector."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def is_running(process_id: int) -> bool:
    """Whether a process of this id runs on this host; a killed one that nobody waited for does not."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{process_id}/stat").read_text("utf-8").rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return True  # no /proc here
    return state != "Z"


@contextmanager
def without_collection() -> Iterator[None]:
    """Pause Python's garbage collector.

    It is called for every so many new objects. A round, or the typing of a batch, makes them by the ten thousand, and
    all of them go with their last reference: it would look them through for nothing, for a twentieth of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
