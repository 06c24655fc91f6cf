"""An in-memory SQS FIFO service over real HTTP: the JSON protocol, fast enough to measure clients.

It keeps the manners that emulators tend to lose (expired handles are refused, the in-flight cap, attempt
ids, deduplication that outlives the first copy); `sqs_stub_queue` holds them. `Fault`s script what the wire does wrong.
Run as a module it serves one queue until its standard input ends, and prints its port.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from kds_cdc_dagster_tests.sqs_stub_queue import Refused, StubQueue


@dataclass
class Fault:
    """Something that goes wrong with the next call of `action`."""

    action: str
    code: str = ""
    """Answer with this error code; empty: cut the connection without an answer."""
    status: int = 400
    is_done: bool = False
    """The call takes effect before the reply is lost or replaced."""
    alter: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Let the call run and change its reply."""


@dataclass
class SqsStub:
    """The service: queues by name, scripted faults, a record of the calls it got."""

    queues: dict[str, StubQueue] = field(default_factory=lambda: {"kds.fifo": StubQueue()})
    faults: list[Fault] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    is_recording: bool = True
    port: int = 0

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @property
    def queue(self) -> StubQueue:
        """The first queue."""
        return next(iter(self.queues.values()))

    @property
    def endpoint(self) -> str:
        """Address to give to clients."""
        return f"http://127.0.0.1:{self.port}"

    def url(self, name: str = "kds.fifo", account: str = "111122223333") -> str:
        """Queue address as the publisher's account names it."""
        return f"https://sqs.eu-west-1.amazonaws.com/{account}/{name}"

    def bodies_of(self, action: str) -> list[dict[str, Any]]:
        """Request bodies of all calls of one action, in order."""
        return [body for name, body in list(self.calls) if name == action]

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(self._loop.create_server(lambda: _Connection(self), "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def answer(self, action: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """Status and reply of one call, or None: cut the connection."""
        self.counts[action] += 1
        if self.is_recording:
            self.calls.append((action, body))
        fault = next((one for one in self.faults if one.action == action), None)
        if fault is not None:
            self.faults.remove(fault)
        if fault is None or fault.is_done or fault.alter:
            status, reply = await self._done(action, body)
        if fault is None:
            return status, reply
        if fault.alter:
            return status, fault.alter(reply)
        return (fault.status, _error(fault.code)) if fault.code else None

    async def _done(self, action: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        queue = self.queues.get(body["QueueUrl"].rsplit("/", 1)[-1])
        if queue is None:
            return 400, _error("QueueDoesNotExist")
        try:
            reply = getattr(queue, action)(body)
            deadline = self._loop.time() + float(body.get("WaitTimeSeconds", 0))
            while action == "ReceiveMessage" and not reply and self._loop.time() < deadline:
                await asyncio.sleep(0.01)
                reply = queue.ReceiveMessage(body)
        except Refused as refused:
            return 400, _error(refused.args[0])
        return 200, reply


def _error(code: str) -> dict[str, Any]:
    return {"__type": f"com.amazonaws.sqs#{code}", "message": f"stub says {code}"}


class _Connection(asyncio.Protocol):
    """Just enough HTTP/1.1 for keep-alive POSTs with a length."""

    def __init__(self, stub: SqsStub) -> None:
        self._stub = stub
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = int(headers[b"content-length"])
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        target = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"x-amz-target"))
        action = target.rsplit(b".", 1)[1].decode()
        task = self._stub._loop.create_task(self._reply(action, msgspec.json.decode(rest[:length])))
        self._task = task

    async def _reply(self, action: str, body: dict[str, Any]) -> None:
        answer = await self._stub.answer(action, body)
        if answer is None:
            self._transport.abort()
            return
        status, reply = answer
        payload = msgspec.json.encode(reply)
        head = (
            f"HTTP/1.1 {status} X\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(payload)}\r\n\r\n"
        )
        self._transport.write(head.encode() + payload)


def main() -> None:
    """Serve with `groups` × `each` messages of `size_bytes`, given as arguments, until standard input ends."""
    groups, each, size_bytes = (int(text) for text in sys.argv[1:4])
    queue = StubQueue()
    for number in range(groups * each):
        queue.put(f"acct:{number % groups}", "x" * size_bytes, str(number))
    with SqsStub({"kds.fifo": queue}, is_recording=False) as stub:
        print(stub.port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
