"""Named scenarios over the whole path: S34 and S35, and the default catalogue under the stock sink's one group."""

from __future__ import annotations

from pathlib import Path

import pytest

from kds_cdc_dagster.catalogue import load_catalogue, packaged_text
from kds_cdc_dagster.core.change import Reason
from kds_cdc_dagster.ports import Message
from kds_cdc_dagster.traffic.groups import Groups
from kds_cdc_dagster_tests.captures import CAPTURES, capture
from kds_cdc_dagster_tests.pipeline.kitchen import Kitchen
from kds_cdc_dagster_tests.pipeline.site import site
from kds_cdc_dagster_tests.synthetic.encoding import PLACEHOLDER
from kds_cdc_dagster_tests.synthetic.mode import Mode, catalogue_text
from kds_cdc_dagster_tests.synthetic.player import Player


@pytest.mark.parametrize("name", CAPTURES)
def test_s34_recorded_captures_end_as_the_source(name: str, tmp_path: Path) -> None:
    """Recorded events of a real engine, through the real path, give the rows that the source itself held."""
    recorded = capture(name)
    text = packaged_text().replace("precise ", "string ") if name == "pg-schemas" else packaged_text()
    groups = Groups(load_catalogue())
    bodies = [body.decode() for body in recorded.bodies if body is not None]
    with site(tmp_path, text, batch_records_max=400) as line:
        line.send(Message(body, groups.of(body), f"{name}-{number}") for number, body in enumerate(bodies))
        line.drain()
        line.load()
        line.assert_sound(recorded.state)


@pytest.mark.parametrize("mode", [Mode(), Mode(connector="mysql", times="adaptive_time_microseconds")], ids=str)
def test_s34_moves_truncates_and_snapshots_end_as_the_source(mode: Mode, tmp_path: Path) -> None:
    """Key changes, swaps, re-inserts, truncates and all kinds of snapshot, in a long life, end as the source."""
    played = Player(mode, 34).play(110)
    bodies = "".join(message.body for message in played.messages)
    for mark in ('"op":"t"', '"op":"d"', '"snapshot":"incremental"', '"snapshot":"first"', "snapshot-window-open"):
        assert mark in bodies
    with site(tmp_path, catalogue_text(mode), batch_records_max=150) as line:
        line.send(played.messages)
        line.drain()
        line.load()
        line.assert_sound(played.state)


@pytest.mark.parametrize("batches", [1, 2], ids=["same_batch", "later_batch"])
def test_s35_an_unchanged_large_column_keeps_its_value(batches: int, tmp_path: Path) -> None:
    """A placeholder keeps the stored value, whether it comes with the row's insert or after it was loaded."""
    kitchen = Kitchen()
    created = kitchen.ticket(1, notes="no onions " * 50)
    updated = kitchen.update(1, status="served")
    assert PLACEHOLDER in updated.body
    with site(tmp_path) as line:
        for sent in [[created, updated]] if batches == 1 else [[created], [updated]]:
            line.send(sent)
            line.drain()
            line.load()
        line.assert_sound(kitchen.state())


def test_s35_a_moved_row_keeps_its_large_column(tmp_path: Path) -> None:
    """The create half of a key change takes the placeholder's value from the old key, loaded a batch earlier."""
    kitchen = Kitchen()
    created = kitchen.ticket(1, notes="no onions " * 50)
    halves = kitchen.rekey(1, 2)
    assert PLACEHOLDER in halves[-1].body
    with site(tmp_path) as line:
        for message in (created, halves[-1], halves[0]):
            line.send([message])
            line.drain()
            line.load()
        line.assert_sound(kitchen.state())


def test_a_flattened_incremental_read_loses_to_an_overtaken_transaction(tmp_path: Path) -> None:
    """A change that commits after an incremental read wins over it, though its stream had seen later positions."""
    kitchen = Kitchen(Mode(form="flattened"))
    sent = [kitchen.ticket(1, status="open")]
    long = kitchen.database.begin()
    long.update("kitchen_ticket", [(1,)], {"status": "served"})
    sent += [kitchen.ticket(2), *kitchen.read(), *kitchen.commit(long)]
    with site(tmp_path) as line:
        line.send(sent)
        line.drain()
        line.load()
        line.assert_sound(kitchen.state())


def test_an_incremental_read_loses_to_an_overtaken_transaction(tmp_path: Path) -> None:
    """With a sequence the same history ends right: the last commit ranks above the position."""
    kitchen = Kitchen()
    sent = [kitchen.ticket(1, status="open")]
    long = kitchen.database.begin()
    long.update("kitchen_ticket", [(1,)], {"status": "served"})
    sent += [kitchen.ticket(2), *kitchen.read(), *kitchen.commit(long)]
    with site(tmp_path) as line:
        line.send(sent)
        line.drain()
        line.load()
        line.assert_sound(kitchen.state())


def test_s35_a_chain_of_moves_is_followed_anew_when_an_older_change_arrives(tmp_path: Path) -> None:
    """A row moved twice takes the large value of an update whose batch is loaded after both moves."""
    kitchen = Kitchen()
    created = kitchen.ticket(1, notes="no onions " * 50)
    updated = kitchen.update(1, notes="no peanuts " * 50)
    moved = [*kitchen.rekey(1, 2), *kitchen.rekey(2, 3)]
    with site(tmp_path) as line:
        batches = []
        for sent in ([created], [updated], moved):
            line.send(sent)
            line.drain()
            batches += [batch for batch in line.batches() if batch not in batches]
        for batch in (batches[0], batches[2], batches[1]):
            line.load([batch])
        line.assert_sound(kitchen.state())


def test_s35_a_moved_row_takes_nothing_from_a_later_life_of_its_old_key(tmp_path: Path) -> None:
    """A blocking snapshot ranks below all changes, yet what it reads of a key used again is no older life's value."""
    kitchen = Kitchen()
    kitchen.ticket(1, notes="no onions " * 50)
    sent = kitchen.read_whole(is_initial=True)
    sent += [*kitchen.rekey(1, 2), kitchen.ticket(1, notes="no peanuts " * 50)]
    sent += kitchen.read_whole(is_initial=False)
    with site(tmp_path) as line:
        line.send(sent)
        line.drain()
        line.load()
        line.assert_sound(kitchen.state())


def test_one_static_group_under_the_default_catalogue_is_a_group_mismatch(tmp_path: Path) -> None:
    """Rows in the stock sink's group are quarantined whole, not loaded and not a crash: the source needs `payload`."""
    played = Player(Mode(grouping="static"), 5).play(20)
    with site(tmp_path) as line:
        line.send(played.messages)
        line.drain()
        line.load()
        reasons = line.quarantine()
        assert line.failures == []
        assert set(reasons) == {Reason.GROUP_MISMATCH}
        assert line.counts[f"rejected.{Reason.GROUP_MISMATCH}"] >= reasons[Reason.GROUP_MISMATCH] > 0
        assert all(line.view(table) == [] for table in played.state)
