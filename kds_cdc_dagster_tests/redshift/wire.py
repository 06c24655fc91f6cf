"""The PostgreSQL wire protocol, version 3, as far as redshift_connector uses it: frames, errors, parts of bodies."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

SSL_REQUEST = 80877103
PROTOCOL = 196608
IDLE, IN_TRANSACTION, FAILED = b"I", b"T", b"E"


class Frame(NamedTuple):
    """One message: kind byte and body without the length."""

    kind: bytes
    body: bytes = b""

    @property
    def wire(self) -> bytes:
        """Bytes to send."""
        return self.kind + struct.pack("!i", len(self.body) + 4) + self.body


@dataclass(frozen=True)
class ServerError:
    """What an ErrorResponse says; the driver shows it as a dict of the one-letter fields."""

    code: str
    message: str
    detail: str = ""
    severity: str = "ERROR"

    @property
    def frame(self) -> Frame:
        """As ErrorResponse."""
        fields = {"S": self.severity, "C": self.code, "M": self.message, "D": self.detail}
        return Frame(b"E", _fields(fields))

    @classmethod
    def parse(cls, body: bytes) -> ServerError:
        """From the body of an ErrorResponse."""
        fields = {part[:1]: part[1:].decode() for part in body.split(b"\0") if part}
        return cls(fields[b"C"], fields[b"M"], fields.get(b"D", ""), fields[b"S"])


class Refused(Exception):
    """The server answers a statement with an error."""

    def __init__(self, code: str, message: str, detail: str = "") -> None:
        self.error = ServerError(code, message, detail)
        super().__init__(f"{code} {message} {detail}")

    @classmethod
    def of(cls, error: ServerError) -> Refused:
        """With the fields of `error`."""
        return cls(error.code, error.message, error.detail)


class Gone(Exception):
    """The other end of a socket went away, or was made to."""


def _fields(fields: Mapping[str, str]) -> bytes:
    return b"".join(name.encode() + text.encode() + b"\0" for name, text in fields.items() if text) + b"\0"


def notice(message: str) -> Frame:
    """An INFO notice."""
    return Frame(b"N", _fields({"S": "INFO", "C": "00000", "M": message}))


def complete(tag: str) -> Frame:
    """CommandComplete."""
    return Frame(b"C", tag.encode() + b"\0")


def ready(status: bytes) -> Frame:
    """ReadyForQuery with the transaction status."""
    return Frame(b"Z", status)


def startup(parameters: Mapping[str, str]) -> bytes:
    """A start-up packet."""
    body = b"".join(f"{name}\0{value}\0".encode() for name, value in parameters.items()) + b"\0"
    return struct.pack("!ii", len(body) + 8, PROTOCOL) + body


def read_exactly(stream: io.BufferedIOBase, size: int) -> bytes:
    """`size` bytes. Raises Gone at the end of the stream or when the socket is reset."""
    try:
        read = stream.read(size)
    except (OSError, ValueError) as error:  # ValueError: closed by stop()
        raise Gone(str(error)) from error
    if read is None or len(read) < size:
        raise Gone("end of stream")
    return read


def read_frame(stream: io.BufferedIOBase) -> Frame:
    """The next message. Raises Gone."""
    head = read_exactly(stream, 5)
    (length,) = struct.unpack("!i", head[1:])
    return Frame(head[:1], read_exactly(stream, length - 4))


def read_startup(stream: io.BufferedIOBase) -> dict[str, str] | None:
    """Parameters of a start-up packet; None for an SSLRequest. Raises Gone."""
    length, code = struct.unpack("!ii", read_exactly(stream, 8))
    rest = read_exactly(stream, length - 8)
    if code == SSL_REQUEST:
        return None
    words = [word.decode() for word in rest.rstrip(b"\0").split(b"\0")]
    return dict(zip(words[::2], words[1::2], strict=True))


def strings(body: bytes, count: int) -> tuple[list[str], bytes]:
    """The first `count` zero-ended strings of a body, and the rest."""
    *found, rest = body.split(b"\0", count)
    return [text.decode() for text in found], rest


def bound_statement(bind_body: bytes) -> str:
    """Name of the prepared statement a Bind names (after the portal)."""
    (_, name), _ = strings(bind_body, 2)
    return name


class Field(NamedTuple):
    """A column of a result: name, type oid, type modifier."""

    name: str
    oid: int
    modifier: int


def row_fields(body: bytes) -> list[Field]:
    """Columns of a RowDescription."""
    (count,), rest = struct.unpack("!h", body[:2]), body[2:]
    found = []
    for _ in range(count):
        (name,), rest = strings(rest, 1)
        _, _, oid, _, modifier, _ = struct.unpack("!ihihih", rest[:18])
        found.append(Field(name, oid, modifier))
        rest = rest[18:]
    return found


def row_values(body: bytes) -> Iterator[str | None]:
    """Text values of a DataRow."""
    (count,), at = struct.unpack("!h", body[:2]), 2
    for _ in range(count):
        (length,) = struct.unpack("!i", body[at : at + 4])
        at += 4
        yield None if length < 0 else body[at : at + length].decode()
        at += max(length, 0)


def joined(frames: Iterable[Frame]) -> bytes:
    """Bytes of several messages."""
    return b"".join(frame.wire for frame in frames)
