"""What a kept HTTP connection may meet: every form of a reply, broken ones, ends, TLS and proxies."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import pytest
from urllib3.exceptions import HTTPError

from kds_cdc_dagster.adapters.sqs_access import SqsAccess, connect
from kds_cdc_dagster.adapters.sqs_http import Connections, Dial
from kds_cdc_dagster_tests.adapters.http_given import (
    Said,
    ScriptedServer,
    certificate,
    scripted,
    tunnelling,
    whole,
)

NO_REPLY = (OSError, HTTPException, HTTPError)
QUEUE = "https://sqs.eu-west-1.amazonaws.com/111122223333/kds.fifo"


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


def opened(server: ScriptedServer, idle_max: int = 4) -> Connections:
    """Connections to a scripted server."""
    return Connections(Dial(f"http://127.0.0.1:{server.port}"), idle_max=idle_max)


def asked(connections: Connections, payload: bytes = b"{}", reply_seconds: float = 5.0) -> bytes:
    """Body of a reply with status 200."""
    status, body = connections.post({"host": "h"}, payload, reply_seconds=reply_seconds)
    assert status == 200
    return body


def test_the_request_is_sent_as_it_was_signed() -> None:
    """Headers in their order, then the length and the payload's own bytes."""
    with scripted(whole()) as server:
        opened(server).post({"host": "h", "x-amz-target": "T"}, "é".encode(), reply_seconds=5.0)
    head = b"POST / HTTP/1.1\r\nhost: h\r\nx-amz-target: T\r\naccept-encoding: identity\r\ncontent-length: 2\r\n\r\n"
    assert server.requests == [head + "é".encode()]


@pytest.mark.parametrize(
    "reply",
    [
        whole(b"found"),
        whole(b"found", "CONNECTION: keep-alive", "Content-Type: text/plain"),
        b"HTTP/1.1 200\r\ncontent-length:5\r\n\r\nfound",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nfo\r\n3;x=y\r\nund\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nfound\r\n0\r\nTrailer: t\r\n\r\n",
    ],
)
def test_a_connection_is_kept_after_a_whole_reply(reply: bytes) -> None:
    """However the reply's length is told, its body is found, and the next call goes over the same connection."""
    with scripted(reply, whole(b"next")) as server:
        connections = opened(server)
        assert (asked(connections), asked(connections)) == (b"found", b"next")
        assert server.connections == 1


@pytest.mark.parametrize(
    "said",
    [
        Said(whole(b"found", "Connection: Close")),
        Said(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nfound"),
        Said(b"HTTP/1.1 200 OK\r\n\r\nfound", is_cut=True),
        Said(whole(b"found"), is_cut=True),
        Said(whole(b"found") + b"more than its length"),
        Said(whole(b"found") + whole(b"a reply to nobody")),
    ],
)
def test_a_connection_that_ends_or_says_too_much_is_not_used_again(said: Said) -> None:
    """The reply counts; the next call opens another connection and meets neither the end nor what was left over."""
    with scripted(said, whole(b"next")) as server:
        connections = opened(server)
        assert asked(connections) == b"found"
        time.sleep(0.05)  # the end, or the rest, arrives
        assert asked(connections) == b"next"
        assert server.connections == 2


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfoun",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfound\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nfound\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000,
        b"HTTP/1.1 " + b"2" * (1 << 17),
        b"SSH-2.0 hello\r\n\r\n",
        b"HTTP/1.1 OK 200\r\n\r\n",
    ],
)
def test_a_broken_reply_is_no_reply(reply: bytes) -> None:
    """Cut short, without end or no HTTP at all: an error of a known kind, and a new connection for the next call."""
    with scripted(Said(reply, is_cut=True), whole(b"next")) as server:
        connections = opened(server)
        with pytest.raises(NO_REPLY):
            asked(connections)
        assert asked(connections) == b"next"
        assert server.connections == 2


