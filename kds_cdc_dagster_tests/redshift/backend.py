"""One PostgreSQL session behind a proxied connection: forwards units, and runs statements of its own between them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kds_cdc_dagster_tests.redshift import wire
from kds_cdc_dagster_tests.redshift.wire import Field, Frame, Refused, ServerError


@dataclass(frozen=True)
class Rows:
    """A result in text form."""

    fields: Sequence[Field]
    values: Sequence[Sequence[str | None]]


class Backend:
    """A connection over PostgreSQL's Unix socket (trust authentication)."""

    def __init__(self, address: Path, parameters: dict[str, str]) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str(address))
        except OSError as error:
            self._socket.close()
            raise wire.Gone(str(error)) from error
        self._stream = self._socket.makefile("rb")
        self.status = wire.IDLE
        self._send(wire.startup(parameters))
        self.greeting = self._replies()
        _raise_first(self.greeting)

    def forward(self, unit: Iterable[Frame]) -> list[Frame]:
        """Send messages that end with Sync; the replies up to and without ReadyForQuery. Raises Gone."""
        self._send(wire.joined(unit))
        return self._replies()

    def query(self, sql: str) -> Rows:
        """Run a statement of our own by the simple protocol. Raises Refused, Gone."""
        replies = self.forward([Frame(b"Q", sql.encode() + b"\0")])
        _raise_first(replies)
        fields = [wire.row_fields(frame.body) for frame in replies if frame.kind == b"T"]
        rows = [tuple(wire.row_values(frame.body)) for frame in replies if frame.kind == b"D"]
        return Rows(fields[-1] if fields else [], rows)

    def copy_in(self, sql: str, lines: bytes) -> None:
        """COPY … FROM STDIN. Raises Refused, Gone."""
        self._send(Frame(b"Q", sql.encode() + b"\0").wire)
        frame = wire.read_frame(self._stream)
        if frame.kind == b"G":
            self._send(wire.joined([Frame(b"d", lines), Frame(b"c")]))
            _raise_first(self._replies())
            return
        _raise_first([frame, *self._replies()])

    def fail_transaction(self) -> None:
        """An error that the proxy invented leaves the transaction failed, as a real one would."""
        if self.status == wire.IN_TRANSACTION:
            self.forward([Frame(b"Q", b"do $$ begin raise exception 'refused by the proxy'; end $$\0")])

    def hang_up(self) -> None:
        """End a wait for a reply, from another thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Hang up; PostgreSQL rolls an open transaction back."""
        self._stream.close()
        self._socket.close()

    def _send(self, wired: bytes) -> None:
        try:
            self._socket.sendall(wired)
        except OSError as error:
            raise wire.Gone(str(error)) from error

    def _replies(self) -> list[Frame]:
        replies = []
        while (frame := wire.read_frame(self._stream)).kind != b"Z":
            replies.append(frame)
            if frame.kind == b"E" and ServerError.parse(frame.body).severity == "FATAL":
                return replies
        self.status = frame.body
        return replies


def _raise_first(replies: Iterable[Frame]) -> None:
    for frame in replies:
        if frame.kind == b"E":
            raise Refused.of(ServerError.parse(frame.body))
