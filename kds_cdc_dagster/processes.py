"""Processes of this host."""

from __future__ import annotations

import os
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
