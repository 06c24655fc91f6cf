"""The PostgreSQL server of the stand-in: one per test process, started when first needed, stopped with its last user.

Its binaries come from the `pgserver` wheel. PostgreSQL refuses to run as root, so under root they run as `nobody`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kds_cdc_dagster_tests.redshift import wire
from kds_cdc_dagster_tests.redshift.backend import Backend
from kds_cdc_dagster_tests.redshift.system_objects import SYSTEM_OBJECTS

TEMPLATE = "redshift_template"
_PORT = 5432  # only part of the socket's name: the server listens on no address
_START_SECONDS = 30
_OPTIONS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "timezone": "UTC",
    # Redshift's SNAPSHOT isolation; a lost race then ends in 40001, which the proxy words as Redshift does.
    "default_transaction_isolation": "repeatable read",
}


class Postgres:
    """A reference-counted server process over a data folder that lives as long as this test process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._databases = 0
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> Path:
        """The server's Unix socket."""
        assert self._folder, "not started"
        return self._folder / f".s.PGSQL.{_PORT}"

    @property
    def pid(self) -> int | None:
        """Process id of the running server."""
        return self._process.pid if self._process else None

    def acquire(self) -> str:
        """Start the server if it is not running; name of a fresh database on it."""
        with self._lock:
            if self._process is None:
                self._start()
            self._users += 1
            self._databases += 1
            name = f"dev_{self._databases}"
        self.command(f"create database {name} template {TEMPLATE}")
        return name

    def release(self, database: str) -> None:
        """Drop the database; stop the server if nobody else uses it."""
        with contextlib.suppress(wire.Gone):
            self.command(f"drop database if exists {database} with (force)")
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._stop()

    def command(self, sql: str, database: str = "postgres") -> None:
        """Run one statement as superuser."""
        backend = self.connect({"database": database})
        try:
            backend.query(sql)
        finally:
            backend.close()

    def connect(self, parameters: dict[str, str]) -> Backend:
        """A session of the superuser, whoever asks: rights are not what the stand-in is about."""
        return Backend(self.address, {**parameters, "user": "postgres"})

    def _start(self) -> None:
        is_new = self._folder is None
        if is_new:
            self._create_folder()
        assert self._folder
        options = [f"--{name.replace('_', '-')}={value}" for name, value in _OPTIONS.items()]
        self._process = subprocess.Popen(
            [_binary("postgres"), "-D", self._folder / "data", "-k", self._folder, "-p", str(_PORT), *options],
            **_as_server_user(self._folder),
        )
        self._await()
        if is_new:
            self.command(f"create database {TEMPLATE}")
            self.command(SYSTEM_OBJECTS, TEMPLATE)

    def _create_folder(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="rs-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            _copy_binaries_if_private(folder)
        flags = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "--wal-segsize=1"]
        subprocess.run([_binary("initdb"), "-D", str(folder / "data"), *flags], check=True, **_as_server_user(folder))
        self._folder = folder

    def _await(self) -> None:
        """Until it takes connections; on failure nothing is left running."""
        give_up_at = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.connect({"database": "postgres"}).close()
            except (wire.Gone, wire.Refused):
                assert self._process
                if self._process.poll() is None and time.monotonic() < give_up_at:
                    time.sleep(0.02)
                    continue
                self._stop()
                raise
            return

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGINT)  # "fast": sessions are ended, no checkpoint is waited for by clients
            process.wait(_START_SECONDS)


def _installed() -> Path:
    spec = find_spec("pgserver")
    assert spec, "the pgserver wheel is not installed"
    return Path(str(spec.origin)).parent


_binaries = _installed()


def _binary(name: str) -> str:
    return str(_binaries / "pginstall" / "bin" / name)


def _copy_binaries_if_private(folder: Path) -> None:
    """`nobody` cannot run what lies in a private home folder of root."""
    global _binaries  # noqa: PLW0603  (one server per process, and this is its only choice)
    try:
        subprocess.run([_binary("postgres"), "--version"], check=True, **_as_server_user(folder))
    except (PermissionError, subprocess.CalledProcessError):
        for name in ("pgserver", "pgserver.libs"):  # side by side: the binaries find their libraries by this
            shutil.copytree(_binaries.parent / name, folder / name)
        _binaries = folder / "pgserver"


def _as_server_user(folder: Path) -> dict[str, Any]:
    quiet: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": (folder / "log").open("ab")}
    if os.geteuid() != 0:
        return quiet
    return {**quiet, "user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}


POSTGRES = Postgres()
"""The one server of this test process."""
