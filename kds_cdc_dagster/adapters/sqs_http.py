"""HTTP/1.1 for one kind of call: small JSON POSTs to the root of one service, over connections that are kept.

urllib3 opens the connections (TLS, proxies, time limits); the calls themselves do not go through it, as it costs
seven times as much CPU for each as what is here. Nothing retries, nothing follows redirects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import BadStatusLine, LineTooLong, RemoteDisconnected
from typing import TYPE_CHECKING

from urllib3.connection import HTTPConnection, HTTPSConnection, ProxyConfig
from urllib3.util import make_headers, parse_url, wait_for_read

if TYPE_CHECKING:
    import ssl

CONNECT_SECONDS = 5.0
_READ_BYTES = 1 << 16
"""At once. A reply with ten bodies comes in one piece."""
_HEAD_BYTES_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class Dial:
    """How to open a connection to `url`: an https one is checked by `trust`, and may lead through `proxy`."""

    url: str
    proxy: str = ""
    trust: ssl.SSLContext | None = None

    def connected(self) -> HTTPConnection:
        """A new connection. Raises OSError, http.client.HTTPException or urllib3's HTTPError."""
        there = parse_url(self.url)
        host = (there.host or "").strip("[]")
        if self.trust is None:
            opened = HTTPConnection(host, there.port, timeout=CONNECT_SECONDS)
        elif not self.proxy:
            opened = HTTPSConnection(host, there.port, timeout=CONNECT_SECONDS, ssl_context=self.trust)
        else:
            opened = self._tunnelled(host, there.port or HTTPSConnection.default_port, self.trust)
        opened.connect()
        return opened

    def _tunnelled(self, host: str, port: int, trust: ssl.SSLContext) -> HTTPSConnection:
        proxy = parse_url(self.proxy if "://" in self.proxy else f"http://{self.proxy}")
        opened = HTTPSConnection(
            (proxy.host or "").strip("[]"),
            proxy.port,
            timeout=CONNECT_SECONDS,
            ssl_context=trust,
            proxy=proxy,
            proxy_config=ProxyConfig(
                trust, use_forwarding_for_https=False, assert_hostname=None, assert_fingerprint=None
            ),
        )
        headers = make_headers(proxy_basic_auth=proxy.auth) if proxy.auth else None
        opened.set_tunnel(host, port, headers, scheme=proxy.scheme or "http")
        return opened


class Connections:
    """Posts from any number of threads; each connection serves one call at a time.

    `idle_max`: how many are kept; a call that finds none opens one.
    """

    def __init__(self, dial: Dial, *, idle_max: int) -> None:
        self._dial = dial
        self._idle: deque[_Connection] = deque()  # its operations are atomic
        self._idle_max = idle_max

    def post(self, headers: Mapping[str, str], payload: bytes, *, reply_seconds: float) -> tuple[int, bytes]:
        """Status and body of the reply. `reply_seconds`: how long the other side may say nothing.

        Raises OSError, http.client.HTTPException or urllib3's HTTPError: there is no whole reply, and the call may
        have taken effect.
        """
        connection = self._take()
        try:
            reply = connection.post(headers, payload, reply_seconds)
        except BaseException:
            connection.close()  # what comes late must not be taken for the next call's reply
            raise
        if connection.is_kept and len(self._idle) < self._idle_max:
            self._idle.append(connection)
        else:
            connection.close()
        return reply

    def close(self) -> None:
        """Close what is idle; a call under way goes on."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:  # a call was quicker
                break

    def _take(self) -> _Connection:
        """The one used last, as those used long ago may have been closed by the other side."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was quicker
                break
            if connection.is_quiet():
                return connection
            connection.close()
        return _Connection(self._dial.connected())


class _Connection:
    def __init__(self, opened: HTTPConnection) -> None:
        self._opened = opened
        self._socket = opened.sock
        self._unread = b""
        self.is_kept = True
        """The other side will take another call."""

    def is_quiet(self) -> bool:
        """Whether nothing came since the last reply: an end, or bytes that belong to no call."""
        return not (self._unread or wait_for_read(self._socket, 0.0))

    def post(self, headers: Mapping[str, str], payload: bytes, reply_seconds: float) -> tuple[int, bytes]:
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        head = f"POST / HTTP/1.1\r\n{lines}accept-encoding: identity\r\ncontent-length: {len(payload)}\r\n\r\n"
        self._socket.settimeout(reply_seconds)
        self._socket.sendall(head.encode("latin-1") + payload)  # in one: a second write is a second packet
        return self._reply()

    def close(self) -> None:
        self._opened.close()

    def _reply(self) -> tuple[int, bytes]:
        first, *lines = self._until(b"\r\n\r\n").split(b"\r\n")
        version, _, rest = first.partition(b" ")
        if not (version.startswith(b"HTTP/1.") and rest[:3].isdigit()):
            raise BadStatusLine(repr(first[:80]))
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        self.is_kept = version == b"HTTP/1.1" and headers.get(b"connection", b"").lower() != b"close"
        return int(rest[:3]), self._body(headers)

    def _body(self, headers: Mapping[bytes, bytes]) -> bytes:
        if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
            return self._chunks()
        length = headers.get(b"content-length", b"")
        if length.isdigit():
            return self._exactly(int(length))
        self.is_kept = False
        return self._to_the_end()

    def _chunks(self) -> bytes:
        chunks: list[bytes] = []
        while size_bytes := _chunk_bytes(self._until(b"\r\n")):
            chunks.append(self._exactly(size_bytes))
            self._until(b"\r\n")
        while self._until(b"\r\n") != b"\r\n":
            pass  # trailers, as a rule none
        return b"".join(chunks)

    def _until(self, mark: bytes) -> bytes:
        """What comes up to `mark`, with it."""
        while mark not in self._unread:
            if len(self._unread) > _HEAD_BYTES_MAX:
                raise LineTooLong("head")
            self._unread += self._more()
        found, _, self._unread = self._unread.partition(mark)
        return found + mark

    def _exactly(self, size_bytes: int) -> bytes:
        parts = [self._unread]
        left_bytes = size_bytes - len(self._unread)
        while left_bytes > 0:
            parts.append(self._more())
            left_bytes -= len(parts[-1])
        found = b"".join(parts)
        self._unread = found[size_bytes:]
        return found[:size_bytes]

    def _to_the_end(self) -> bytes:
        parts, self._unread = [self._unread], b""
        while part := self._socket.recv(_READ_BYTES):
            parts.append(part)
        return b"".join(parts)

    def _more(self) -> bytes:
        found: bytes = self._socket.recv(_READ_BYTES)
        if not found:
            raise RemoteDisconnected("the connection ended before the reply did")
        return found


def _chunk_bytes(line: bytes) -> int:
    """Size of the next chunk, in hexadecimal digits before the chunk's extensions."""
    digits = line.partition(b";")[0].strip()
    if not digits or digits.strip(b"0123456789abcdefABCDEF"):
        raise BadStatusLine(repr(line[:80]))
    return int(digits, 16)
