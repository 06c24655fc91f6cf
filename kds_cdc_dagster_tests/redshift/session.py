"""One proxied connection: start-up, then unit by unit (the messages up to each Sync), as Redshift would answer."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Sequence

from kds_cdc_dagster_tests.redshift import wire
from kds_cdc_dagster_tests.redshift.backend import Backend
from kds_cdc_dagster_tests.redshift.emulation import Emulation, as_redshift
from kds_cdc_dagster_tests.redshift.faults import Fault, When
from kds_cdc_dagster_tests.redshift.plan import Plan, plan
from kds_cdc_dagster_tests.redshift.site import Executed, Site
from kds_cdc_dagster_tests.redshift.wire import Frame, Gone, Refused, ServerError

_STARTUP_KEPT = ("database", "application_name", "client_encoding", "options")
"""Everything else (driver_version, client_protocol_version, …) is Redshift's own, or comes with a later driver."""
_SERVER_VERSION = b"server_version\x008.0.2\0"
_CLEARTEXT, _AUTHENTICATED = struct.pack("!i", 3), struct.pack("!i", 0)


class Session:
    """Runs in a thread of its own until either side goes away."""

    def __init__(self, client: socket.socket, site: Site, number: int) -> None:
        self._client = client
        self._stream = client.makefile("rb")
        self._site = site
        self._number = number
        self._server: Backend | None = None
        self._prepared: dict[str, Plan] = {}

    def run(self) -> None:
        """Serve until the client or the server is gone."""
        try:
            if self._greet():
                while True:
                    self._answer()
        except Gone:
            return
        finally:
            self._close()

    def hang_up(self) -> None:
        """Make `run` end, from another thread."""
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)
        if self._server:
            self._server.hang_up()

    def _close(self) -> None:
        self._stream.close()
        self._client.close()
        if self._server:
            self._server.close()

    @property
    def _backend(self) -> Backend:
        assert self._server, "not greeted yet"
        return self._server

    # --- start-up -----------------------------------------------------------------------------

    def _greet(self) -> bool:
        while (parameters := wire.read_startup(self._stream)) is None:
            self._client.sendall(b"N")  # no TLS here
        self._send([Frame(b"R", _CLEARTEXT)])
        password = wire.read_frame(self._stream).body.rstrip(b"\0").decode()
        user = parameters["user"]
        if (user, password) != (self._site.user, self._site.password):
            self._send([ServerError("28000", f'password authentication failed for user "{user}"', "", "FATAL").frame])
            return False
        try:
            self._server = self._site.connect({key: parameters[key] for key in _STARTUP_KEPT if key in parameters})
        except Refused as refused:
            self._send([refused.error.frame])
            return False
        greeting = [frame for frame in self._server.greeting if frame.kind in {b"S", b"K"}]
        versioned = [Frame(b"S", _SERVER_VERSION) if f.body.startswith(b"server_version\0") else f for f in greeting]
        self._send([Frame(b"R", _AUTHENTICATED), *versioned, wire.ready(wire.IDLE)])
        return True

    # --- units --------------------------------------------------------------------------------

    def _answer(self) -> None:
        frames = self._read_unit()
        try:
            replies = self._replies(frames)
        except Refused as refused:
            self._backend.fail_transaction()
            replies = [refused.error.frame]
        except (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError) as error:
            self._backend.fail_transaction()
            replies = [ServerError("XX000", f"the stand-in failed: {error!r}").frame]
        self._send([*replies, wire.ready(self._backend.status)])

    def _read_unit(self) -> list[Frame]:
        frames: list[Frame] = []
        while not frames or frames[-1].kind != b"S":
            frame = wire.read_frame(self._stream)
            if frame.kind == b"X":
                raise Gone("terminated")
            if frame.kind == b"Q":
                raise Gone("the simple protocol, which redshift_connector never uses, is not spoken here")
            if frame.kind != b"H":
                frames.append(frame)
        return frames

    def _replies(self, frames: Sequence[Frame]) -> list[Frame]:
        frames = [self._parsed(frame) if frame.kind == b"P" else frame for frame in frames]
        bound = [wire.bound_statement(frame.body) for frame in frames if frame.kind == b"B"]
        planned = self._prepared.get(bound[-1]) if bound else None
        return self._executed(planned, frames) if planned else self._forwarded(frames)

    def _parsed(self, frame: Frame) -> Frame:
        (name, sql), rest = wire.strings(frame.body, 2)
        try:
            self._prepared[name] = plan(sql, self._backend.status)
        except Refused as refused:
            self._prepared.pop(name, None)
            self._site.record(Executed(self._number, sql, refused.error.code))
            raise
        return Frame(b"P", b"\0".join((name.encode(), self._prepared[name].text.encode(), rest)))

    def _executed(self, planned: Plan, frames: Sequence[Frame]) -> list[Frame]:
        executed = self._site.record(Executed(self._number, planned.sql))
        faults = self._site.faults.due(planned.sql)
        try:
            self._suffer(faults, "before", planned)
            replies = self._performed(planned, frames, faults)
            self._suffer(faults, "after", planned)
        except Refused as refused:
            executed.outcome = refused.error.code
            raise
        except Gone:
            executed.outcome = "gone"
            raise
        executed.outcome = "done"
        return replies

    def _performed(self, planned: Plan, frames: Sequence[Frame], faults: Sequence[Fault]) -> list[Frame]:
        work = Emulation(self._backend, self._site)
        if (replies := work.instead(planned, lambda: self._suffer(faults, "midway", planned))) is None:
            replies = self._forwarded(frames)
            work.after(planned)
        return replies

    def _forwarded(self, frames: Sequence[Frame]) -> list[Frame]:
        replies = self._backend.forward(frames)
        for frame in replies:
            if frame.kind == b"E":
                raise Refused.of(as_redshift(ServerError.parse(frame.body)))
        return replies

    def _suffer(self, faults: Sequence[Fault], when: When, planned: Plan) -> None:
        """Whatever a test ordered for this point of the statement."""
        for fault in faults:
            if fault.when != when:
                continue
            time.sleep(fault.delay_seconds)
            if fault.gate:
                fault.gate.reached.set()
                fault.gate.release.wait()
            if fault.is_drop:
                self._reset()
            if fault.error:
                if planned.is_commit and when == "before":
                    self._backend.query("rollback")  # a commit that fails has ended its transaction
                raise Refused.of(fault.error)

    def _reset(self) -> None:
        """Cut the line the hard way: the client sees ECONNRESET. The server rolls an open transaction back."""
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._stream.close()
        self._client.close()
        raise Gone("dropped by order")

    def _send(self, frames: Sequence[Frame]) -> None:
        try:
            self._client.sendall(wire.joined(frames))
        except OSError as error:
            raise Gone(str(error)) from error
