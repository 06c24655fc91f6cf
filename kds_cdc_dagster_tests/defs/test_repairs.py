"""Repairs as engineers start them from the launchpad: replay and swap, redrive, discard, release, prune."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import msgspec
import pytest

from kds_cdc_dagster.defs.partitions import BATCHES
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.load.replay import ReplayReport
from kds_cdc_dagster.ports import Message
from kds_cdc_dagster_tests.defs.mock_messages import Kitchens
from kds_cdc_dagster_tests.defs.site import Site, output_metadata

_ROWS = "SELECT account_id, station_id, name FROM {}.station ORDER BY 1, 2"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """An empty pipeline."""
    return Site(tmp_path, monkeypatch)


def test_s33_replay_compare_and_swap_while_live_traffic_flows(site: Site) -> None:
    """A damaged table is replayed apart, live stays as it is; the swap repairs it, and newer live rows stay newer."""
    kitchens = Kitchens()
    for name in ("one", "two"):
        site.send([kitchens.station(account, 1, name) for account in (1, 2, 3)])
        site.drive()
    site.execute("UPDATE curated.station_rows SET name = 'damaged'")
    damaged = site.rows(_ROWS.format("curated"))

    replayed = site.run_job("replay", schema_name="again", signed_off_by="ada", changes_per_second=500.0)
    assert replayed.success
    report = output_metadata(replayed)
    assert (report["count.accepted"], report["count.staged"], report["gaps"]) == (6, 6, 0)
    assert report["is_reconciled"]
    kept = msgspec.json.decode(site.parts.store.get(keys.replay_report(replayed.run_id)), type=ReplayReport)
    assert (kept.signed_off_by, kept.batches, kept.control_totals["station"]["replayed"]["rows"]) == ("ada", 2, "3")
    assert site.rows(_ROWS.format("curated")) == damaged, "live must not be touched"
    assert site.rows(_ROWS.format("again")) == [(f"acct-00{n}", 1, "two") for n in (1, 2, 3)]

    site.send([kitchens.station(3, 1, "newer"), kitchens.station(3, 2, "new")])
    site.drive()
    compared = json_of(site.run_job("compare_and_swap", schema_name="again", targets=["station"]), "compared.station")
    assert (compared["different"], compared["live_newer"], compared["only_live"]) == (2, 1, 1)
    assert compared["columns"] == {"name": 2}
    assert site.rows(_ROWS.format("curated"))[0] == ("acct-001", 1, "damaged"), "comparing changes nothing"

    swapped = site.run_job("compare_and_swap", schema_name="again", is_swapped=True)
    assert swapped.success
    assert site.rows(_ROWS.format("curated")) == [
        ("acct-001", 1, "two"),
        ("acct-002", 1, "two"),
        ("acct-003", 1, "newer"),
        ("acct-003", 2, "new"),
    ]
    site.drive()  # the exports that the swap made due
    assert site.run_job("check_all").success
    again = json_of(site.run_job("compare_and_swap", schema_name="again", targets=["station"]), "compared.station")
    assert again["different"] == 0


def _swap_often(home: Path, times: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        site = Site(home, patch)
        for _ in range(times):
            swapped = site.run_job("compare_and_swap", schema_name="again", targets=["station"], is_swapped=True)
            assert swapped.success, [event.event_specific_data for event in swapped.all_events if event.is_failure]


def test_a_swap_beside_live_merges_loses_nothing(site: Site, tmp_path: Path) -> None:
    """Live batches are merged by one process while another swaps again and again: the newest names win everywhere."""
    kitchens = Kitchens()
    site.send([kitchens.station(account, 1, "old") for account in (1, 2)])
    site.drive()
    assert site.run_job("replay", schema_name="again").success
    # A process of its own, as a run of the job is: two runs in one process would share Python's logging setup.
    swapping = multiprocessing.get_context("spawn").Process(target=_swap_often, args=(tmp_path, 3))
    swapping.start()
    for n in range(2):
        site.send([kitchens.station(account, 1, f"new {n}") for account in (1, 2)])
        assert site.drive().is_good
    swapping.join()
    assert swapping.exitcode == 0
    assert {name for _, _, name in site.rows(_ROWS.format("curated"))} == {"new 1"}


def test_a_replay_of_one_stream_takes_only_its_changes(site: Site) -> None:
    """The other streams' rows are counted and left out."""
    kitchens = Kitchens()
    site.send([kitchens.station(account, 1, "x") for account in (1, 2, 3)])
    site.drive()
    report = output_metadata(site.run_job("replay", schema_name="part", streams=[kitchens.stream(2)]))
    assert (report["count.raw_rows"], report["count.other_streams"], report["count.staged"]) == (3, 2, 1)
    assert report["is_reconciled"]
    assert site.rows(_ROWS.format("part")) == [("acct-002", 1, "x")]


def test_a_replay_into_live_schemas_is_refused(site: Site) -> None:
    """Nobody replays over live by a slip."""
    result = site.run_job("replay", schema_name="curated")
    assert not result.success


