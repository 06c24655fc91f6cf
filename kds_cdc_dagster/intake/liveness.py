"""Is the worker that holds a claim gone? A wrong answer costs a round, never a message."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kds_cdc_dagster.journal.claims import Heartbeat


@dataclass(frozen=True, slots=True)
class Liveness:
    """Judges heartbeats: on the own host by looking for the process, elsewhere by age."""

    host: str
    process_id: int
    started_at: float
    """When this process began to take claims: an older one of the same process id is of a dead namesake."""
    dead_after_seconds: float

    def is_gone(self, heartbeat: Heartbeat, now: float) -> bool:
        """Whether the claim's log may be adopted."""
        if heartbeat.is_abandoned or now - heartbeat.seen_at > self.dead_after_seconds:
            return True
        if heartbeat.host != self.host:
            return False
        if heartbeat.process_id == self.process_id:
            return heartbeat.started_at < self.started_at
        return not is_running(heartbeat.process_id)


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
