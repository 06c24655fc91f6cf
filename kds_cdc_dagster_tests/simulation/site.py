"""The world of one run: clock, queue, state store, object store, and the witness who watches every effect."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Sequence
from typing import Any, TypeVar

from kds_cdc_dagster.adapters.marker_window import MarkerWindow
from kds_cdc_dagster.adapters.memory_inbox import MemoryQueue
from kds_cdc_dagster.adapters.memory_state import MemoryState
from kds_cdc_dagster.core.change import Delivery, Outcome
from kds_cdc_dagster.core.decide import DecideCall, DecideReply, Verdict
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.journal.segment import END
from kds_cdc_dagster_tests.simulation import codec
from kds_cdc_dagster_tests.simulation.dict_store import DictStore
from kds_cdc_dagster_tests.simulation.plan import Plan
from kds_cdc_dagster_tests.simulation.traffic import Sent

VISIBILITY_SECONDS = 30.0
WINDOW = MarkerWindow(window_seconds=600, bucket_seconds=60)
DEAD_AFTER_SECONDS = 60.0

T = TypeVar("T")


class SiteClock:
    """Virtual seconds; only the schedule moves it."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Site:
    """All parts of one run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rng = random.Random(f"run {plan.seed}")
        self.clock = SiteClock()
        self.began_at = self.clock.now()
        self.queue = MemoryQueue(
            clock=self.clock, visibility_seconds=VISIBILITY_SECONDS, dead_letter_after=plan.dead_letter_after
        )
        self.state = MemoryState(self.clock, WINDOW)
        self.store = DictStore(self.clock)
        self.sent: dict[str, Sent] = {}
        """By message id."""
        self.died: set[str] = set()
        """Streams of which a message went to the dead letters: it may rightly come back too late."""
        self.is_calm = False
        """No more faults."""
        self.is_state_down = False
        self.findings: list[str] = []
        self.trace: list[str] = []
        self.witness = Witness(self)

    def note(self, who: str, what: str) -> None:
        self.trace.append(f"{self.clock.now() - self.began_at:9.2f} {who:<10} {what}")

    def twin(self) -> Site:
        """An independent copy of everything durable, as it stands."""
        other = Site(self.plan)
        other.clock.seconds = self.clock.seconds
        other.queue = self._copied(self.queue, other)
        other.state = self._copied(self.state, other)
        other.store = self.store.copy()
        other.store._clock = other.clock
        other.sent = dict(self.sent)
        other.died = set(self.died)
        other.witness.accepted = {key: set(hashes) for key, hashes in self.witness.accepted.items()}
        other.witness.kept = set(self.witness.kept)
        other.witness.answers = dict(self.witness.answers)
        return other

    def redrive(self) -> None:
        """Put dead letters back."""
        self.died |= {self.sent[letter.message_id].wire.stream for letter in self.queue.dead_letters()}
        self.queue.redrive()

    def snapshot_of_state(self) -> MemoryState:
        return self._copied(self.state, self)

    def _copied(self, part: T, other: Site) -> T:
        memo: dict[int, Any] = {id(self.clock): other.clock}
        for name in ("_mutex", "_lock"):
            if hasattr(part, name):
                memo[id(getattr(part, name))] = threading.RLock()
        return copy.deepcopy(part, memo)


class Witness:
    """Sees every effect and says at once when one breaks a rule."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.accepted: dict[str, set[str]] = {}
        """identity -> content hashes in durable segments."""
        self.kept: set[str] = set()
        """Ids of messages that are rejected or parked in durable segments."""
        self.answers: dict[str, set[tuple[str, str]]] = {}
        """Segment -> (identity, hash) that the state store accepted for it."""
        self._deliveries: dict[str, Delivery] = {}

    def handed_over(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._deliveries[delivery.receipt] = delivery

    def decided(self, calls: Sequence[DecideCall], replies: Sequence[DecideReply]) -> None:
        for call, reply in zip(calls, replies, strict=True):
            answers = self.answers.setdefault(call.segment, set())
            for candidate, result in zip(call.candidates, reply.results, strict=True):
                if result.verdict in (Verdict.ACCEPTED, Verdict.ACCEPTED_GAP) and not reply.doubts:
                    answers.add((candidate.identity, candidate.content_hash))

    def created(self, key: str, body: bytes) -> None:
        if not key.startswith("journal/") or body == END:
            return
        segment = codec.decode(keys.segment_of(key), body)
        names = ("outcome", "identity", "content_hash", "message_id")
        for outcome, identity, content_hash, message_id in zip(
            *(segment.rows.column(name).to_pylist() for name in names), strict=True
        ):
            if outcome != Outcome.ACCEPTED:
                self.kept.add(message_id)
                continue
            self.accepted.setdefault(identity, set()).add(content_hash)
            if (identity, content_hash) not in self.answers.get(str(segment.id), set()):
                self._site.findings.append(f"unchecked: {message_id} was accepted into {segment.id} without a decision")

    def acknowledging(self, receipts: Sequence[str]) -> None:
        for receipt in receipts:
            message_id = self._deliveries[receipt].message_id
            if not self.is_covered(message_id):
                self._site.findings.append(f"lost: {message_id} is acknowledged, but nothing durable holds it")

    def is_covered(self, message_id: str) -> bool:
        """Whether a durable record answers for the message."""
        wire = self._site.sent[message_id].wire
        if wire.kind == "control" or message_id in self.kept:
            return True
        return wire.content_hash in self.accepted.get(wire.identity, ())
