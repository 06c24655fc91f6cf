"""Cut, order and repetition of batches change nothing: the same traffic always ends in the same rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from kds_cdc_dagster.load.loader import Loader
from kds_cdc_dagster_tests.pipeline.site import Site, interleaved, site
from kds_cdc_dagster_tests.synthetic.mode import Mode, catalogue_text
from kds_cdc_dagster_tests.synthetic.player import Capture, Player

MODES = (
    Mode(),
    Mode(form="flattened"),
    Mode(grouping="static"),
    Mode(connector="mysql", times="adaptive_time_microseconds", has_gtid=True),
)
SMALL = {"batch_records_max": 30, "batch_records_backlog_max": 30, "segment_records_max": 15}
"""Several segments a batch and several batches."""
each_mode = pytest.mark.parametrize("mode", MODES, ids=str)


def played(mode: Mode, seed: int) -> Capture:
    """A life whose messages reach the queue with groups interleaved anew."""
    capture = Player(mode, seed).play(26)
    return replace(capture, messages=interleaved(capture.messages, Random(seed)))


def drained(line: Site, capture: Capture) -> list[str]:
    """Send and drain; returns the sealed batches, which must be several."""
    line.send(capture.messages)
    line.drain()
    batches = line.batches()
    assert len(batches) > 1
    return batches


@each_mode
def test_batches_may_be_loaded_in_any_order(mode: Mode, tmp_path: Path) -> None:
    """Runs of batches overtake each other: the last batch first, the others shuffled."""
    capture = played(mode, 11)
    with site(tmp_path, catalogue_text(mode), **SMALL) as line:
        first, *others, last = drained(line, capture)
        Random(11).shuffle(others)
        line.load([last, *others, first])
        line.assert_sound(capture.state)


@each_mode
def test_everything_sent_and_loaded_twice_changes_nothing(mode: Mode, tmp_path: Path) -> None:
    """All messages sent again are safe duplicates; all batches loaded again find nothing to do."""
    capture = played(mode, 12)
    with site(tmp_path, catalogue_text(mode), **SMALL) as line:
        batches = drained(line, capture)
        accepted = line.counts["accepted"]
        line.send([replace(message, dedup_id=f"again-{message.dedup_id}") for message in capture.messages])
        line.drain()
        assert line.counts["accepted"] == accepted
        line.load()
        line.load(batches)
        line.assert_sound(capture.state)


@each_mode
def test_replays_with_other_code_change_nothing(mode: Mode, tmp_path: Path) -> None:
    """Batches loaded again by another code version, out of order, apply equal row orders once more."""
    capture = played(mode, 13)
    with site(tmp_path, catalogue_text(mode), **SMALL) as line:
        batches = drained(line, capture)
        line.load()
        line.assert_sound(capture.state)
        parts = line.parts
        repaired = Loader(parts.warehouse, parts.store, parts.catalogue, parts.schemas)
        repaired._version = "repaired"
        parts.__dict__["loader"] = repaired
        line.load(Random(13).sample(batches, len(batches)))
        line.assert_sound(capture.state)


@each_mode
def test_two_workers_share_the_groups(mode: Mode, tmp_path: Path) -> None:
    """Two workers that take rounds in turn put a stream's changes into two logs; the rows are the same."""
    capture = played(mode, 14)
    with site(tmp_path, catalogue_text(mode), **SMALL) as line:
        line.send(capture.messages)
        line.drain_with("intake_1", "intake_2")
        assert len({line.manifest(batch).claim for batch in line.batches()}) == 2
        line.load(sorted(line.batches(), key=lambda batch: batch[::-1]))
        line.assert_sound(capture.state)
