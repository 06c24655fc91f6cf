"""What may happen to a stage. Each fault loads a whole line and lets it end as a retried run would."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.ports import ObjectStore
from kds_cdc_dagster_tests.gate.line import STAGES, Line
from kds_cdc_dagster_tests.load.breaking import BreakingWarehouse, Broken

STEPS_MAX = 400
"""Of one stage: more, and it does not end."""
EFFECTS = ("create", "overwrite", "swap", "delete")


def undisturbed(line: Line) -> int:
    """Every batch after the other, each stage once, an export after each."""
    for batch in line.batches:
        for stage in STAGES:
            line.run(stage, batch)
    return 0


def repeated(line: Line, faulty: str) -> int:
    """The stage runs twice."""
    for batch in line.batches:
        for stage in STAGES:
            for _ in range(2 if stage == faulty else 1):
                line.run(stage, batch)
    return 0


def interrupted(line: Line, faulty: str) -> int:
    """The second batch's stage dies before and after its first effect, then at the second, and so on, until it ends.

    Effects: each statement, COPY, UNLOAD and commit; each put, swap and delete in the store. Returns how many deaths.
    """
    deaths = 0
    for batch in line.batches:
        for stage in STAGES:
            if stage == faulty and batch is line.batches[1]:
                deaths = _until_it_ends(line, stage, batch)
            else:
                line.run(stage, batch)
    return deaths


def _until_it_ends(line: Line, stage: str, batch: Manifest) -> int:
    for step in range(1, STEPS_MAX):
        breaking = BreakingWarehouse(line.warehouse())
        loader = line.loader(breaking, _BreakingStore(line.store, breaking.step))  # type: ignore[arg-type]
        loader.ensure()
        breaking.steps, breaking.at = 0, step
        try:
            line.run(stage, batch, loader)
        except Broken:
            continue
        return step - 1
    raise AssertionError("the stage does not end")


class _BreakingStore:
    """The store with a step before and after each effect."""

    def __init__(self, inner: ObjectStore, step: Callable[[], None]) -> None:
        self._inner = inner
        self._step = step

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        return call if name not in EFFECTS else lambda *args, **kwargs: self._stepped(call, *args, **kwargs)

    def _stepped(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._step()
        answer = call(*args, **kwargs)
        self._step()
        return answer


def twins(line: Line, faulty: str) -> int:
    """Two processes run the stage at the same moment."""
    for batch in line.batches:
        for stage in STAGES:
            if stage == faulty:
                _side_by_side(line, stage, batch)
            else:
                line.run(stage, batch)
    return 0


def _side_by_side(line: Line, stage: str, batch: Manifest) -> None:
    start = threading.Barrier(2)
    errors: list[BaseException] = []

    def work() -> None:
        loader = line.loader()
        loader.ensure()
        start.wait()
        try:
            line.run(stage, batch, loader)
        except BaseException as error:  # noqa: BLE001  (raised by the thread that waits)
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def older_after_newer(line: Line, faulty: str) -> int:
    """The stage takes the batches from last to first; an export that began before the last merges ends after theirs."""
    for stage in STAGES[:3]:
        for batch in reversed(line.batches) if stage == faulty else line.batches:
            if (stage, batch, faulty) == ("curated", line.batches[-1], "export"):
                _overtaken(line, batch)
            else:
                line.run(stage, batch)
    if faulty != "export":  # there the overtaken one must have left the newer in place
        line.run("export", line.batches[-1])
    return 0


def _overtaken(line: Line, last: Manifest) -> None:
    """Before the older export is recorded, the last batch is merged and exported."""
    is_over = threading.Event()

    def overtake() -> None:
        if not is_over.is_set():
            is_over.set()
            line.run("curated", last)
            line.run("export", last)

    loader = line.loader(store=_Overtaken(line.store, overtake))  # type: ignore[arg-type]
    line.run("export", last, loader)
    assert is_over.is_set(), "the older export wrote no index"


class _Overtaken:
    """The store; before an export's index is written, something else happens."""

    def __init__(self, inner: ObjectStore, before: Callable[[], None]) -> None:
        self._inner = inner
        self._before = before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create(self, key: str, body: bytes) -> None:
        """See the port."""
        if key.startswith("exports/") and key.endswith("/index.json"):
            self._before()
        self._inner.create(key, body)


FAULTS: Mapping[str, Callable[[Line, str], int]] = {
    "repeated": repeated,
    "interrupted at each effect": interrupted,
    "concurrent twin": twins,
    "older after newer": older_after_newer,
}
