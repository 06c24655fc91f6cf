"""One SQS call: JSON protocol over kept connections, own retries, errors sorted by who must act.

boto3 costs 2.2 ms of CPU per ten messages received and deleted, this way 0.35 ms (the tests' stub over HTTP).
Nothing below retries by itself.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any

import msgspec
from urllib3.exceptions import HTTPError

from kds_cdc_dagster.adapters.sqs_access import Peer, SqsAccess, connect
from kds_cdc_dagster.adapters.sqs_sign import signed_headers
from kds_cdc_dagster.core.backoff import Backoff
from kds_cdc_dagster.errors import SettingsError, TransientError
from kds_cdc_dagster.ports import Clock

REPLY_SECONDS = 10.0
"""How long a reply may take beyond the wait that was asked for; then it counts as lost."""

_PASSING = frozenset(
    (
        *("InternalError", "InternalFailure", "ServiceUnavailable", "RequestTimeout"),
        *("KmsThrottled", "RequestLimitExceeded", "RequestThrottled", "SlowDown", "Throttling", "TooManyRequests"),
    )
)
"""Error codes that go away by themselves."""


class CallRefused(SettingsError):
    """The service understood the call and refuses it; `code` says why."""

    def __init__(self, code: str, **facts: object) -> None:
        self.code = code
        hint = "queue address, region, role, policies (infra/queue.yaml), this machine's clock"
        super().__init__("SQS refuses the call", hint=hint, code=code, **facts)


_BACKOFF = Backoff()


class SqsWire:
    """Calls about one queue, from any number of threads. Connects at the first one.

    `counts` tells what trouble was met: "transient" and "refused" calls, and what callers note.
    """

    def __init__(
        self, access: SqsAccess, *, clock: Clock, backoff: Backoff = _BACKOFF, connections_max: int = 16
    ) -> None:
        self.access = access
        self.clock = clock
        self.backoff = backoff
        self._connections_max = connections_max
        self._lock = threading.Lock()
        self._peer: Peer | None = None
        self._counts: Counter[str] = Counter()

    def counts(self) -> dict[str, int]:
        """How often each kind of trouble was met since the start."""
        with self._lock:
            return dict(self._counts)

    def count(self, kind: str, number: int = 1) -> None:
        """Note trouble."""
        with self._lock:
            self._counts[kind] += number

    def ask(self, action: str, body: Mapping[str, Any]) -> bytes:
        """The reply, after bounded tries. Raises TransientError, CallRefused and other SettingsErrors."""
        failures = 0
        while True:
            try:
                return self.call(action, body)
            except TransientError:
                failures += 1
                if failures >= self.backoff.tries_max:
                    raise
            self.pause(failures)

    def pause(self, failures: int) -> None:
        """Wait before the next try."""
        self.clock.sleep(self.backoff.pause_seconds(failures, random.random()))  # noqa: S311  (spreads load)

    def call(self, action: str, body: Mapping[str, Any], *, wait_seconds: float = 0.0) -> bytes:
        """One try. A TransientError leaves open whether the call took effect: its reply may be lost."""
        payload = msgspec.json.encode({"QueueUrl": self.access.queue_url, **body})
        try:
            status, reply = self._posted(action, payload, wait_seconds + REPLY_SECONDS)
        except (OSError, HTTPException, HTTPError) as error:
            self.count("transient")
            raise TransientError("no reply from SQS", action=action, cause=type(error).__name__) from error
        if status == 200:
            return reply
        code = _code(reply)
        if status >= 500 or status == 429 or code in _PASSING:
            self.count("transient")
            raise TransientError("SQS is busy or unwell", action=action, status=status, code=code)
        self.count("refused")
        raise CallRefused(code, action=action, status=status, queue_url=self.access.queue_url)

    def close(self) -> None:
        """Give the connections back; a later call opens new ones."""
        with self._lock:
            peer, self._peer = self._peer, None
        if peer is not None:
            peer.connections.close()

    def _posted(self, action: str, payload: bytes, reply_seconds: float) -> tuple[int, bytes]:
        with self._lock:
            peer = self._peer = self._peer or connect(self.access, connections_max=self._connections_max)
        headers = signed_headers(peer.target, action, payload=payload, credentials=peer.keys(), now=self.clock.now())
        return peer.connections.post(headers, payload, reply_seconds=reply_seconds)


def _code(reply: bytes) -> str:
    """`com.amazonaws.sqs#QueueDoesNotExist` and `ThrottlingException` as the plain code."""
    try:
        text = str(msgspec.json.decode(reply)["__type"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return "unreadable reply"
    return text.rsplit("#", 1)[-1].removesuffix("Exception")
