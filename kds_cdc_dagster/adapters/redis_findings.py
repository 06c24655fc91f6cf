"""What should be otherwise on a Redis server that carries the state (RED-04)."""

from __future__ import annotations

from typing import Any, NamedTuple

from redis.exceptions import ResponseError

VERSION_MIN = (6, 2)
"""Oldest release line that the state store's contract suite is meant for."""


class ServerFinding(NamedTuple):
    """One thing to change."""

    is_error: bool
    what: str
    remedy: str


def findings(server: Any) -> list[ServerFinding]:
    """For `kds-cdc doctor`; `server` is a client of one server."""
    found = []
    memory, persistence = _info(server, "memory"), _info(server, "persistence")
    policy = memory.get("maxmemory_policy", "unknown")
    if policy != "noeviction":
        what = f"maxmemory-policy is {policy}: positions are evicted under memory pressure"
        found.append(ServerFinding(True, what, "set maxmemory-policy noeviction"))
    if not persistence.get("aof_enabled"):
        what = "no append-only file: a restart empties the store, and it is rebuilt before anything is accepted"
        found.append(ServerFinding(False, what, "set appendonly yes, or accept a rebuild after each restart"))
    if not _info(server, "replication").get("master_replid"):
        what = "INFO replication is not allowed: a failover that lost writes cannot be seen"
        found.append(ServerFinding(False, what, "allow INFO to this user"))
    version = str(_info(server, "server").get("redis_version", ""))
    if version and tuple(int(part) for part in version.split(".")[:2]) < VERSION_MIN:
        found.append(ServerFinding(False, f"version {version} is old", "6.2 or newer, or Valkey"))
    return found


def _info(server: Any, section: str) -> dict[str, Any]:
    """A section of INFO, empty where the service does not allow it."""
    try:
        return dict(server.info(section))
    except ResponseError:
        return {}
