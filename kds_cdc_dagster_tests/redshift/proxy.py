"""The listener: a thread and a session per connection, on a free port of 127.0.0.1."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading

from kds_cdc_dagster_tests.redshift.session import Session
from kds_cdc_dagster_tests.redshift.site import Site

_JOIN_SECONDS = 10


class Proxy:
    """Accepts until closed."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sessions: dict[Session, threading.Thread] = {}
        self._thread = threading.Thread(target=self._accept, name="redshift-proxy", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Stop listening, end all sessions, wait for their threads."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(_JOIN_SECONDS)
        self._site.faults.clear()
        for session in self._sessions:
            session.hang_up()
        for thread in self._sessions.values():
            thread.join(_JOIN_SECONDS)

    def _accept(self) -> None:
        for number in itertools.count(1):
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            session = Session(client, self._site, number)
            thread = threading.Thread(target=session.run, name=f"redshift-session-{number}", daemon=True)
            self._sessions[session] = thread
            thread.start()
