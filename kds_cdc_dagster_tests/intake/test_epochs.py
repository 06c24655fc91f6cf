"""New histories of a source: positions that go back with another lineage end the epoch, by policy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kds_cdc_dagster.core.position import EPOCH_DIGITS
from kds_cdc_dagster.intake.release import open_epoch
from kds_cdc_dagster.intake.tick import Ticker
from kds_cdc_dagster.journal import epochs
from kds_cdc_dagster_tests.simulation.checks import read_journal
from kds_cdc_dagster_tests.simulation.codec import quick_segments
from kds_cdc_dagster_tests.simulation.plan import focused
from kds_cdc_dagster_tests.simulation.ports import Steps
from kds_cdc_dagster_tests.simulation.schedule import send
from kds_cdc_dagster_tests.simulation.site import WINDOW, Site
from kds_cdc_dagster_tests.simulation.traffic import SPARSE, Wire, catalogue
from kds_cdc_dagster_tests.simulation.workers import ticker_of


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    with quick_segments():
        yield


class History:
    """One source's traffic and what was accepted of it."""

    def __init__(self, new_epoch: str) -> None:
        plan = focused(1, frozenset())
        object.__setattr__(plan, "catalogue", catalogue("accept", "quarantine", new_epoch))
        self.site = Site(plan)
        self._sends = 0

    def worker(self, name: str) -> Ticker:
        return ticker_of(self.site, name, Steps(self.site, None))

    def send(self, lineage: str, *positions: int, stream: str = "s0", kind: str = "change") -> None:
        for position in positions:
            self._sends += 1
            op = "u" if kind == "change" else "r"
            wire = Wire(self._sends, kind, SPARSE, stream, position, op, 100 + position, position, 0, lineage)
            send(self.site, wire, is_regular=True)

    def accepted(self, stream: str = "s0") -> list[tuple[int, int]]:
        """(epoch, row position) of the stream's accepted changes, in queue order."""
        rows = [row for row in read_journal(self.site).accepted if row["stream"] == stream]
        rows.sort(key=lambda row: int(row["sequence_number"]))
        return [(int(row["row_order"][:EPOCH_DIGITS], 16), int(row["row_position"][:16], 16)) for row in rows]

    def refused(self) -> list[str]:
        return [row["reason"] for row in read_journal(self.site).rows if row["outcome"] == "rejected"]

    @property
    def epoch(self) -> epochs.SourceEpoch:
        return epochs.current(self.site.store, SPARSE)


def drain(ticker: Ticker) -> None:
    """One tick, after visibility ended, until the queue is empty."""
    ticker.intake.ports.clock.sleep(31.0)
    report = ticker.tick(budget_seconds=1e9, wait_seconds=0.0, is_draining=True)
    assert report.is_drained, report.line()


def test_auto_opens_the_next_epoch() -> None:
    """Positions that go back with another lineage rank above everything of the old one."""
    history = History("auto")
    worker = history.worker("a")
    history.send("binlog-0", 5, 9)
    drain(worker)
    history.send("binlog-1", 1, 2)
    drain(worker)
    assert history.accepted() == [(0, 5), (0, 9), (1, 1), (1, 2)]
    assert history.refused() == []


def test_hold_parks_the_source_until_an_operator_opens_the_epoch() -> None:
    """Nothing of the new history is mixed with the old one; other streams of the source are parked, too."""
    history = History("hold")
    worker = history.worker("a")
    history.send("binlog-0", 5, 9)
    drain(worker)
    history.send("binlog-1", 1, 2)
    drain(worker)
    history.send("binlog-1", 3, stream="s1")
    drain(worker)
    assert history.epoch.hold
    assert history.accepted() == [(0, 5), (0, 9)]
    assert history.accepted("s1") == []
    open_epoch(worker.intake, SPARSE, "failover", "operator")
    history.send("binlog-1", 4)
    drain(worker)
    assert history.accepted() == [(0, 5), (0, 9), (1, 1), (1, 2), (1, 4)]
    assert history.accepted("s1") == [(1, 3)]
    assert history.epoch == epochs.SourceEpoch(1)


