"""What a tick hands on: also when the intake fails, also when a run's process is gone, at a cost without history."""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from kds_cdc_dagster.core.batch import CloseReason
from kds_cdc_dagster.definitions import definitions
from kds_cdc_dagster.defs import names
from kds_cdc_dagster.defs.handing_on import waiting_work
from kds_cdc_dagster.defs.partitions import BATCHES
from kds_cdc_dagster.defs.resources import PipelineResource
from kds_cdc_dagster.defs.runs import NOTED_WITHIN_SECONDS, DagsterRuns
from kds_cdc_dagster.defs.sensors import IntakeFailed
from kds_cdc_dagster.defs.upkeep import forget_partitions
from kds_cdc_dagster.errors import StateUnavailable
from kds_cdc_dagster.intake.offers import DEATHS_PER_FAILURE, RunState
from kds_cdc_dagster.journal import keys, outbox
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.journal.manifest import write as write_manifest
from kds_cdc_dagster.ports import ObjectStore
from kds_cdc_dagster_tests.defs.mock_messages import Kitchens
from kds_cdc_dagster_tests.defs.site import Site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A pipeline whose sensors are on."""
    return Site(tmp_path, monkeypatch, intake="on", tick_seconds=0.2, wait_seconds=0)


def sealed(store: ObjectStore, number: int, *, is_waiting: bool = True) -> str:
    """A sealed batch without segments; waiting in the outbox, or loaded."""
    claim = f"claim-{number:06d}"
    batch = keys.batch_id(SegmentId(claim, 1))
    manifest = Manifest(
        batch=batch,
        claim=claim,
        first_slot=1,
        last_slot=1,
        lanes=(),
        slices=(),
        entities=("station",),
        accepted=0,
        rejected=0,
        parked=0,
        counts={},
        size_bytes=0,
        close_reason=CloseReason.AGE,
        first_received_ms=0,
        last_received_ms=0,
        sealed_at_ms=number,
        worker="w",
    )
    if is_waiting:
        outbox.announce(store, batch)
    else:
        store.create(keys.done(batch), json.dumps({"batch": batch}).encode())
    write_manifest(store, manifest)
    return batch


def evaluate(site: Site, instance: dg.DagsterInstance) -> dg.SensorResult:
    """One evaluation of the first intake sensor."""
    sensor = definitions().get_repository_def().get_sensor_def("intake_1")
    context = dg.build_sensor_context(instance=instance, resources={"pipeline": PipelineResource()})
    found = sensor(context)
    assert isinstance(found, dg.SensorResult)
    return found


def test_an_intake_that_is_down_does_not_keep_sealed_batches_waiting(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State store away: a batch that waits is requested all the same; with nothing to request the tick fails."""
    batch = sealed(site.parts.store, 1)

    def away() -> str:
        raise StateUnavailable("the state store cannot be reached", host="state")

    monkeypatch.setattr(site.parts.state, "life", away)
    with site.instance() as instance:
        (request,) = evaluate(site, instance).run_requests or ()
        assert (request.partition_key, request.run_key) == (batch, f"{batch}:1")
        assert request.tags["dagster/priority"] == "10"
        assert int(request.tags["dagster/max_runtime"]) > 0
        outbox.leave(site.parts.store, batch)
        with pytest.raises(IntakeFailed, match="cannot be reached"):
            evaluate(site, instance)


def test_a_tick_beside_a_running_one_says_so(site: Site) -> None:
    """The daemon starts a second tick when the first one outlives its timeout: it must not drain beside it."""
    ticker = site.parts.ticker("intake_1")
    with ticker._mutex, site.instance() as instance:
        assert "still runs" in str(evaluate(site, instance).skip_reason)


def test_skip_reasons_inform(site: Site) -> None:
    """An idle tick says that the queue is empty, a busy one what it took."""
    with site.instance() as instance:
        assert evaluate(site, instance).skip_reason is not None
        site.send([Kitchens().station(1, 1, "grill")])
        assert "accepted 1" in str(evaluate(site, instance).skip_reason)


def _started(instance: dg.DagsterInstance, batch: str, process: str) -> dg.DagsterRun:
    tags = {names.TAG_BATCH: batch, names.TAG_ATTEMPT: "1", names.TAG_PROCESS: process}
    job = definitions().resolve_job_def(names.BATCH_JOB)
    run = instance.create_run_for_job(job, tags=tags)
    instance.report_dagster_event(dg.DagsterEvent("PIPELINE_START", run.job_name), run.run_id)
    return run


