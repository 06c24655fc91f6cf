"""Batch calls of ten, where every entry has its own fate (SQS-03): only ids the service confirms are done."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from kds_cdc_dagster.adapters.sqs_wire import CallRefused, SqsWire
from kds_cdc_dagster.errors import KdsCdcError

ENTRIES_MAX = 10
CALL_BYTES_MAX = 1 << 20
"""All bodies of one SendMessageBatch together."""
UNKNOWN = "no answer for it"


class _Done(msgspec.Struct):
    id: str = msgspec.field(name="Id")


class _Failed(msgspec.Struct, rename="pascal"):
    id: str
    code: str = "unknown"
    sender_fault: bool = False


class _Reply(msgspec.Struct, rename="pascal"):
    successful: list[_Done] | None = None
    failed: list[_Failed] | None = None


_decode = msgspec.json.Decoder(_Reply).decode


class EntryCalls:
    """Sends entries in calls of ten, up to `parallel` calls at once. After `close` one by one."""

    def __init__(self, wire: SqsWire, *, parallel: int) -> None:
        self._wire = wire
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._parallel = parallel

    def refused(self, action: str, entries: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        """Index of each entry that is not confirmed -> reason. Never raises for what the service answers."""
        calls = list(_calls(entries))
        return {int(name): reason for one in self._each(action, calls) for name, reason in one.items()}

    def close(self) -> None:
        """Wait for calls under way and end the threads."""
        with self._lock:
            pool, self._pool, self._parallel = self._pool, None, 1
        if pool is not None:
            pool.shutdown()

    def _each(self, action: str, calls: list[dict[str, Mapping[str, Any]]]) -> list[dict[str, str]]:
        with self._lock:
            if len(calls) > 1 and self._parallel > 1:
                self._pool = self._pool or ThreadPoolExecutor(self._parallel, "sqs-entries")
                futures = [self._pool.submit(self._refused_of, action, call) for call in calls]
            else:
                futures = []
        return [future.result() for future in futures] or [self._refused_of(action, call) for call in calls]

    def _refused_of(self, action: str, waiting: dict[str, Mapping[str, Any]]) -> dict[str, str]:
        """One call's entries, those that failed by the service's own fault tried again after a pause."""
        refused: dict[str, str] = {}
        tries_max = self._wire.backoff.tries_max
        for failures in range(1, tries_max + 1):
            try:
                reply = self._asked(action, waiting)
            except KdsCdcError as error:
                reason = error.code if isinstance(error, CallRefused) else error.what
                return refused | dict.fromkeys(waiting, reason)
            failed = {one.id: one for one in reply.failed or () if one.id in waiting}
            done = {one.id for one in reply.successful or ()}
            refused |= {name: one.code for name, one in failed.items() if one.sender_fault}
            refused |= dict.fromkeys(waiting.keys() - done - failed.keys(), UNKNOWN)
            waiting = {name: entry for name, entry in waiting.items() if name in failed and name not in refused}
            if not waiting:
                return refused
            if failures < tries_max:
                self._wire.pause(failures)
        return refused | {name: failed[name].code for name in waiting}

    def _asked(self, action: str, waiting: Mapping[str, Mapping[str, Any]]) -> _Reply:
        body = {"Entries": [{"Id": name, **entry} for name, entry in waiting.items()]}
        try:
            return _decode(self._wire.ask(action, body))
        except msgspec.DecodeError:
            return _Reply()  # an answer that says nothing confirms nothing


def _calls(entries: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Mapping[str, Any]]]:
    """Entries in order, named by their index, cut where a call is full."""
    call: dict[str, Mapping[str, Any]] = {}
    size_bytes = 0
    for index, entry in enumerate(entries):
        entry_bytes = len(entry.get("MessageBody", "").encode())
        if len(call) == ENTRIES_MAX or (call and size_bytes + entry_bytes > CALL_BYTES_MAX):
            yield call
            call, size_bytes = {}, 0
        call[str(index)] = entry
        size_bytes += entry_bytes
    if call:
        yield call
