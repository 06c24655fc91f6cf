"""Lua scripts of the Redis state store; each is `common.lua` followed by its own file."""

from __future__ import annotations

from functools import cached_property
from hashlib import sha1
from importlib.resources import files


class Script:
    """A script's text, and the SHA-1 under which a server keeps it."""

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def text(self) -> str:
        """Source text as sent to the server."""
        folder = files(__name__)
        return (folder / "common.lua").read_text() + (folder / f"{self.name}.lua").read_text()

    @cached_property
    def sha(self) -> str:
        """Hex SHA-1 of the text, as EVALSHA wants it."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()


LIFE, LEASE, LOAD, DECIDE, SETTLE, HOLD = map(Script, ("life", "lease", "load", "decide", "settle", "hold"))
ALL = (LIFE, LEASE, LOAD, DECIDE, SETTLE, HOLD)
