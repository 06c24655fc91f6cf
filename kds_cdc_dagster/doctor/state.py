"""The state store: reachable, set up so that it forgets nothing, and ready."""

from __future__ import annotations

from collections.abc import Iterator

from kds_cdc_dagster.doctor.finding import Finding, Notes
from kds_cdc_dagster.wiring import Pipeline

NOTE = Notes("state")


def look(parts: Pipeline) -> Iterator[Finding]:
    """Raises StateUnavailable."""
    from kds_cdc_dagster.adapters.redis_state import RedisState

    life = parts.state.life()
    if life is None:
        yield NOTE.info("empty: it is rebuilt from the journal at the next tick")
    else:
        yield NOTE.ok(f"ready, life {life}")
    if isinstance(parts.state, RedisState):
        for found in parts.state.findings():
            note = NOTE.error if found.is_error else NOTE.warn
            yield note(found.what, found.remedy)
    held = sum(1 for _ in parts.state.streams(held_only=True))
    if held:
        yield NOTE.warn(f"{held} streams are held", "kds-cdc streams --held, then kds-cdc release")
