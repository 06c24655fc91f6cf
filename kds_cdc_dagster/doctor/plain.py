"""What needs no service: settings, catalogue, and the disk of embedded parts."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kds_cdc_dagster.doctor.finding import Finding, Notes
from kds_cdc_dagster.wiring import Pipeline

FREE_BYTES_MIN, FREE_BYTES_LOW = 100 << 20, 1 << 30
MARGIN_DAYS = 1.0
"""Of the journal over the oldest redelivery: a message may be in flight, or pruning late."""
BUFFER_SECONDS_MIN = 5.0
"""What a received message may wait for its round before it is given back: less, and busy ticks give back most."""


def settings(parts: Pipeline) -> Iterator[Finding]:
    """The settings hold together (they would not be here otherwise), and what they amount to."""
    note, s = Notes("settings"), parts.settings
    chosen = f"queue {s.queue}, state {s.state}, store {s.store}, warehouse {s.warehouse}"
    yield note.ok(f"profile {s.profile}, pipeline {s.pipeline}: {chosen}")
    spare_seconds = s.visibility_seconds - s.safety_seconds - s.longest_tick_seconds
    if s.queue != "local" and spare_seconds < BUFFER_SECONDS_MIN:
        yield note.warn(
            f"a received message may wait {max(spare_seconds, 1.0):.0f} s for its round, then it is given back",
            "raise KDS_CDC_VISIBILITY_SECONDS above KDS_CDC_TICK_SECONDS (and KDS_CDC_TICK_BACKLOG_SECONDS) "
            "+ KDS_CDC_SAFETY_SECONDS + 5",
        )
    oldest_days = s.queue_retention_days + s.dead_letter_retention_days
    if s.journal_days < oldest_days + MARGIN_DAYS:
        yield note.warn(
            f"a redriven letter may be {oldest_days:g} days old, the journal answers for {s.journal_days:g}",
            f"KDS_CDC_JOURNAL_DAYS of {oldest_days + MARGIN_DAYS:g} at least, or the retentions as they really are",
        )
    if s.intake == "off":
        yield note.info("sensors do not drain here", "KDS_CDC_INTAKE=on where they should")


def catalogue(parts: Pipeline) -> Iterator[Finding]:
    """It can be read, and every entity reaches a target."""
    note, found = Notes("catalogue"), parts.catalogue
    counts = f"{len(found.sources)} sources, {len(found.entities)} entities, {len(found.targets)} targets"
    yield note.ok(f"{parts.settings.catalogue or 'packaged'}: {counts}")
    for entity in found.entities:
        if not found.targets_of[entity.name]:
            yield note.warn(f"entity {entity.name} feeds no target: its changes end in staging", "add a target, or not")
    for source in found.sources:
        if source.contract not in parts.settings.contracts:
            yield note.error(f"source {source.id}: its contract is not allowed in", "KDS_CDC_CONTRACTS")


def disk(parts: Pipeline) -> Iterator[Finding]:
    """The home of embedded parts: writable, room on it, locks that hold."""
    note, home = Notes("disk"), parts.settings.home
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=home) as folder:
            locks_hold = _locks_hold(Path(folder) / "lock")
    except OSError as error:
        yield note.error(f"{home} is not writable: {error.strerror}", "rights of the folder, or another KDS_CDC_HOME")
        return
    if not locks_hold:
        yield note.error(f"{home}: file locks do not exclude", "a local disk: DuckDB and SQLite rest on file locks")
    free_bytes = shutil.disk_usage(home).free
    room = f"{home}: {free_bytes >> 20} MB free"
    if free_bytes < FREE_BYTES_MIN:
        yield note.error(room, "make room: a full disk stops the intake")
    elif free_bytes < FREE_BYTES_LOW:
        yield note.warn(room, "make room, or prune (README, Operate)")
    else:
        yield note.ok(f"{room}, writable, locks hold")


def _locks_hold(path: Path) -> bool:
    """A second handle must be refused while the first holds the lock."""
    with path.open("w") as first, path.open("w") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return os.name != "posix"
