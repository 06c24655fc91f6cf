"""The embedded and the in-memory state store: the suite, and what only a file can do."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from kds_cdc_dagster.adapters import embedded_rows as rows
from kds_cdc_dagster.adapters.embedded_state import EmbeddedState
from kds_cdc_dagster.adapters.marker_window import MarkerWindow
from kds_cdc_dagster.adapters.memory_state import MemoryState
from kds_cdc_dagster.errors import StateNotReady, StateUnavailable
from kds_cdc_dagster.ports import StateStore
from kds_cdc_dagster_tests.contracts.clocks import ManualClock, WallClock
from kds_cdc_dagster_tests.contracts.state_calls import (
    STREAM,
    Stores,
    begun,
    call,
    change,
    order,
    settle_of,
    verdicts,
)
from kds_cdc_dagster_tests.contracts.state_sharing_suite import StateSharingSuite
from kds_cdc_dagster_tests.contracts.state_suite import StateSuite


class TestMemoryState(StateSuite, StateSharingSuite):
    @pytest.fixture
    def stores(self, clock: ManualClock) -> Stores:
        by_pipeline: dict[str, StateStore] = {}
        return lambda pipeline: by_pipeline.setdefault(pipeline, MemoryState(clock))

    def test_it_forgets_on_command(self, clock: ManualClock) -> None:
        """A marker, or everything: what the simulation needs to do to a store."""
        store = MemoryState(clock)
        life = begun(store)
        store.settle(life, [settle_of(call(change(1), change(2)))])
        store.forget_marker("kdsprod", STREAM, change(1).identity)
        assert verdicts(store.decide(life, [call(change(1), change(2), slot=2)])[0]) == ["stale", "safe_duplicate"]
        store.forget_everything()
        assert store.life() is None
        assert store.stream("kdsprod", STREAM) is None


class TestEmbeddedState(StateSuite, StateSharingSuite):
    @pytest.fixture
    def stores(self, clock: ManualClock, tmp_path: Path) -> Stores:
        return lambda pipeline: EmbeddedState(tmp_path / f"{pipeline}.sqlite", clock)

    def test_s09_a_file_from_another_boot_is_rebuilt_first(self, tmp_path: Path, clock: ManualClock) -> None:
        """A power cut may have taken back the last commits; what was known stays, nothing is lowered."""
        path = tmp_path / "state.sqlite"
        before = EmbeddedState(path, clock, boot="one")
        life = begun(before)
        before.settle(life, [settle_of(call(change(1)))])
        before.close()
        after = EmbeddedState(path, clock, boot="two")
        assert after.life() is None
        with pytest.raises(StateNotReady):
            after.decide(life, [call(change(2))])
        new_life = begun(after)
        assert new_life > life
        assert verdicts(after.decide(new_life, [call(change(1), change(2))])[0]) == ["safe_duplicate", "accepted"]

    def test_s09_a_file_that_cannot_be_used_fails_closed(self, tmp_path: Path, clock: ManualClock) -> None:
        """The error names the file and what to do."""
        path = tmp_path / "state.sqlite"
        path.write_bytes(b"not a database, but long enough to be looked at as one" * 50)
        with pytest.raises(StateUnavailable, match=r"state\.sqlite.*may be deleted"):
            EmbeddedState(path, clock).life()

    def test_s12_a_killed_process_loses_no_decision(self, tmp_path: Path) -> None:
        """Kill -9 right after the answer: its marker is there, and doubt falls on its segment."""
        path = tmp_path / "state.sqlite"
        life = begun(EmbeddedState(path, WallClock()))
        context = multiprocessing.get_context("fork")
        mine, childs = context.Pipe()
        child = context.Process(target=_decide_and_die, args=(path, life, childs))
        child.start()
        assert mine.recv() == ["accepted"]
        child.join(30)
        assert child.exitcode == -signal.SIGKILL
        reply = EmbeddedState(path, WallClock()).decide(life, [call(change(1), claim="b")])[0]
        assert reply.doubts == {"a/1"}

    def test_s09_a_killed_process_holds_no_lease(self, tmp_path: Path) -> None:
        """Its rebuild is taken over at once: on one machine it can be seen that nobody is at it."""
        path = tmp_path / "state.sqlite"
        context = multiprocessing.get_context("fork")
        mine, childs = context.Pipe()
        child = context.Process(target=_begin_and_wait, args=(path, childs))
        child.start()
        life = mine.recv()
        store = EmbeddedState(path, WallClock())
        assert store.begin_life(is_yielding=True) is None
        child.kill()
        child.join(30)
        new_life = store.begin_life(is_yielding=True)
        assert new_life is not None
        assert new_life > life

    def test_a_fork_opens_its_own_connection(self, tmp_path: Path) -> None:
        """A connection must not be carried over: parent and child both go on."""
        store = EmbeddedState(tmp_path / "state.sqlite", WallClock())
        life = begun(store)
        context = multiprocessing.get_context("fork")
        child = context.Process(target=store.settle, args=(life, [settle_of(call(change(1)))]))
        child.start()
        child.join(30)
        assert child.exitcode == 0
        assert verdicts(store.decide(life, [call(change(1), claim="b")])[0]) == ["safe_duplicate"]

    def test_the_file_does_not_grow_with_time(self, tmp_path: Path, clock: ManualClock) -> None:
        """Dead markers are pruned and their pages used again: ten windows need no more than three."""
        store = EmbeddedState(tmp_path / "state.sqlite", clock, MarkerWindow(600, 60))
        life, sizes = begun(store), []
        for slot in range(1, 101):
            decided = call(*map(change, range(slot * 200, slot * 200 + 200)), slot=slot)
            assert set(verdicts(store.decide(life, [decided])[0])) == {"accepted"}
            store.settle(life, [settle_of(decided)])
            clock.sleep(60)
            sizes.append(store._opened().execute("PRAGMA page_count").fetchone()[0])
        assert sizes[-1] <= sizes[30]
        assert sizes[10] < sizes[-1]  # the measure itself sees growth
        record = store.stream("kdsprod", STREAM)
        assert record is not None
        assert record.committed == order(100 * 200 + 199)

    def test_the_cost_of_a_call_does_not_depend_on_streams_ever_seen(self, tmp_path: Path, clock: ManualClock) -> None:
        """Every look-up goes by a key: the query plans scan nothing but the call's own list."""
        store = EmbeddedState(tmp_path / "state.sqlite", clock)
        begun(store)
        for query, values in ((rows._FIND_STREAMS, ("[]",)), (rows._FIND_MARKERS, ("[]", 0)), (rows._PRUNE, (0, 1))):
            plan = store._opened().execute("EXPLAIN QUERY PLAN " + query, values).fetchall()
            scans = [step[3] for step in plan if step[3].startswith("SCAN")]
            assert scans in (["SCAN w VIRTUAL TABLE INDEX 1:"], [])


def _begin_and_wait(path: Path, pipe: Any) -> None:
    pipe.send(EmbeddedState(path, WallClock()).begin_life(is_yielding=True))
    pipe.recv()


def _decide_and_die(path: Path, life: str, pipe: object) -> None:
    store = EmbeddedState(path, WallClock())
    pipe.send(verdicts(store.decide(life, [call(change(1))])[0]))  # type: ignore[attr-defined]
    os.kill(os.getpid(), signal.SIGKILL)
