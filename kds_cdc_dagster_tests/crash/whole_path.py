"""The whole path in a process of its own: publish nothing, drain, seal, load, export, end.

Runs in children of a fork server that has the imports but nothing open, so that a crash test kills a real
process and still starts it in milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

from kds_cdc_dagster.adapters import duckdb_warehouse, embedded_state, local_inbox, object_store
from kds_cdc_dagster.intake.offers import affected
from kds_cdc_dagster.journal import claims, outbox
from kds_cdc_dagster.settings import Settings
from kds_cdc_dagster.wiring import Pipeline

PRELOADED = (duckdb_warehouse, embedded_state, local_inbox, object_store)
"""Imported here so that the fork server has them."""

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])

VISIBILITY_SECONDS = 1.0
TURNS_MAX = 60


def settings(home: Path, **more: object) -> Settings:
    """Quick to redeliver, quick to write: a killed process loses nothing that the system has, synced or not."""
    return Settings(
        home=home,
        store_fsync="off",
        visibility_seconds=VISIBILITY_SECONDS,
        safety_seconds=0.2,
        tick_seconds=0.9,
        segment_records_max=10,
        batch_records_max=20,
        receives_max=50,
        local_dead_letter_after=100,
        **more,  # type: ignore[arg-type]
    )


def work(home: Path, environment: dict[str, str] | None = None) -> int:
    """Run the path in a child until idle; its exit code (-9: killed as planned)."""
    child = FORKS.Process(target=_work, args=(home, environment or {}))
    child.start()
    child.join(60)
    if child.exitcode is None:
        child.kill()
        child.join()
        raise AssertionError("the path does not become idle")
    return child.exitcode


def _work(home: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    parts = Pipeline(settings(home))
    for _ in range(TURNS_MAX):
        parts.ticker("w").tick(budget_seconds=0.9, wait_seconds=0.1, is_draining=True)
        _load(parts)
        if _is_idle(parts):
            break
        parts.clock.sleep(0.1)
    parts.close()


def _load(parts: Pipeline) -> None:
    for batch in list(outbox.waiting(parts.store)):
        manifest = outbox.sealed(parts.store, batch)
        if manifest is None:
            continue
        touched = affected(manifest, parts.catalogue)
        for entity in touched.entities:
            parts.loader.raw(entity, manifest)
            parts.loader.stage(entity, manifest)
        for target in touched.targets:
            parts.loader.merge(target, manifest)
            parts.loader.export(target)
        if touched.has_quarantine:
            parts.loader.quarantine(manifest)
        if outbox.is_done(parts.store, batch):
            outbox.leave(parts.store, batch)


def _is_idle(parts: Pipeline) -> bool:
    own = parts.ticker("w").intake.tenure.claim
    others = [found for found in claims.open_claims(parts.store) if own is None or found.claim != own.id]
    is_drained = parts.inbox.depth().is_empty and parts.ticker("w").intake.batch is None
    return is_drained and not others and next(outbox.waiting(parts.store), None) is None
