"""One run: a seeded schedule of steps and faults, then calm, recovery and the final checks."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from kds_cdc_dagster.adapters.memory_state import MemoryState
from kds_cdc_dagster.ports import Message
from kds_cdc_dagster_tests.simulation.baton import Actor
from kds_cdc_dagster_tests.simulation.calm import settle_down
from kds_cdc_dagster_tests.simulation.checks import findings
from kds_cdc_dagster_tests.simulation.codec import quick_segments
from kds_cdc_dagster_tests.simulation.plan import Plan
from kds_cdc_dagster_tests.simulation.site import DEAD_AFTER_SECONDS, VISIBILITY_SECONDS, Site
from kds_cdc_dagster_tests.simulation.traffic import Sent, Wire, scripts
from kds_cdc_dagster_tests.simulation.workers import counted_tokens, worker_body

CRITICAL = ("create journal", "settle", "acknowledge", "create batches", "create parked", "unhold", "finish_life")
"""Steps before which a worker dies or falls asleep more often: something is half done there."""


@dataclass(slots=True)
class Outcome:
    """What a run found; empty findings mean that every rule held."""

    seed: int
    findings: list[str]
    trace: list[str] = field(repr=False)
    accepted: int = 0


class Schedule:
    """Picks who makes the next step, and which fault strikes in between."""

    def __init__(self, plan: Plan) -> None:
        self.site = Site(plan)
        self.rng = self.site.rng
        # While a state store hides that it lost writes, a new history cannot be seen to go back.
        may_restart = "failover" not in plan.faults
        self._scripts = list(scripts(self.rng, has_killers=plan.has_killers, may_restart=may_restart))
        self._incarnations = 0
        self._number = 0
        self.actors = [self._actor(f"w{number}") for number in range(self.site.plan.workers)]
        self._older_state: MemoryState | None = None
        self._detection_in = self._down_for = 0

    def _actor(self, worker: str) -> Actor:
        self._incarnations += 1
        return Actor(f"{worker}.{self._incarnations}", lambda actor: worker_body(self.site, actor))

    def run(self) -> None:
        """Steps until the budget is used up or something is found."""
        self._publish(3)
        for number in range(self.site.plan.steps):
            self._step(number)
            if self.site.findings:
                return
        for actor in self.actors:
            if actor.wakes_at <= self.site.plan.steps:
                actor.crash()
        while self._publish(10):
            pass
        if self._detection_in > 0:
            self.site.state._life = None

    def _step(self, number: int) -> None:
        clock = self.site.clock
        clock.sleep(self.rng.choice((0.01, 0.05, 0.2, 1.0)))
        if self.rng.random() < 0.15:
            self._publish(self.rng.randint(1, 4))
        self._strike()
        awake = [place for place, actor in enumerate(self.actors) if actor.wakes_at <= number]
        if not awake:
            return
        place = self.rng.choice(awake)
        actor = self.actors[place]
        weight = 6.0 if actor.where.startswith(CRITICAL) else 1.0
        if self._strikes("crash", weight):
            self.site.note(actor.name, f"CRASH before {actor.where}")
            actor.crash()
        else:
            if self._strikes("zombie", weight):
                self._fall_asleep(actor, number)
                return
            actor.step()
        self._bury(place)

    def _fall_asleep(self, actor: Actor, number: int) -> None:
        """It stops, others get its messages, perhaps its log; and then it goes on, or after everything is over."""
        actor.wakes_at = number + self.rng.choice((10, 25, 60, 1_000_000))
        self.site.note(actor.name, f"SLEEPS before {actor.where}")
        self.site.clock.sleep(self.rng.choice((VISIBILITY_SECONDS, DEAD_AFTER_SECONDS)) + 1)

    def _bury(self, place: int) -> None:
        actor = self.actors[place]
        if not actor.is_over:
            return
        if actor.failure is not None:
            self.site.findings.append(f"escaped: {type(actor.failure).__name__}: {actor.failure}")
        self.actors[place] = self._actor(actor.name.split(".")[0])

    def _strikes(self, fault: str, weight: float = 1.0) -> bool:
        chance = self.site.plan.chance(fault) * weight
        return chance > 0 and self.rng.random() < chance

    def _publish(self, messages: int) -> int:
        """Send from random streams; returns how many were sent."""
        sent = 0
        for _ in range(messages):
            open_scripts = [script for script in self._scripts if script.left > 0]
            if not open_scripts:
                break
            script = self.rng.choice(open_scripts)
            self._number += 1
            wire, is_regular = script.draw(self._number)
            send(self.site, wire, is_regular=is_regular)
            sent += 1
        return sent

    # --- faults of the world -----------------------------------------------------------------

    def _strike(self) -> None:
        for fault in ("flush", "failover", "forget", "expire", "down", "expiry", "redrive"):
            if self._strikes(fault):
                self.site.note("world", fault.upper())
                getattr(self, f"_{fault}")()
        self._down_for -= 1
        self.site.is_state_down = self._down_for > 0
        self._detection_in -= 1
        if self._detection_in == 0:
            self.site.note("world", "FAILOVER DETECTED")
            self.site.state._life = None
        if self.rng.random() < 0.1 and self.site.plan.chance("failover"):
            self._older_state = self.site.snapshot_of_state()

    def _flush(self) -> None:
        self.site.state.forget_everything()
        self._older_state = None

    def _failover(self) -> None:
        """Acknowledged writes are lost; the store says so (another replication id) only some steps later."""
        older, state = self._older_state, self.site.state
        if older is None or older._life != state._life:
            return
        state._records, state._pending, state._committed = older._records, older._pending, older._committed
        self._older_state = None
        self._detection_in = self.rng.randint(10, 80)

    def _forget(self) -> None:
        """Some of the markers."""
        for of_kind in (self.site.state._pending, self.site.state._committed):
            for key, of_stream in list(of_kind.items()):
                for identity in [identity for identity in of_stream if self.rng.random() < 0.3]:
                    self.site.state.forget_marker(*key, identity)

    def _expire(self) -> None:
        self.site.clock.sleep(1300.0)

    def _down(self) -> None:
        self._down_for = self.rng.randint(3, 30)

    def _expiry(self) -> None:
        self.site.clock.sleep(VISIBILITY_SECONDS + 1)

    def _redrive(self) -> None:
        self.site.redrive()


def send(site: Site, wire: Wire, *, is_regular: bool) -> None:
    """Publish one message and remember it."""
    body = msgspec.json.encode(wire).decode()
    site.queue.send([Message(body, wire.stream, f"{wire.number}")])
    message_id = f"memory-{site.queue._groups.last_seq}"
    site.sent[message_id] = Sent(wire, message_id, is_regular)
    site.note("publisher", f"{message_id} {'' if is_regular else 'odd '}{body}")


def simulate(plan: Plan) -> Outcome:
    """Run one plan to its end."""
    with quick_segments(), counted_tokens():
        schedule = Schedule(plan)
        site = schedule.site
        try:
            schedule.run()
            if not site.findings:
                _recover(schedule)
        except Exception as error:  # noqa: BLE001 nothing may escape, in calm least of all
            site.findings.append(f"escaped: {type(error).__name__}: {error}")
        finally:
            for actor in schedule.actors:
                actor.crash()
    return Outcome(plan.seed, site.findings, site.trace, len(site.witness.accepted))


def _recover(schedule: Schedule) -> None:
    """Recovery in two orders must end well; then zombies go on, and all must still be well."""
    site = schedule.site
    twin = site.twin()
    for one, is_reversed in ((twin, True), (site, False)):
        settle_down(one, worker="calm", is_reversed=is_reversed)
        site.findings += [*(one.findings if one is twin else ()), *findings(one)]
    zombies = [actor for actor in schedule.actors if not actor.is_over]
    if not zombies or site.findings:
        return
    for actor in zombies:
        for _ in range(80):
            if not actor.is_over:
                actor.step()
        if actor.failure is not None:
            site.findings.append(f"escaped: {type(actor.failure).__name__}: {actor.failure}")
        actor.crash()
    settle_down(site, worker="calmer")
    site.findings += findings(site)
