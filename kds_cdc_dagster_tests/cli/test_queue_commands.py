"""`kds-cdc dead-letters`, `status` and `streams` on an embedded pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kds_cdc_dagster.cli import main
from kds_cdc_dagster.ports import Message
from kds_cdc_dagster.settings import read_settings
from kds_cdc_dagster.wiring import Pipeline

SECRET = "a body"
DEAD_AFTER = 2


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline whose queue moves messages away after two receives, as the command line finds it."""
    monkeypatch.setenv("KDS_CDC_HOME", str(tmp_path))
    monkeypatch.setenv("KDS_CDC_LOCAL_DEAD_LETTER_AFTER", str(DEAD_AFTER))
    monkeypatch.setenv("KDS_CDC_RECEIVES_MAX", "1")
    return Pipeline(read_settings())


def told(*arguments: str) -> str:
    """What the command prints."""
    found = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


def document(*arguments: str) -> Any:
    """Its machine-readable form."""
    return json.loads(told(*arguments, "--json"))


def wear_out(parts: Pipeline, *groups: str) -> None:
    """Two messages of each group are received too often."""
    parts.outbound.send([Message(SECRET, group, f"{group}-{n}") for group in groups for n in range(2)])
    for _ in range((DEAD_AFTER + 1) * len(groups)):
        parts.inbox.release([one.receipt for one in parts.inbox.receive(max_messages=10, wait_seconds=0)])
    assert parts.inbox.depth().dead_letter == 2 * len(groups)


def test_dead_letters_are_listed_without_their_bodies(parts: Pipeline) -> None:
    """Group, receives, age and message id; status says how many there are and where to look."""
    assert told("dead-letters").strip() == "no dead letters"
    wear_out(parts, "a:s", "a:t")
    found = document("dead-letters")
    assert [one["group_id"] for one in found] == ["a:s", "a:s", "a:t", "a:t"]
    assert {one["receive_count"] for one in found} == {DEAD_AFTER}
    assert len({one["message_id"] for one in found}) == 4
    assert all(0 <= one["age_seconds"] < 60 for one in found)
    lines = told("dead-letters", "--limit", "3")
    assert (len(lines.splitlines()), SECRET in lines, SECRET in str(found)) == (3, False, False)
    assert "dead_letter 4" in told("status")
    assert "kds-cdc dead-letters" in told("status")


def test_dead_letters_go_back_in_order_up_to_the_limit(parts: Pipeline) -> None:
    """They are received again as if for the first time; the others stay."""
    wear_out(parts, "a:s")
    parts.outbound.send([Message("later", "a:s", "later")])
    assert document("dead-letters", "--redrive", "--limit", "1") == {"redriven": 1}
    assert told("dead-letters", "--redrive").strip() == "1 dead letters are back in the queue"
    found = parts.inbox.receive(max_messages=10, wait_seconds=0)
    assert [(one.body.decode(), one.receive_count) for one in found] == [("later", 1), (SECRET, 1), (SECRET, 1)]
    assert document("dead-letters") == []


def test_status_names_locked_groups(parts: Pipeline) -> None:
    """Which group waits for which number of messages in flight, and for how long at most."""
    assert document("status")["queue"]["locked_groups"] == []
    parts.outbound.send([Message(SECRET, "a:s", str(n)) for n in range(12)])
    parts.inbox.receive(max_messages=10, wait_seconds=0)
    (locked,) = document("status")["queue"]["locked_groups"]
    assert (locked["group"], locked["in_flight"], locked["waiting"]) == ("a:s", 10, 2)
    assert 0 < locked["unlocked_in_seconds"] <= 60
    assert "locked a:s: 10 in flight, 2 wait" in told("status")


def test_streams_are_told_as_a_document(parts: Pipeline) -> None:
    """One entry per stream; a held one says why."""
    assert document("streams") == []
    told("park", "a:s", "--source", "mock", "--reason", "looking at it")
    (found,) = document("streams", "--held")
    assert (found["source"], found["stream"], found["epoch"], found["parked_segments"]) == ("mock", "a:s", 0, 0)
    assert found["hold"].startswith("looking at it")
    assert "HELD: looking at it" in told("streams")
