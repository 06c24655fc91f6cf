"""Builds the parts from the settings: the only place that knows which adapter serves which port.

Nothing is opened before it is asked for, so importing definitions opens no connection.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kds_cdc_dagster.catalogue import load_catalogue
from kds_cdc_dagster.clock import SystemClock
from kds_cdc_dagster.core.batch import BatchPolicy
from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.core.contracts import Limits, Parser
from kds_cdc_dagster.intake.collect import Collector, DirectCollector, RoundLimits
from kds_cdc_dagster.intake.engine import Intake, IntakePolicy, Ports
from kds_cdc_dagster.intake.liveness import Liveness
from kds_cdc_dagster.intake.tenure import Incumbent
from kds_cdc_dagster.intake.tick import Ticker
from kds_cdc_dagster.load.layout import Schemas
from kds_cdc_dagster.load.loader import Loader
from kds_cdc_dagster.ports import Clock, DeadLetters, Inbox, ObjectStore, Outbound, StateStore, Warehouse
from kds_cdc_dagster.settings import Settings, read_settings

if TYPE_CHECKING:
    from kds_cdc_dagster.adapters.local_inbox import LocalQueue

T = TypeVar("T")


DRAIN_POLL_SECONDS = 2.0
"""Long poll while draining: the end of a drain waits for the polls under way."""


class Pipeline:
    """The parts of one pipeline, opened on first use and shared by the threads of this process."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.is_draining = False
        """Ticks end, and seal what is open, as soon as the queue gives nothing (`kds-cdc run --until-idle`)."""
        self.is_driven = False
        """A command drives the sensors itself, so they may drain although KDS_CDC_INTAKE is off."""
        self._started_at = self.clock.now()
        self._tickers: dict[str, Ticker] = {}
        self._lock = threading.RLock()

    @cached_property
    def catalogue(self) -> Catalogue:
        """The catalogue in force."""
        return load_catalogue(self.settings.catalogue)

    @cached_property
    def store(self) -> ObjectStore:
        """Object store."""
        return self._fitted(_open_store(self.settings), "store")

    @cached_property
    def state(self) -> StateStore:
        """Shared ordering and duplicate state."""
        return self._fitted(_open_state(self.settings, self.clock), "state")

    @cached_property
    def inbox(self) -> Inbox:
        """Queue, read side."""
        return self._fitted(_open_inbox(self.settings, self.clock), "inbox")

    @cached_property
    def outbound(self) -> Outbound:
        """Queue, write side."""
        return _open_outbound(self.settings, self.clock)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """Messages that the queue moved away. Raises SettingsError where they are not known."""
        return _open_dead_letters(self.settings, self.outbound, self.clock)

    @cached_property
    def warehouse(self) -> Warehouse:
        """Warehouse."""
        return self._fitted(_open_warehouse(self.settings, self.store), "warehouse")

    @cached_property
    def schemas(self) -> Schemas:
        """Schema names of the live targets."""
        return Schemas(self.settings.schema_staging, self.settings.schema_curated, self.settings.schema_ops)

    @cached_property
    def loader(self) -> Loader:
        """Loads batches into the live targets."""
        return Loader(self.warehouse, self.store, self.catalogue, self.schemas)

    def _fitted(self, part: T, port: str) -> T:
        """The part as it is; crash tests fit fault points around its verbs."""
        from kds_cdc_dagster.adapters import killing

        return killing.fitted(part, port) if killing.is_wanted() else part

    @cached_property
    def parser(self) -> Parser:
        """Contract parser."""
        s = self.settings
        return Parser(self.catalogue, Limits(s.receives_max, s.body_bytes_max, frozenset(s.contracts)))

    def ticker(self, name: str) -> Ticker:
        """The intake called `name` in this process: one claim, one tick at a time."""
        with self._lock:
            if name not in self._tickers:
                self._tickers[name] = Ticker(self.intake(name), self._collector())
            return self._tickers[name]

    def intake(self, name: str) -> Intake:
        """A fresh intake with a claim of its own."""
        ports = Ports(self.inbox, self.state, self.store, self.clock)
        policy = self._intake_policy(name)
        incumbent = policy.incumbent
        dead_after = self.settings.dead_after_seconds
        liveness = Liveness(incumbent.host, incumbent.process_id, self._started_at, dead_after)
        return Intake(ports, policy, parser=self.parser, catalogue=self.catalogue, is_gone=liveness.is_gone)

    def _collector(self) -> Collector:
        s = self.settings
        limits = RoundLimits(s.segment_records_max, s.segment_bytes_max, s.linger_seconds)
        if s.queue == "local":
            return DirectCollector(self.inbox, self.clock, limits, receive_max=s.local_receive_max)
        from kds_cdc_dagster.intake.receivers import PumpPolicy, ReceivePump

        policy = PumpPolicy(
            receivers=s.receivers,
            wait_seconds=min(s.wait_seconds, DRAIN_POLL_SECONDS) if self.is_draining else s.wait_seconds,
            records_max=max(100, s.receivers * 20),  # what is buffered locks its groups
            bytes_max=s.segment_bytes_max,
            age_max_seconds=max(1.0, s.visibility_seconds - s.safety_seconds - s.longest_tick_seconds),
        )
        return ReceivePump(self.inbox, limits, policy)

    def _intake_policy(self, name: str) -> IntakePolicy:
        s = self.settings
        host = socket.gethostname()
        worker = re.sub(r"[^A-Za-z0-9_]", "_", f"{s.worker or host}_{name}")[:60]
        return IntakePolicy(
            incumbent=Incumbent(worker, host, os.getpid(), s.heartbeat_seconds),
            batch=BatchPolicy(s.batch_records_max, s.batch_age_seconds, s.batch_bytes_max, s.batch_records_backlog_max),
            visibility_seconds=s.visibility_seconds,
            safety_seconds=s.safety_seconds,
        )

    def close(self) -> None:
        """End every intake cleanly and give connections back."""
        with self._lock:
            for ticker in self._tickers.values():
                ticker.close()
            self._tickers.clear()
            for name in ("inbox", "dead_letters", "state", "warehouse"):
                if name in self.__dict__:
                    getattr(self, name).close()
                    del self.__dict__[name]


