"""Is the worker that holds a claim gone? A wrong answer costs a round, never a message."""

from __future__ import annotations

from dataclasses import dataclass

from kds_cdc_dagster.journal.claims import Heartbeat
from kds_cdc_dagster.processes import is_running


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
