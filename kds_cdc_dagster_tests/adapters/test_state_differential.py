"""On any history the in-memory reference, the embedded store and the Redis scripts give the same answers.

Positions, identities, contents, segments and policies are drawn independently from small pools, so
that they meet in every way, also in ways the intake never brings about. More examples:
KDS_CDC_TEST_EXAMPLES=2000.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from kds_cdc_dagster.adapters.embedded_state import EmbeddedState
from kds_cdc_dagster.adapters.memory_state import MemoryState
from kds_cdc_dagster.adapters.redis_state import RedisState
from kds_cdc_dagster.core.decide import Candidate, DecideCall, GapPolicy, SettleCall
from kds_cdc_dagster.errors import StateNotReady
from kds_cdc_dagster.ports import Marker, StateStore, StreamRecord
from kds_cdc_dagster_tests.contracts.clocks import ManualClock
from kds_cdc_dagster_tests.contracts.state_calls import content_hash, identity, order
from kds_cdc_dagster_tests.servers import ValkeyServer, valkey

EXAMPLES = int(os.environ.get("KDS_CDC_TEST_EXAMPLES", "25"))
STREAMS = ("acct-1:s1", "{a}|%7C é")
CLAIMS = ("a", "b")

streams = st.sampled_from(STREAMS)
orders = st.integers(1, 8).map(order)
identities = st.integers(1, 6).map(identity)
hashes = st.integers(1, 2).map(content_hash)
slots = st.integers(1, 3)
segments = st.builds("{}/{}".format, st.sampled_from(CLAIMS), slots)
texts = st.sampled_from(("", "x", "ü|{}"))
positions = st.one_of(st.just(""), orders)

candidates = st.builds(Candidate, identities, hashes, st.none() | orders, st.sampled_from((False, False, False, True)))
decide_calls = st.builds(
    DecideCall,
    source=st.just("kdsprod"),
    stream=streams,
    claim=st.sampled_from(CLAIMS),
    slot=slots,
    floor=st.sampled_from(("", "", order(2))),
    candidates=st.lists(candidates, min_size=1, max_size=5).map(tuple),
    is_dense=st.booleans(),
    on_gap=st.sampled_from(GapPolicy),
    known_absent=st.frozensets(segments, max_size=3),
    is_release=st.sampled_from((False, False, True)),
)
settle_calls = st.builds(
    SettleCall,
    source=st.just("kdsprod"),
    stream=streams,
    segment=segments,
    markers=st.lists(st.tuples(identities, hashes), max_size=3, unique_by=lambda marker: marker[0]).map(tuple),
    committed=positions,
    row_position=positions,
    lineage=texts,
    message_id=texts,
    sequence_number=texts,
    worker=texts,
    settled_at_ms=st.integers(0, 3),
)
records = st.builds(
    StreamRecord,
    source=st.just("kdsprod"),
    stream=streams,
    committed=positions,
    row_position=positions,
    lineage=texts,
    hold=texts,
    hold_version=st.integers(0, 3),
    parkers=st.dictionaries(st.sampled_from(CLAIMS), slots),
    message_id=texts,
    sequence_number=texts,
    worker=texts,
    settled_at_ms=st.integers(0, 3),
)
mostly = st.sampled_from((True, True, True, False))
markers = st.builds(Marker, st.just("kdsprod"), streams, identities, hashes)


class Histories(RuleBasedStateMachine):
    """Every step is done to all stores; their answers must be equal. Lives differ by name only."""

    def __init__(self, server: ValkeyServer) -> None:
        super().__init__()
        self._server = server
        self._folder = tempfile.TemporaryDirectory()
        self._clock = ManualClock()
        self._files = 0
        server.client().flushall()
        self._embedded = self._new_file()
        self._memory = MemoryState(self._clock)
        self._redis = RedisState(server.url, "kds", self._clock)
        self._last: Callable[[StateStore, str], Any] = lambda store, _: store.life() is None
        self._lives: list[str] = []

    def _new_file(self) -> EmbeddedState:
        self._files += 1
        return EmbeddedState(Path(self._folder.name) / f"{self._files}.sqlite", self._clock)

    @property
    def _stores(self) -> tuple[StateStore, ...]:
        return self._memory, self._embedded, self._redis

    def _same(self, step: Callable[[StateStore, str], Any]) -> Any:
        answers = [_answer(step, store, life) for store, life in zip(self._stores, self._lives, strict=True)]
        assert answers[1:] == answers[:1] * 2
        return answers[0]

    @initialize()
    def open(self) -> None:
        """A new life, empty."""
        self._lives = [store.begin_life() for store in self._stores]
        self._same(lambda store, life: store.finish_life(life))

    @rule(calls=st.lists(decide_calls, min_size=1, max_size=3))
    def decide(self, calls: list[DecideCall]) -> None:
        """Several calls in a turn, perhaps of one stream."""
        self._last = lambda store, life: store.decide(life, calls)
        self._same(self._last)

    @rule(call=decide_calls)
    def decide_twice(self, call: DecideCall) -> None:
        """A retry. The answers must also be the same ones.

        Unless the call itself began a hold, or names one identity twice (never at two positions in life).
        """
        first = self._same(lambda store, life: store.decide(life, [call]))
        again = self._same(lambda store, life: store.decide(life, [call]))
        is_plain = len({c.identity for c in call.candidates}) == len(call.candidates)
        if first != "not ready" and is_plain and not first[0].hold:
            assert [r.verdict for r in first[0].results] == [r.verdict for r in again[0].results]

    @rule(calls=st.lists(settle_calls, min_size=1, max_size=3))
    def settle(self, calls: list[SettleCall]) -> None:
        """Segments, perhaps of one stream."""
        self._last = lambda store, life: store.settle(life, calls)
        self._same(self._last)

    @rule()
    def repeat_last_step(self) -> None:
        """A reply was lost."""
        self._same(self._last)

    @rule(stream=streams, reason=texts)
    def hold(self, stream: str, reason: str) -> None:
        self._same(lambda store, life: store.hold(life, "kdsprod", stream, reason))

    @rule(stream=streams, behind=st.sampled_from((0, 0, 0, 1)))
    def unhold(self, stream: str, behind: int) -> None:
        """Mostly against the version that stands."""
        record = self._memory.stream("kdsprod", stream)
        version = (record.hold_version if record else 0) - behind
        self._same(lambda store, life: store.unhold(life, "kdsprod", stream, version))

    @rule(seconds=st.sampled_from((1, 600, 900, 1800, 3600, 7200)))
    def time_passes(self, seconds: int) -> None:
        """Markers die."""
        self._clock.sleep(seconds)

    @rule(streams_=st.lists(records, max_size=3), markers_=st.lists(markers, max_size=4), is_finished=mostly)
    def rebuild(self, streams_: list[StreamRecord], markers_: list[Marker], *, is_finished: bool) -> None:
        """Into a new life that may stay unfinished: then everything else answers `not ready`."""
        self._lives = [store.begin_life() for store in self._stores]
        self._same(lambda store, life: store.load(life, streams_, markers_))
        if is_finished:
            self._same(lambda store, life: store.finish_life(life))

    @rule(is_rebuilt=mostly)
    def flush(self, *, is_rebuilt: bool) -> None:
        """Everything is forgotten; the lives that callers know are no more."""
        self._memory.forget_everything()
        self._embedded.close()
        self._embedded = self._new_file()
        self._server.client().flushall()
        if is_rebuilt:
            self.open()

    @invariant()
    def records_agree(self) -> None:
        """All records, and whether there is a life."""
        for stream in STREAMS:
            found = [store.stream("kdsprod", stream) for store in self._stores]
            assert found[1:] == found[:1] * 2
        assert len({store.life() is None for store in self._stores}) == 1

    def teardown(self) -> None:
        self._embedded.close()
        self._redis.close()
        self._folder.cleanup()


def _answer(step: Callable[[StateStore, str], Any], store: StateStore, life: str) -> Any:
    try:
        return step(store, life)
    except StateNotReady:
        return "not ready"


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    """A server of its own: histories flush it."""
    with valkey() as started:
        yield started


def test_s28_all_stores_agree_on_any_history(server: ValkeyServer) -> None:
    """Decisions, settles, holds, retries, expiry, flushes, rebuilds, in any order."""
    run_state_machine_as_test(
        lambda: Histories(server),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