def test_redriven_deliveries_are_taken_in_edited_or_refused_again(site: Site) -> None:
    """After an edit the delivery is accepted; as it is, it is refused again and its row is open again."""
    kitchens = Kitchens()
    good = kitchens.station(1, 1, "grill")
    site.send([Message(good.body[:-1], good.group_id, "cut"), Message("not json", good.group_id, "junk")])
    site.drive()
    assert site.rows("SELECT count(*), min(status) FROM ops.quarantine") == [(2, "open")]
    (cut,) = site.rows("SELECT key FROM ops.quarantine WHERE body LIKE '{%'")[0]
    edited = site.run_job(
        "redrive_quarantine", why="truncated by hand", by="ada", reason="unreadable", bodies={cut: good.body}
    )
    assert output_metadata(edited)["done"] == 2
    assert site.drive().counts == {"received": 2, "accepted": 1, "rejected.unreadable": 1}
    assert site.rows(_ROWS.format("curated")) == [("acct-001", 1, "grill")]
    assert dict(site.rows("SELECT body LIKE '{%', status FROM ops.quarantine")) == {True: "requeued", False: "open"}
    discarded = site.run_job("discard_quarantine", why="junk", by="ada", reason="unreadable")
    assert output_metadata(discarded)["done"] == 1
    assert site.rows("SELECT action, count(*) FROM ops.quarantine_actions GROUP BY 1 ORDER BY 1") == [
        ("discarded", 1),
        ("requeued", 2),
    ]


def test_a_repair_without_any_restriction_is_refused(site: Site) -> None:
    """An empty selection would mean everything."""
    assert not site.run_job("discard_quarantine", why="oops").success


def test_a_stream_held_by_hand_is_released_from_the_launchpad(site: Site) -> None:
    """A stream parked by a job is held with its reason; its changes are curated, in order, when another releases it."""
    kitchens = Kitchens()
    site.run_job("park_stream", source="mock", stream=kitchens.stream(1), reason="by hand")
    assert [record.hold for record in site.parts.state.streams(held_only=True)] == ["by hand"]
    site.send([kitchens.station(1, 1, name) for name in ("one", "two")])
    assert site.drive().counts["parked"] == 2
    assert site.rows(_ROWS.format("curated")) == []
    state = "SELECT outcome, status, count(*) FROM ops.quarantine GROUP BY 1, 2"
    assert site.rows(state) == [("parked", "open", 2)]
    released = output_metadata(site.run_job("release_stream", source="mock", stream=kitchens.stream(1)))
    assert released["release.accepted"] == 2
    assert site.rows(state) == [("parked", "released", 2)]
    site.drive()
    assert site.rows(_ROWS.format("curated")) == [("acct-001", 1, "two")]


def test_pruned_batches_are_gone_from_everywhere_but_raw_and_can_be_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the journal's retention keys, runs, segments and staging rows are gone; curated stays, replay works."""
    site = Site(tmp_path, monkeypatch, journal_days=2, queue_retention_days=1)
    kitchens = Kitchens()
    for name in ("one", "two"):
        site.send([kitchens.station(1, 1, name)])
        site.drive()
    monkeypatch.setattr(site.parts.clock, "now", lambda: _in_days(3))
    pruned = output_metadata(site.run_job("prune"))
    assert (pruned["keys"], pruned["runs"], pruned["keys_left"], pruned["batches_kept_back"]) == (2, 2, 0, 0)
    assert site.rows("SELECT count(*) FROM staging.station") == [(0,)]
    assert list(site.parts.store.scan("journal/")) == [] or all(
        site.parts.store.get(info.key) == b"END\n" for info in site.parts.store.scan("journal/")
    )
    assert site.rows(_ROWS.format("curated")) == [("acct-001", 1, "two")]
    assert output_metadata(site.run_job("replay", schema_name="again"))["is_reconciled"]
    assert site.rows(_ROWS.format("again")) == [("acct-001", 1, "two")]
    batches = [json.loads(site.parts.store.get(i.key))["batch"] for i in site.parts.store.scan("batches/")]
    assert output_metadata(site.run_job("restore_partitions", batches=batches))["restored"] == 2
    with site.instance() as instance:
        assert sorted(instance.get_dynamic_partitions(str(BATCHES.name))) == sorted(batches)


def test_prune_keeps_what_still_answers_for_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch with an open quarantine row keeps its segments, however old; discarding the row lets it go."""
    site = Site(tmp_path, monkeypatch, journal_days=2, queue_retention_days=1)
    kitchens = Kitchens()
    site.send([kitchens.station(1, 1, "one"), Message("not json", kitchens.stream(1), "junk")])
    site.drive()
    monkeypatch.setattr(site.parts.clock, "now", lambda: _in_days(3))
    assert output_metadata(site.run_job("prune"))["batches_kept_back"] == 1
    site.run_job("discard_quarantine", why="junk", reason="unreadable")
    assert output_metadata(site.run_job("prune"))["batches_kept_back"] == 0


def _in_days(days: float) -> float:
    import time

    return time.time() + days * 86_400


def json_of(result: object, name: str) -> dict[str, object]:
    """A JSON metadata value of the only op's output."""
    found: dict[str, object] = output_metadata(result)[name]  # type: ignore[arg-type]
    return found


def test_only_what_was_replayed_is_compared(site: Site) -> None:
    """A name that no replay has, or a target that it left out, is refused, and nothing is made for it."""
    site.send([Kitchens().station(1, 1, "grill")])
    site.drive()
    assert site.run_job("replay", schema_name="again", targets=["station"]).success
    found = output_metadata(site.run_job("compare_and_swap", schema_name="again"))
    assert [name for name in found if name.startswith("compared.")] == ["compared.station"]
    assert not site.run_job("compare_and_swap", schema_name="again", targets=["kitchen_ticket"]).success
    assert not site.run_job("compare_and_swap", schema_name="never_was").success
    assert site.rows("SELECT count(*) FROM information_schema.schemata WHERE schema_name LIKE 'never%'") == [(0,)]
