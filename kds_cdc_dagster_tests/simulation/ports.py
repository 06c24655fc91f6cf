"""The ports as a worker of the simulation sees them: each call is a step of the schedule, and may fail.

A worker pauses before a call. Whatever it does between the effect of one call and the next call happens in
its own memory, so a crash at the pause is a crash just after the last effect, and one just before the next.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.core.decide import DecideCall, DecideReply, SettleCall
from kds_cdc_dagster.errors import StateUnavailable, TransientError
from kds_cdc_dagster.ports import Acknowledgement, ObjectInfo, QueueDepth, StreamRecord
from kds_cdc_dagster_tests.simulation.baton import Actor
from kds_cdc_dagster_tests.simulation.site import Site

T = TypeVar("T")


class Steps:
    """Pauses and faults of one actor."""

    def __init__(self, site: Site, actor: Actor | None) -> None:
        self.site = site
        self._actor = actor

    def strikes(self, fault: str) -> bool:
        if self.site.is_calm:
            return False
        chance = self.site.plan.chance(fault)
        return chance > 0 and self.rng.random() < chance

    @property
    def rng(self) -> random.Random:
        return self.site.rng

    def pause(self, where: str) -> None:
        if self._actor is not None:
            self._actor.pause(where)
        self.site.note(self._actor.name if self._actor else "calm", where)

    def glance(self, where: str) -> None:
        """A read: pauses now and then only, since nobody can see a read."""
        if self.rng.random() < 0.3:
            self.pause(where)

    def state(self, where: str, effect: Callable[[], T]) -> T:
        self.pause(where)
        if self.site.is_state_down:
            raise StateUnavailable("down")
        answer = effect()
        if self.strikes("again_state"):
            answer = effect()
        if self.strikes("lost_state"):
            raise StateUnavailable("reply lost")
        return answer

    def store(self, where: str, effect: Callable[[], None]) -> None:
        self.pause(where)
        if self.strikes("failed_store"):
            raise TransientError("not done")
        effect()
        if self.strikes("lost_store"):
            raise TransientError("reply lost")
        if self.strikes("again_store"):
            effect()

    def read(self, where: str, effect: Callable[[], T]) -> T:
        self.glance(where)
        if self.strikes("failed_store"):
            raise TransientError("not read")
        return effect()


class SteppedInbox:
    """Port Inbox."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._queue = steps.site.queue

    def receive(self, *, max_messages: int, wait_seconds: float) -> list[Delivery]:
        self._steps.pause("receive")
        found = self._queue.receive(max_messages=self._steps.rng.randint(1, max_messages), wait_seconds=0.0)
        if found and self._steps.strikes("lost_receive"):
            raise TransientError("reply lost")
        self._steps.site.witness.handed_over(found)
        return found

    def acknowledge(self, receipts: Sequence[str]) -> Acknowledgement:
        self._steps.pause(f"acknowledge {len(receipts)}")
        refused = {receipt: "InternalError" for receipt in receipts if self._steps.strikes("refused_delete")}
        tried = [receipt for receipt in receipts if receipt not in refused]
        self._steps.site.witness.acknowledging(tried)
        answer = self._queue.acknowledge(tried)
        if self._steps.strikes("lost_delete"):
            raise TransientError("reply lost")
        return Acknowledgement(answer.confirmed, {**answer.refused, **refused})

    def release(self, receipts: Sequence[str]) -> None:
        self._steps.pause("release")
        self._queue.release(receipts)

    def extend(self, receipts: Sequence[str], seconds: float) -> None:
        self._steps.pause("extend")
        self._queue.extend(receipts, seconds)

    def depth(self) -> QueueDepth:
        return self._queue.depth()

    def close(self) -> None:
        """The queue outlives its workers."""


class SteppedState:
    """Port StateStore."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._state = steps.site.state

    def life(self) -> str | None:
        return self._steps.state("life", self._state.life)

    def begin_life(self, *, is_yielding: bool = False) -> str | None:
        return self._steps.state("begin_life", lambda: self._state.begin_life(is_yielding=is_yielding))

    def load(self, life: str, streams: Any, markers: Any) -> bool:
        return self._steps.state("load", lambda: self._state.load(life, streams, markers))

    def finish_life(self, life: str) -> bool:
        return self._steps.state("finish_life", lambda: self._state.finish_life(life))

    def decide(self, life: str, calls: Sequence[DecideCall]) -> list[DecideReply]:
        def effect() -> list[DecideReply]:
            replies = self._state.decide(life, calls)
            self._steps.site.witness.decided(calls, replies)
            return replies

        segment = calls[0].segment if calls else ""
        return self._steps.state(f"decide {segment}", effect)

    def settle(self, life: str, calls: Sequence[SettleCall]) -> None:
        self._steps.state("settle", lambda: self._state.settle(life, calls))

    def hold(self, life: str, source: str, stream: str, reason: str) -> None:
        self._steps.state(f"hold {stream}", lambda: self._state.hold(life, source, stream, reason))

    def unhold(self, life: str, source: str, stream: str, hold_version: int) -> bool:
        return self._steps.state(f"unhold {stream}", lambda: self._state.unhold(life, source, stream, hold_version))

    def stream(self, source: str, stream: str) -> StreamRecord | None:
        return self._steps.state("stream", lambda: self._state.stream(source, stream))

    def streams(self, *, held_only: bool = False) -> Iterator[StreamRecord]:
        return self._steps.state("streams", lambda: self._state.streams(held_only=held_only))

    def close(self) -> None:
        """The state outlives its workers."""


class SteppedStore:
    """Port ObjectStore."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._store = steps.site.store

    def create(self, key: str, body: bytes) -> None:
        def effect() -> None:
            self._store.create(key, body)
            self._steps.site.witness.created(key, body)

        self._steps.store(f"create {key}", effect)

    def get(self, key: str) -> bytes:
        return self._steps.read(f"get {key}", lambda: self._store.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._steps.read(f"get {key}", lambda: self._store.get_range(key, start, length))

    def exists(self, key: str) -> bool:
        return self._steps.read(f"exists {key}", lambda: self._store.exists(key))

    def scan(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        for info in self._steps.read(f"scan {prefix}", lambda: self._store.scan(prefix, after=after)):
            yield info
            self._steps.glance(f"scan on from {info.key}")

    def folders(self, prefix: str) -> list[str]:
        return self._steps.read(f"folders {prefix}", lambda: self._store.folders(prefix))

    def overwrite(self, key: str, body: bytes) -> None:
        self._steps.store(f"overwrite {key}", lambda: self._store.overwrite(key, body))

    def delete(self, keys: Any) -> None:
        names = list(keys)
        self._steps.store(f"delete {len(names)}", lambda: self._store.delete(names))
