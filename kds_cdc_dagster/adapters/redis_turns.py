"""Runs scripts on a Redis (or Valkey) server or cluster: many in one network turn, retried, errors sorted.

Every script may be repeated safely, so a turn whose reply was lost is simply sent again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.retry import Retry

from kds_cdc_dagster.adapters.redis_scripts import ALL, Script
from kds_cdc_dagster.errors import InvariantBroken, StateUnavailable

_ATTEMPTS = 3
"""A turn is sent at most this often; each attempt ends within the timeout."""
_PAUSE_SECONDS = 0.05
"""Before the second attempt; longer each time, with jitter, so that workers do not return in step."""

_exceptions: Any = redis.exceptions
"""Untyped, because the type stubs lag behind."""
_REFUSED = (AuthenticationError, AuthorizationError, NoPermissionError)
_PASSING = (
    *_REFUSED,
    redis.ConnectionError,
    redis.TimeoutError,
    RedisClusterException,
    ReadOnlyError,
    ClusterDownError,
    MasterDownError,
    TryAgainError,
    _exceptions.OutOfMemoryError,
    NoScriptError,
    OSError,
)
_PASSING_CODES = ("BUSY", "MISCONF", "NOREPLICAS")
"""Error codes of passing conditions for which the client has no class of its own."""


class Turn(NamedTuple):
    """One script call; all of its keys sit in one slot."""

    script: Script
    keys: Sequence[str]
    args: Sequence[bytes | str | int]


class Turns:
    """Connects at the first call. `timeout_seconds` bounds each attempt."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._client: Any = None

    def run(self, turns: Sequence[Turn]) -> list[Any]:
        """Replies in order. Raises StateUnavailable, and InvariantBroken if a script itself fails."""
        for attempt in range(1, _ATTEMPTS):
            try:
                return self._run_once(turns)
            except _PASSING:
                self._reconnect()
            except ResponseError as error:
                if not _is_passing(error):
                    break  # once more, to be sorted
            time.sleep(_PAUSE_SECONDS * attempt * (1 + random.random()))  # noqa: S311  jitter
        with self.sorted_errors():
            return self._run_once(turns)

    @contextmanager
    def sorted_errors(self) -> Iterator[None]:
        """The client's errors become ours."""
        try:
            yield
        except (RedisError, OSError) as error:
            if not _is_passing(error):
                raise InvariantBroken("a script of the state store failed", error=error) from error
            self._reconnect()
            hint = "check user, password and ACL in KDS_CDC_REDIS_URL" if isinstance(error, _REFUSED) else ""
            raise StateUnavailable("the state store cannot be used", error=error, hint=hint) from error

    def client(self) -> Any:
        """The connected client, of a server or a cluster."""
        if self._client is None:
            self._client = self._connected()
        return self._client

    def servers(self) -> list[Any]:
        """A client of every server that takes writes."""
        client = self.client()
        if isinstance(client, RedisCluster):
            primaries: Any = client.get_primaries()  # type: ignore[no-untyped-call]
            return [node.redis_connection for node in primaries]
        return [client]

    def close(self) -> None:
        """Give connections back."""
        if self._client is not None:
            self._client.close()
        self._client = None

    def _connected(self) -> Any:
        options: dict[str, Any] = {
            "socket_timeout": self._timeout_seconds,
            "socket_connect_timeout": self._timeout_seconds,
            "retry": Retry(NoBackoff(), 0),  # repeating is decided here, once
        }
        client = redis.Redis.from_url(self._url, **options)
        if not client.info("cluster").get("cluster_enabled"):
            return client
        client.close()
        return RedisCluster.from_url(self._url, **options)

    def _run_once(self, turns: Sequence[Turn]) -> list[Any]:
        replies = self._send(turns)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            for script in ALL:  # a new or flushed server
                self.client().script_load(script.text)
            replies = self._send(turns)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def _send(self, turns: Sequence[Turn]) -> list[Any]:
        client = self.client()
        if isinstance(client, RedisCluster):  # its pipelines refuse EVALSHA
            return [_answer(client, turn) for turn in turns]
        with client.pipeline(transaction=False) as pipeline:
            for script, keys, args in turns:
                pipeline.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
            replies: list[Any] = pipeline.execute(raise_on_error=False)
            return replies

    def _reconnect(self) -> None:
        """A replica that was promoted, or a server that came back, is met through new connections."""
        if self._client is not None and not isinstance(self._client, RedisCluster):
            self._client.connection_pool.disconnect()


def _answer(client: Any, turn: Turn) -> Any:
    try:
        return client.execute_command("EVALSHA", turn.script.sha, len(turn.keys), *turn.keys, *turn.args)
    except ResponseError as error:
        return error


def _is_passing(error: BaseException) -> bool:
    return isinstance(error, _PASSING) or str(error).startswith(_PASSING_CODES)
