"""S11, S12, S27: a process killed at any step of a round, a seal or a load loses nothing and doubles nothing."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kds_cdc_dagster.adapters import killing
from kds_cdc_dagster.clock import SystemClock
from kds_cdc_dagster.core.change import Outcome
from kds_cdc_dagster.demo.oracle import differences
from kds_cdc_dagster.intake.audit import audit
from kds_cdc_dagster.intake.settling import records_of
from kds_cdc_dagster.journal import keys, segment
from kds_cdc_dagster.load.export import current_export
from kds_cdc_dagster.traffic.simulate import Traffic
from kds_cdc_dagster.wiring import Pipeline
from kds_cdc_dagster_tests.crash.whole_path import settings, work

CHANGES, STORES, SEED = 24, 3, 5
IS_WHOLE = os.environ.get("KDS_TEST_CRASHES") == "all"
"""All occurrences of each step, instead of the first and one in the middle."""

EFFECTS = {
    *(f"store.{verb}" for verb in ("create", "overwrite", "swap", "delete")),
    *(f"state.{verb}" for verb in ("decide", "settle", "begin_life", "load", "finish_life")),
    *(f"inbox.{verb}" for verb in ("receive", "acknowledge")),
    "warehouse.run",
}

SIDE_BY_SIDE = 3
"""Plans at once: each waits most of its time for messages of the killed process to become visible again."""

BY_CHANCE = "store.create counts:"
"""Counts get an object of their own only if a tick ends in a round without a segment: as receives happen to fall."""


def _published(home: Path) -> Traffic:
    traffic = Traffic(SEED, STORES, duplicates=True, poison=True)
    parts = Pipeline(settings(home))
    parts.outbound.send(traffic.take(CHANGES))
    parts.close()
    return traffic


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Labels of all port calls of an undisturbed run, in order."""
    home = tmp_path_factory.mktemp("steps")
    calls = home / "calls.txt"
    _published(home)
    assert work(home, {killing.CALLS: str(calls)}) == 0
    return calls.read_text("utf-8").splitlines()


def _plans(steps: list[str]) -> list[str]:
    """Where to kill: before and after every kind of call that has an effect (a read changes nothing)."""
    plans = []
    for label, times in Counter(label for label in steps if label.split()[0] in EFFECTS).items():
        numbers = range(1, times + 1) if IS_WHOLE else [(times + 1) // 2]
        plans += [f"{label}:{moment}:{n}" for n in numbers for moment in ("before", "after")]
    return plans


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_s27_killed_at_any_step_everything_is_taken_once(steps: list[str], tmp_path: Path) -> None:
    """After a kill -9 anywhere and a restart, curated equals the oracle and no change is in two segments."""
    plans = _plans(steps)
    assert len(plans) > 30, "the plan must cover the path"
    homes = [tmp_path / str(number) for number in range(len(plans))]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as workers:
        assert sum(1 for _ in workers.map(_killed_and_restarted, homes, plans)) == len(plans)


def _killed_and_restarted(home: Path, plan: str) -> None:
    home.mkdir()
    traffic = _published(home)
    is_killed = work(home, {killing.PLAN: plan}) == -9
    assert is_killed or plan.startswith(BY_CHANCE), f"{plan}: the process was not killed"
    assert work(home) == 0, plan
    _check(home, traffic, plan)


def _check(home: Path, traffic: Traffic, plan: str) -> None:
    parts = Pipeline(settings(home))
    for target, rows in traffic.expected_rows().items():
        names = [column.name for column in parts.catalogue.entity_by_name[target].columns]
        select = f"SELECT {', '.join(names)} FROM curated.{target}"
        found = [dict(zip(names, row, strict=True)) for row in parts.warehouse.run(lambda tx, s=select: tx.rows(s))]
        assert not differences(parts.catalogue.entity_by_name[target], rows.values(), found), plan
        exported = current_export(parts.store, target)
        assert (exported.rows if exported else 0) == len(rows), plan
    taken = Counter(_accepted(parts))
    assert max(taken.values()) == 1, f"{plan}: a change was accepted twice"
    assert not audit(parts.store).problems, plan
    parts.close()


def _accepted(parts: Pipeline) -> list[str]:
    found = []
    for info in parts.store.scan("journal/"):
        read = segment.read(parts.store, keys.segment_of(info.key))
        found += [r[3] for r in records_of(read) if r[0] == Outcome.ACCEPTED] if read else []
    return found


def test_a_fault_point_kills_before_or_after_the_effect(tmp_path: Path) -> None:
    """The crash test's own tool: `before` leaves the put undone, `after` leaves it done."""
    for moment, segments in (("before", 0), ("after", 1)):
        home = tmp_path / moment
        home.mkdir()
        _published(home)
        assert work(home, {killing.PLAN: f"store.create journal:{moment}:1"}) == -9
        parts = Pipeline(settings(home), SystemClock())
        assert len(list(parts.store.scan("journal/"))) == segments
        parts.close()