def test_a_late_reply_is_never_the_next_calls() -> None:
    """Who waited in vain closes the connection: what comes over it later answers nobody."""
    with scripted(Said(whole(b"late"), after_seconds=0.3), whole(b"next")) as server:
        connections = opened(server)
        with pytest.raises(TimeoutError):
            asked(connections, reply_seconds=0.1)
        assert asked(connections) == b"next"


def test_the_time_for_a_reply_is_each_calls_own() -> None:
    """A short call before a long poll on the same connection does not shorten it."""
    with scripted(whole(), Said(whole(b"slow"), after_seconds=0.3)) as server:
        connections = opened(server)
        asked(connections, reply_seconds=0.1)
        assert asked(connections, reply_seconds=5.0) == b"slow"
        assert server.connections == 1


def test_calls_at_once_have_connections_of_their_own_and_few_are_kept() -> None:
    """Four calls side by side open four; of those only `idle_max` serve later ones."""
    slow = Said(whole(), after_seconds=0.2)
    with scripted(*[slow] * 4, *[slow] * 4) as server:
        connections = opened(server, idle_max=3)
        for expected in (4, 5):
            threads = [threading.Thread(target=asked, args=(connections,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10)
            assert server.connections == expected


def test_after_a_close_a_call_opens_a_new_connection() -> None:
    """Nothing idle is left, and nothing is broken."""
    with scripted(whole(), whole(b"again")) as server:
        connections = opened(server)
        asked(connections)
        connections.close()
        assert asked(connections) == b"again"
        assert server.connections == 2


# --- TLS and proxies ------------------------------------------------------------------------------


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[ScriptedServer, Path]]:
    """A server with TLS, and the certificate to trust."""
    public, context = certificate(tmp_path)
    with scripted(whole(b"one"), whole(b"two"), trust=context) as server:
        yield server, public


def connections_to(server: ScriptedServer) -> Connections:
    """As the settings and the environment lead there."""
    access = SqsAccess(QUEUE, endpoint_url=f"https://127.0.0.1:{server.port}")
    return connect(access, connections_max=2).connections


def test_an_https_peer_is_checked(secure: tuple[ScriptedServer, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that nobody trusts is refused before anything is sent; with AWS_CA_BUNDLE it is trusted."""
    server, public = secure
    with pytest.raises(NO_REPLY, match="CERTIFICATE_VERIFY_FAILED"):
        asked(connections_to(server))
    assert server.requests == []
    monkeypatch.setenv("AWS_CA_BUNDLE", str(public))
    connections = connections_to(server)
    assert (asked(connections), asked(connections)) == (b"one", b"two")
    assert server.connections == 1


def test_the_name_of_an_https_peer_is_checked(
    secure: tuple[ScriptedServer, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trusted certificate of another name is refused, too."""
    server, public = secure
    monkeypatch.setenv("AWS_CA_BUNDLE", str(public))
    access = SqsAccess(QUEUE, endpoint_url=f"https://localhost:{server.port}")
    with pytest.raises(NO_REPLY, match="localhost"):
        asked(connect(access, connections_max=2).connections)
    assert server.requests == []


@pytest.mark.parametrize(("form", "login"), [("http://{}", ""), ("{}", ""), ("http://me:secret@{}", "Basic ")])
def test_https_goes_through_the_environments_proxy(
    secure: tuple[ScriptedServer, Path], monkeypatch: pytest.MonkeyPatch, form: str, login: str
) -> None:
    """HTTPS_PROXY, with or without scheme and login: tunnelled there, and the peer's certificate is checked as ever."""
    server, public = secure
    monkeypatch.setenv("AWS_CA_BUNDLE", str(public))
    with tunnelling() as (port, heads):
        monkeypatch.setenv("HTTPS_PROXY", form.format(f"127.0.0.1:{port}"))
        connections = connections_to(server)
        assert (asked(connections), asked(connections)) == (b"one", b"two")
    (head,) = heads
    assert head.startswith(f"CONNECT 127.0.0.1:{server.port} ")
    assert ("Proxy-Authorization: " + login in head.title()) is bool(login)
