"""What should be otherwise on a Redis server that carries the state (RED-04)."""

from __future__ import annotations

from typing import Any

from redis.exceptions import ResponseError


def findings(server: Any) -> list[str]:
    """Sentences for `kds-cdc doctor`; `server` is a client of one server."""
    found = []
    policy = _info(server, "memory").get("maxmemory_policy", "unknown")
    if policy != "noeviction":
        found.append(f"maxmemory-policy is {policy}: set noeviction, or positions are evicted under memory pressure")
    persistence = _info(server, "persistence")
    if not persistence.get("aof_enabled"):
        found.append("no append-only file: a restart empties the store, and it is rebuilt before anything is accepted")
    if not _info(server, "replication").get("master_replid"):
        found.append("INFO replication is not allowed: a failover that lost writes cannot be seen")
    return found


def _info(server: Any, section: str) -> dict[str, Any]:
    """A section of INFO, empty where the service does not allow it."""
    try:
        return dict(server.info(section))
    except ResponseError:
        return {}
