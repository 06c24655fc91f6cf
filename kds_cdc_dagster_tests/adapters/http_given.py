"""A server that says exactly what a test tells it, byte by byte, with or without TLS, or behind a proxy."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def whole(body: bytes = b"{}", *headers: str) -> bytes:
    """A reply with its length."""
    lines = "".join(f"{line}\r\n" for line in headers)
    return f"HTTP/1.1 200 OK\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class Said:
    """One scripted answer."""

    reply: bytes
    is_cut: bool = False
    """The connection ends after it."""
    after_seconds: float = 0.0


@dataclass
class ScriptedServer:
    """Answers one request after the other from `script`; keeps what it got and how many connections there were."""

    script: deque[Said]
    trust: ssl.SSLContext | None = None
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    def serve(self, listening: socket.socket) -> None:
        """Take connections until the socket is closed."""
        self.port = listening.getsockname()[1]
        with suppress(OSError):
            while True:
                taken, _address = listening.accept()
                threading.Thread(target=self._answer, args=(taken,), daemon=True).start()

    def _answer(self, taken: socket.socket) -> None:
        with suppress(OSError), taken:
            line = self.trust.wrap_socket(taken, server_side=True) if self.trust else taken
            self.connections += 1
            while request := _request(line):
                self.requests.append(request)
                said = self.script.popleft()
                time.sleep(said.after_seconds)
                line.sendall(said.reply)
                if said.is_cut:
                    line.shutdown(socket.SHUT_RDWR)
                    return


def _request(line: socket.socket) -> bytes:
    """Head and body of the next one; empty at the end of the connection."""
    found = b""
    while b"\r\n\r\n" not in found:
        more = line.recv(65536)
        if not more:
            return b""
        found += more
    head, _, body = found.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += line.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def scripted(*script: Said | bytes, trust: ssl.SSLContext | None = None) -> Iterator[ScriptedServer]:
    """Serve a script on a free port."""
    server = ScriptedServer(deque(one if isinstance(one, Said) else Said(one) for one in script), trust)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server.port = listening.getsockname()[1]
        threading.Thread(target=server.serve, args=(listening,), daemon=True).start()
        yield server
        listening.shutdown(socket.SHUT_RDWR)


@contextmanager
def tunnelling() -> Iterator[tuple[int, list[str]]]:
    """A proxy: its port, and the heads of the CONNECT requests it got."""
    heads: list[str] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                taken, _address = listening.accept()
                threading.Thread(target=tunnel, args=(taken,), daemon=True).start()

    def tunnel(taken: socket.socket) -> None:
        head = taken.recv(65536).decode()
        heads.append(head)
        host, _, port = head.split()[1].partition(":")
        there = socket.create_connection((host, int(port)))
        taken.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        threading.Thread(target=pass_on, args=(taken, there), daemon=True).start()
        pass_on(there, taken)

    def pass_on(giver: socket.socket, taker: socket.socket) -> None:
        with suppress(OSError):
            while found := giver.recv(65536):
                taker.sendall(found)
            taker.shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1], heads
        listening.shutdown(socket.SHUT_RDWR)


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """A self-signed certificate for 127.0.0.1: the file that clients trust, and the server's side."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "public.pem", folder / "private.pem"
    public.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, none))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(public, private)
    return public, server