def _open_store(s: Settings) -> ObjectStore:
    from kds_cdc_dagster.adapters import object_store

    if s.store == "s3":
        return object_store.open_s3(s.s3_bucket, s.pipeline, endpoint_url=s.aws_endpoint_url, region=s.aws_region)
    return object_store.open_local(s.home / "store", s.pipeline, is_synced=s.store_fsync == "on")


def _open_state(s: Settings, clock: Clock) -> StateStore:
    from kds_cdc_dagster.adapters.marker_window import MarkerWindow

    window = MarkerWindow(int(s.duplicate_window_seconds), int(s.duplicate_bucket_seconds))
    if s.state == "redis":
        from kds_cdc_dagster.adapters.redis_state import RedisState

        return RedisState(
            s.redis_url.get_secret_value(), s.pipeline, clock, window=window, timeout_seconds=s.redis_timeout_seconds
        )
    from kds_cdc_dagster.adapters.embedded_state import EmbeddedState

    return EmbeddedState(s.home / f"state-{s.pipeline}.sqlite", clock, window)


def _open_inbox(s: Settings, clock: Clock) -> Inbox:
    if s.queue == "sqs":
        from kds_cdc_dagster.adapters.sqs_open import open_inbox

        return open_inbox(s, clock=clock)
    return _local_queue(s.home / "queue.sqlite", s, clock)


def _open_outbound(s: Settings, clock: Clock) -> Outbound:
    if s.queue == "sqs":
        from kds_cdc_dagster.adapters.sqs_open import open_outbound

        return open_outbound(s, clock=clock)
    return _local_queue(s.home / "queue.sqlite", s, clock)


def _open_dead_letters(s: Settings, outbound: Outbound, clock: Clock) -> DeadLetters:
    if s.queue == "sqs":
        from kds_cdc_dagster.adapters.sqs_open import open_dead_letters

        return open_dead_letters(s, outbound, clock=clock)
    return _local_queue(s.home / "queue.sqlite", s, clock)


def _local_queue(path: Path, s: Settings, clock: Clock) -> LocalQueue:
    from kds_cdc_dagster.adapters.local_inbox import LocalQueue

    return LocalQueue(
        path,
        clock=clock,
        visibility_seconds=s.visibility_seconds,
        dead_letter_after=s.local_dead_letter_after,
        receive_max=s.local_receive_max,
        is_synced=s.store_fsync == "on",
    )


def _open_warehouse(s: Settings, store: ObjectStore) -> Warehouse:
    if s.warehouse == "redshift":
        from kds_cdc_dagster.adapters.redshift_warehouse import open_redshift_warehouse

        return open_redshift_warehouse(s, store)
    from kds_cdc_dagster.adapters.duckdb_warehouse import DuckdbWarehouse

    return DuckdbWarehouse(s.home / "warehouse.duckdb", store, threads=s.slice_threads)


_pipelines: dict[Settings, Pipeline] = {}
_pipelines_lock = threading.Lock()


def pipeline(read: Callable[[], Settings] = read_settings) -> Pipeline:
    """The pipeline of this process's settings; the same object for the same settings."""
    settings = read()
    with _pipelines_lock:
        if settings not in _pipelines:
            _pipelines[settings] = Pipeline(settings)
        return _pipelines[settings]
