"""What a seed stands for: its policies, its sizes, and which faults strike how often."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from kds_cdc_dagster.core.batch import BatchPolicy
from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster_tests.simulation.traffic import catalogue

FORGETTING = frozenset({"flush", "failover", "forget", "expire"})
"""After these one change may lie in two segments: a visible count, never a wrong row."""

FAULTS = {
    "crash": 0.01,  # a worker dies at this step
    "zombie": 0.007,  # it stops for longer than the visibility timeout, and goes on later
    "adopt": 0.05,  # a living worker is taken for dead
    "flush": 0.006,  # the state store is emptied
    "failover": 0.02,  # it falls back to an older state, and only some steps later says so
    "forget": 0.02,  # it forgets markers
    "expire": 0.006,  # time jumps over the duplicate window
    "down": 0.01,  # it cannot be reached for some steps
    "lost_state": 0.05,  # it did what was asked, but the reply is lost
    "again_state": 0.05,  # ... and the same call is made again
    "lost_store": 0.03,  # the object store did what was asked, but the reply is lost
    "failed_store": 0.02,  # it did not
    "again_store": 0.03,  # it did, and the client's own retry meets its own object
    "lost_receive": 0.02,
    "refused_delete": 0.05,
    "lost_delete": 0.05,
    "expiry": 0.01,  # visibility ends for everything in flight
    "redrive": 0.02,
    "operator": 0.3,  # an operator who looks holds a stream
}
"""Chance per opportunity, where a seed has the fault at all."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a run is a function of, beside the code."""

    seed: int
    faults: frozenset[str]
    workers: int
    steps: int
    catalogue: Catalogue
    receives_max: int
    dead_letter_after: int
    has_killers: bool
    batch: BatchPolicy
    rate: float
    """Multiplies the chances: few faults find other things than many."""

    @property
    def has_checkpoints(self) -> bool:
        """Whether workers write checkpoints, as pruning does."""
        return self.seed % 7 == 4

    @property
    def forgets(self) -> bool:
        """Whether hot state may be lost."""
        return bool(self.faults & FORGETTING)

    def chance(self, fault: str) -> float:
        return FAULTS[fault] * self.rate if fault in self.faults else 0.0


def focused(seed: int, faults: frozenset[str]) -> Plan:
    """The seed's plan, with these faults and no others, and often."""
    return replace(plan(seed), faults=faults, rate=2.0)


def plan(seed: int) -> Plan:
    """The plan of a seed. Each has a few kinds of faults: all at once hide each other."""
    rng = random.Random(f"plan {seed}")
    wanted = rng.choice((0.15, 0.3, 0.6))
    has_killers = rng.random() < 0.05
    return Plan(
        seed=seed,
        faults=frozenset(fault for fault in FAULTS if rng.random() < wanted),
        workers=rng.randint(2, 4),
        steps=rng.choice((150, 250, 400)),
        catalogue=catalogue(
            rng.choice(("accept", "accept", "quarantine", "hold")),
            rng.choice(("accept", "quarantine", "quarantine", "hold")),
            "auto",
        ),
        receives_max=3 if has_killers else rng.choice((4, 30)),
        dead_letter_after=rng.choice((40, 40, 5)),
        has_killers=has_killers,
        batch=BatchPolicy(
            records_max=rng.choice((3, 8, 30)),
            age_seconds=rng.choice((1.0, 6.0, 60.0)),
            bytes_max=1 << 20,
            records_backlog_max=30,
        ),
        rate=rng.choice((0.5, 1.0, 2.0)),
    )
