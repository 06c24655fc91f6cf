"""One proxied connection: start-up, then unit by unit (the messages up to each Sync), as Redshift would answer."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Sequence

from kds_cdc_dagster_tests.redshift import copy, unload, wire
from kds_cdc_dagster_tests.redshift.backend import Backend
from kds_cdc_dagster_tests.redshift.copy import Copy
from kds_cdc_dagster_tests.redshift.faults import SERIALIZABLE, Fault, When
from kds_cdc_dagster_tests.redshift.plan import Plan, plan
from kds_cdc_dagster_tests.redshift.rewrite import BYTES_CHECK, KEY_CHECK, widening
from kds_cdc_dagster_tests.redshift.site import Executed, Site
from kds_cdc_dagster_tests.redshift.unload import Unload
from kds_cdc_dagster_tests.redshift.wire import Frame, Gone, Refused, ServerError

_STARTUP_KEPT = ("database", "application_name", "client_encoding", "options")
"""Everything else (driver_version, client_protocol_version, …) is Redshift's own, or comes with a later driver."""
_SERVER_VERSION = b"server_version\x008.0.2\0"
_CLEARTEXT, _AUTHENTICATED = struct.pack("!i", 3), struct.pack("!i", 0)
_BIND_COMPLETE = Frame(b"2")


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
        if command := planned.copy or planned.unload:
            return self._in_transaction(
                lambda: self._emulated(command, lambda: self._suffer(faults, "midway", planned))
            )
        if planned.widened:
            self._widen(*planned.widened)
            return [_BIND_COMPLETE, wire.complete("ALTER TABLE")]
        if planned.replaces_view:
            return self._in_transaction(lambda: self._replaced(planned))
        replies = self._forwarded(frames)
        self._narrow(*planned.literal_columns)
        if planned.is_truncate and self._backend.status == wire.IN_TRANSACTION:
            self._backend.query("commit")  # TRUNCATE commits the transaction it runs in
        return replies

    def _forwarded(self, frames: Sequence[Frame]) -> list[Frame]:
        replies = self._backend.forward(frames)
        for frame in replies:
            if frame.kind == b"E":
                raise Refused.of(_as_redshift(ServerError.parse(frame.body)))
        return replies

    # --- what Redshift does and PostgreSQL does not ------------------------------------------------

    def _in_transaction(self, work: Callable[[], list[Frame]]) -> list[Frame]:
        """Emulated work takes several statements: one transaction around them where the client has none."""
        is_own = self._backend.status == wire.IDLE
        if is_own:
            self._backend.query("begin")
        try:
            replies = work()
        except (Refused, Gone):
            if is_own:
                self._backend.query("rollback")
            raise
        if is_own:
            self._backend.query("commit")
        return replies

    def _emulated(self, command: Copy | Unload, midway: Callable[[], None]) -> list[Frame]:
        self._site.check_role(command.options)
        if isinstance(command, Unload):
            rows = unload.run(command, self._backend, self._site.s3, midway)
            return self._counted("unload", rows, f"UNLOAD completed, {rows} record(s) unloaded successfully.")
        try:
            rows = copy.run(command, self._backend, self._site.s3)
        except copy.LoadError as error:
            self._site.record_load_error(error.row)
            raise
        midway()
        text = f"Load into table '{command.table}' completed, {rows} record(s) loaded successfully."
        return self._counted("copy", rows, text)

    def _replaced(self, planned: Plan) -> list[Frame]:
        """By statements of our own: a simple query makes PostgreSQL forget the client's unnamed statement."""
        self._backend.query(f"drop view if exists {planned.replaces_view}")
        self._backend.query(planned.text)
        self._backend.query(f"comment on view {planned.replaces_view} is 'late-binding'")
        return [_BIND_COMPLETE, wire.complete("CREATE VIEW")]

    def _counted(self, verb: str, rows: int, text: str) -> list[Frame]:
        self._backend.query(f"select set_config('rs.last_{verb}_count', '{rows}', false)")
        return [_BIND_COMPLETE, wire.notice(text), wire.complete(verb.upper())]

    def _widen(self, table: str, column: str, size_bytes: int) -> None:
        current = self._backend.query(
            f"select atttypmod - 4 from pg_attribute where attrelid = '{table}'::regclass and attname = '{column}'"
        ).values
        if current and current[0][0] == str(size_bytes):
            raise Refused("0A000", "target column size should be different")
        self._backend.query(widening(table, column, size_bytes))

    def _narrow(self, table: str, columns: dict[str, int]) -> None:
        """CREATE TABLE AS gives a bare literal's column the literal's width; PostgreSQL makes it `text`."""
        if not columns:
            return
        query = f"select attname from pg_attribute where attrelid = '{table}'::regclass and atttypid = 'text'::regtype"
        for (name,) in self._backend.query(query).values:
            if size_bytes := columns.get(str(name)):
                check = f'constraint "{BYTES_CHECK}{name}" check (octet_length({name}) <= {size_bytes})'
                self._backend.query(f"alter table {table} add {check}")

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


def _as_redshift(error: ServerError) -> ServerError:
    """PostgreSQL's error in Redshift's words where they differ."""
    if error.code == "40001":
        return SERIALIZABLE
    if error.code == "23514" and BYTES_CHECK in error.message:
        column = error.message.rpartition(BYTES_CHECK)[2].strip('"')
        return ServerError("22001", "Value too long for character type", f"column {column}")
    if error.code == "23514" and KEY_CHECK in error.message:
        return ServerError("23502", "Cannot insert a NULL value into a key column")
    return error
