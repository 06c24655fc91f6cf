"""A whole intake in memory for scenario tests: real contract, real Parquet segments, a clock moved by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import yaml

from kds_cdc_dagster.adapters.marker_window import MarkerWindow
from kds_cdc_dagster.adapters.memory_inbox import MemoryQueue
from kds_cdc_dagster.adapters.memory_state import MemoryState
from kds_cdc_dagster.catalogue import packaged_text
from kds_cdc_dagster.core.batch import BatchPolicy
from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.core.contracts import Limits, Parser
from kds_cdc_dagster.core.position import EPOCH_DIGITS
from kds_cdc_dagster.intake.audit import audit
from kds_cdc_dagster.intake.collect import DirectCollector, RoundLimits
from kds_cdc_dagster.intake.engine import Intake, IntakePolicy, Ports
from kds_cdc_dagster.intake.tenure import Incumbent
from kds_cdc_dagster.intake.tick import Ticker, TickReport
from kds_cdc_dagster.journal import keys, segment
from kds_cdc_dagster.journal.claims import Heartbeat
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.journal.outbox import sealed, waiting
from kds_cdc_dagster.ports import Message
from kds_cdc_dagster_tests.contracts.clocks import ManualClock
from kds_cdc_dagster_tests.simulation.baton import Crash
from kds_cdc_dagster_tests.simulation.dict_store import DictStore

VISIBILITY_SECONDS = 60.0
DEAD_AFTER_SECONDS = 60.0


class Given:
    """The outside of one pipeline, and what a test does with it."""

    def __init__(self, *, records_max: int = 10_000, age_seconds: float = 10.0, **policies: str) -> None:
        self.clock = ManualClock()
        self.queue = MemoryQueue(clock=self.clock, visibility_seconds=VISIBILITY_SECONDS)
        self.state = MemoryState(self.clock, MarkerWindow(window_seconds=3600, bucket_seconds=300))
        self.store = DictStore(self.clock)
        self._batch = BatchPolicy(
            records_max=records_max, age_seconds=age_seconds, bytes_max=1 << 30, records_backlog_max=records_max
        )
        document = yaml.safe_load(packaged_text())
        document["sources"] = [one | ({"on": policies} if one["id"] == "mock" else {}) for one in document["sources"]]
        self._catalogue = Catalogue.model_validate(document)
        self._sends = 0

    def worker(self, name: str, *, is_gone: Callable[[Heartbeat, float], bool] | None = None) -> Ticker:
        """A fresh worker. By default it adopts logs that were abandoned or not heard of for a while."""
        ports = Ports(self.queue, self.state, self.store, self.clock)
        policy = IntakePolicy(
            Incumbent(worker=name, host="h", process_id=1, heartbeat_seconds=5.0), self._batch, VISIBILITY_SECONDS, 15.0
        )
        parser = Parser(self._catalogue, Limits(5, 1 << 20, frozenset({"kds-cdc-mock/v1"})))
        intake = Intake(ports, policy, parser=parser, catalogue=self._catalogue, is_gone=is_gone or is_old)
        return Ticker(intake, DirectCollector(self.queue, self.clock, RoundLimits(1000, 1 << 30, 0.0)))

    # --- traffic -----------------------------------------------------------------------------

    def send(self, *positions: int, store: int = 0, key: int = 1, value: str = "", body: str = "") -> None:
        """One mock change per position, of the stream of a store; or one message with this very body."""
        for position in positions or (0,):
            self._sends += 1
            text = body or json.dumps(_fields(position, stream_of(store), key, value or f"value {position}"))
            self.queue.send([Message(text, stream_of(store), f"send-{self._sends}")])

    def reappear(self) -> None:
        """Visibility ends for whatever is in flight."""
        self.clock.sleep(VISIBILITY_SECONDS + 1)

    # --- what came of it ---------------------------------------------------------------------

    def rows(self, outcome: str) -> list[dict[str, Any]]:
        """Rows of all segments with that outcome, in log order."""
        found = []
        for key, body in sorted(self.store.objects.items()):
            read = segment.decode(keys.segment_of(key), body) if key.startswith("journal/") else None
            found += read.rows.to_pylist() if read is not None else []
        return [row for row in found if row["outcome"] == outcome]

    def accepted(self, store: int = 0) -> list[int]:
        """Positions that were accepted of a store's stream, in log order."""
        return [position_of(row["stream_order"]) for row in self.rows("accepted") if row["stream"] == stream_of(store)]

    def reasons(self) -> list[str]:
        """Reason codes of everything that is quarantined."""
        return [row["reason"] for row in self.rows("rejected")]

    def committed(self, store: int = 0) -> int | None:
        """The stream's committed position in the state store."""
        record = self.state.stream("mock", stream_of(store))
        return position_of(record.committed) if record and record.committed else None

    def batches(self) -> list[Manifest]:
        """Sealed batches that wait in the outbox."""
        return [found for name in waiting(self.store) if (found := sealed(self.store, name)) is not None]

    def is_settled(self) -> bool:
        """Nothing waits in the queue, and everything durable adds up."""
        assert audit(self.store).problems == []
        return self.queue.depth().is_empty


def is_old(heartbeat: Heartbeat, now: float) -> bool:
    """Abandoned, or not heard of for a while."""
    return heartbeat.is_abandoned or now - heartbeat.seen_at > DEAD_AFTER_SECONDS


def drain(ticker: Ticker) -> TickReport:
    """One tick until the queue is empty; seals what is open."""
    return ticker.tick(budget_seconds=5.0, wait_seconds=0.0, is_draining=True)


def turn(ticker: Ticker) -> TickReport:
    """One tick that seals only what is due."""
    return ticker.tick(budget_seconds=0.05, wait_seconds=0.02)


def stream_of(store: int) -> str:
    """Stream key of a numbered store."""
    return f"acct-001:7c1f3b52-9f5e-4d7a-8a61-{store:012d}"


def position_of(order: str) -> int:
    """The mock's counter in a stream order."""
    return int(order[EPOCH_DIGITS : EPOCH_DIGITS + 16], 16)


@contextmanager
def dying(port: object, call: str, when: Callable[..., bool], *, is_done: bool) -> Iterator[None]:
    """The worker that makes this call dies: before its effect, or after it and before the answer."""
    real = getattr(port, call)

    def fatal(*arguments: object, **named: object) -> object:
        if not when(*arguments, **named):
            return real(*arguments, **named)
        if is_done:
            real(*arguments, **named)
        raise Crash(call)

    with mock.patch.object(port, call, fatal):
        try:
            yield
        except Crash:
            return
        raise AssertionError(f"nobody called {call} so")


def _fields(position: int, stream: str, key: int, value: str) -> dict[str, Any]:
    account, store = stream.split(":")
    row = {"ticket_id": key, "account_id": account, "store_guid": store, "note": value}
    return {
        "contract_version": "kds-cdc-mock/v1",
        "entity": "kitchen_ticket",
        "operation": "u",
        "primary_key": {"ticket_id": key},
        "source_account_id": account,
        "store_guid": store,
        "is_deleted": False,
        "occurred_at": "2026-11-01T10:00:00.123456Z",
        "sequence": {"stream_key": stream, "stream_position": position},
        "before": None,
        "after": row,
    }