def test_a_source_can_be_held_a_second_time() -> None:
    """The hold of the next epoch works as the first one did, on the same worker and life."""
    history = History("hold")
    worker = history.worker("a")
    for number in range(3):
        history.send(f"binlog-{number}", 5 - number)
        drain(worker)
        if number:
            assert history.epoch.hold
            open_epoch(worker.intake, SPARSE, "failover", "operator")
    assert history.accepted() == [(0, 5), (1, 4), (2, 3)]
    history.send("binlog-3", 2)
    drain(worker)
    history.send("binlog-3", 3)
    drain(worker)
    assert history.epoch.hold
    assert history.accepted() == [(0, 5), (1, 4), (2, 3)]


def test_a_snapshot_that_starts_earlier_opens_an_epoch_once() -> None:
    """Its rows and the changes after it go on in the new epoch; old positions do not break it again."""
    history = History("hold")
    worker = history.worker("a")
    history.send("binlog-0", 5, 9)
    drain(worker)
    history.send("binlog-0", 3, kind="snapshot")
    drain(worker)
    assert history.epoch.hold
    open_epoch(worker.intake, SPARSE, "rebuilt", "operator")
    history.send("binlog-0", 4)
    history.send("binlog-0", 7, kind="snapshot")
    drain(worker)
    assert history.accepted() == [(0, 5), (0, 9), (1, 3), (1, 4), (1, 7)]
    assert history.epoch == epochs.SourceEpoch(1)


def test_a_worker_that_knows_only_the_old_epoch_looks_again() -> None:
    """Another worker opened the epoch meanwhile: nothing is called out of order for that."""
    history = History("auto")
    a, b = history.worker("a"), history.worker("b")
    history.send("binlog-0", 5, 9)
    drain(a)
    drain(b)
    history.send("binlog-1", 1)
    drain(a)
    history.send("binlog-1", 2)
    with pytest.raises(Exception, match="later epoch"):
        b.intake.round(b._collector.collect(0.0))
    drain(b)
    assert history.accepted() == [(0, 5), (0, 9), (1, 1), (1, 2)]
    assert history.refused() == []


@pytest.mark.parametrize("new_epoch", ["auto", "hold"])
def test_two_histories_in_one_round_are_taken_in_one_after_the_other(new_epoch: str) -> None:
    """The old one first, in its epoch; the new one opens the next, or is held."""
    history = History(new_epoch)
    worker = history.worker("a")
    history.send("binlog-0", 5, 9)
    history.send("binlog-1", 1, 2)
    drain(worker)
    if new_epoch == "hold":
        assert history.accepted() == [(0, 5), (0, 9)]
        open_epoch(worker.intake, SPARSE, "failover", "operator")
    assert history.accepted() == [(0, 5), (0, 9), (1, 1), (1, 2)]
    assert history.refused() == []
    assert history.epoch == epochs.SourceEpoch(1)


def test_a_late_redelivery_of_the_old_history_is_no_new_history() -> None:
    """The durable records know it: a safe duplicate, also when its marker is gone."""
    history = History("hold")
    worker = history.worker("a")
    history.send("binlog-0", 5, 9)
    history.send("binlog-1", 12)
    drain(worker)
    history.site.clock.sleep(3 * WINDOW.window_seconds)
    history.send("binlog-0", 5)
    drain(worker)
    assert history.accepted() == [(0, 5), (0, 9), (0, 12)]
    assert history.epoch == epochs.SourceEpoch(0)
    assert history.refused() == []


def test_a_late_redelivery_of_an_earlier_epoch_changes_nothing_in_the_new_one() -> None:
    """Its position is above the new epoch's, its marker is gone: the durable records know it."""
    history = History("auto")
    worker = history.worker("a")
    history.send("binlog-0", 5, 9)
    drain(worker)
    history.send("binlog-1", 1)
    drain(worker)
    history.site.clock.sleep(3 * WINDOW.window_seconds)
    history.send("binlog-0", 9)
    history.send("binlog-1", 2)
    drain(worker)
    assert history.accepted() == [(0, 5), (0, 9), (1, 1), (1, 2)]
    assert history.refused() == []


def test_old_row_positions_do_not_stand_in_for_reads_of_a_new_epoch() -> None:
    """State keeps row positions with their epoch: what is highest in an old one ranks below any of a new one."""
    history = History("auto")
    worker = history.worker("a")
    history.send("binlog-0", 90)
    drain(worker)
    history.send("binlog-1", 1)
    drain(worker)
    record = history.site.state.stream(SPARSE, "s0")
    assert record is not None
    assert int(record.row_position[:EPOCH_DIGITS], 16) == 1
    assert int(record.row_position[EPOCH_DIGITS : EPOCH_DIGITS + 16], 16) == 1