def test_a_run_whose_process_is_gone_is_failed_and_its_batch_offered_again(site: Site) -> None:
    """The launcher of a code server that died watches nothing any more; a run of another host is left alone."""
    gone, elsewhere, alive, silent = (sealed(site.parts.store, n) for n in (1, 2, 3, 4))
    with site.instance() as instance:
        dead = _started(instance, gone, f"{socket.gethostname()}:{_dead_process()}")
        _started(instance, elsewhere, "another-host:1")
        _started(instance, alive, f"{socket.gethostname()}:{os.getpid()}")
        _started(instance, silent, "")
        work = waiting_work(site.parts, DagsterRuns(instance, time.time()))
        assert [(offer.manifest.batch, offer.attempt) for offer in work.outbox.offers] == [(gone, 2)]
        assert work.outbox.live == 3
        later = waiting_work(site.parts, DagsterRuns(instance, time.time() + NOTED_WITHIN_SECONDS + 1))
        assert [offer.manifest.batch for offer in later.outbox.offers] == [gone, silent]
        run = instance.get_run_by_id(dead.run_id)
        assert run is not None
        assert run.status == dg.DagsterRunStatus.FAILURE


def _dead_process() -> int:
    process = os.fork()
    if process == 0:
        os._exit(0)
    os.waitpid(process, 0)
    return process


def test_attempts_are_bounded_and_the_batch_is_then_shown(site: Site) -> None:
    """After the last attempt the batch is moved aside; nothing is requested for it any more. No step of these runs
    failed: their processes died, of which more are allowed.
    """
    batch = sealed(site.parts.store, 1)
    wanted = {dg.AssetKey(["raw", "station"])}  # a run plans every asset that it is for: one says as much as all
    job = definitions().resolve_job_def(names.BATCH_JOB).get_subset(asset_selection=wanted)
    with site.instance() as instance:
        runs = DagsterRuns(instance, time.time())
        for attempt in range(1, site.parts.settings.run_attempts_max * DEATHS_PER_FAILURE + 1):
            (offer,) = waiting_work(site.parts, runs).outbox.offers
            assert offer.attempt == attempt
            tags = {names.TAG_BATCH: batch, names.TAG_ATTEMPT: str(attempt)}
            instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.FAILURE)
        assert waiting_work(site.parts, runs).outbox.failed == [batch]
        assert waiting_work(site.parts, runs).is_empty
        assert runs.runs(batch).state is RunState.ENDED


class Counting:
    """Counts calls of a store's verbs, and the objects that scans hand out."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()

    def __getattr__(self, verb: str) -> Any:
        call = getattr(self._store, verb)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls[verb] += 1
            answer = call(*args, **kwargs)
            if verb != "scan":
                return answer
            found = list(answer)
            self.calls["scanned"] += len(found)
            return iter(found)

        return counted


def test_what_a_tick_costs_does_not_grow_with_history(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same calls on the object store with one loaded batch behind it as with three hundred."""
    costs = []
    with site.instance() as instance:
        for history in (range(1), range(1, 300)):
            for number in history:
                sealed(site.parts.store, number, is_waiting=False)
            waiting = sealed(site.parts.store, 1_000 + len(costs))
            counting = Counting(site.parts.store)
            monkeypatch.setattr(site.parts, "store", counting)
            waiting_work(site.parts, DagsterRuns(instance, time.time()))
            monkeypatch.undo()
            costs.append(counting.calls)
            outbox.leave(site.parts.store, waiting)
    assert costs[0] == costs[1]


def test_partition_keys_stay_below_their_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest keys go first, down to nine tenths of the limit; a batch that is not loaded keeps its key."""
    site = Site(tmp_path, monkeypatch, partition_keys_max=100)
    monkeypatch.setattr(site.parts.clock, "now", lambda: 1.0)
    batches = [sealed(site.parts.store, number, is_waiting=number == 3) for number in range(103)]
    with site.instance() as instance:
        instance.add_dynamic_partitions(str(BATCHES.name), batches)
        assert forget_partitions(site.parts, instance).keys == 12
        left = instance.get_dynamic_partitions(str(BATCHES.name))
        assert left == [batches[3], *batches[13:]]
        assert forget_partitions(site.parts, instance).keys_left == 91
