"""Simulated kitchens: deterministic, valid under the contract, with an oracle that a naive reader confirms."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from kds_cdc_dagster.catalogue import load_catalogue
from kds_cdc_dagster.core.change import Change, Delivery, Parsed, Rejection
from kds_cdc_dagster.core.contracts.parser import Limits, Parser
from kds_cdc_dagster.core.values import compile_decoder
from kds_cdc_dagster.ports import Message
from kds_cdc_dagster.traffic.kitchen import CLOSED_TICKETS_MAX, KEYS, OPEN_TICKETS_MAX, Row
from kds_cdc_dagster.traffic.simulate import Traffic

FAULTS = {"duplicates": True, "out_of_order": True, "poison": True, "gap": True}


def _parsed(messages: list[Message]) -> list[Parsed]:
    parser = Parser(load_catalogue(), Limits(5, 1 << 20, frozenset({"kds-cdc-mock/v1"})))
    return [
        parser.parse(Delivery(message.body.encode(), message.group_id, f"{number:020d}", "m", "r", 1, 0))
        for number, message in enumerate(messages)
    ]


class Reader:
    """The default policies in their simplest form: one stream position, one marker per identity, last writer wins."""

    def __init__(self) -> None:
        self.outcomes = Counter[str]()
        self.rows: dict[str, dict[tuple[Any, ...], Row]] = {entity: {} for entity in KEYS}
        self._last: dict[str, str] = {}
        self._hashes: dict[str, str] = {}

    def read(self, message: Message, parsed: Parsed) -> None:
        outcome = self._outcome(parsed)
        self.outcomes[outcome] += 1
        if outcome == "accepted":
            fields = json.loads(message.body)
            key = tuple(fields["primary_key"].values())
            self.rows[fields["entity"]].pop(key, None)
            if fields["operation"] != "d":
                self.rows[fields["entity"]][key] = fields["after"]

    def _outcome(self, parsed: Parsed) -> str:
        if isinstance(parsed, Rejection):
            return parsed.reason
        assert isinstance(parsed, Change)
        if parsed.identity in self._hashes:
            is_same = self._hashes[parsed.identity] == parsed.content_hash
            return "safe_duplicate" if is_same else "suspicious_duplicate"
        assert parsed.stream_position is not None
        if parsed.stream_position <= self._last.get(parsed.stream, ""):
            return "out_of_order"
        self._last[parsed.stream] = parsed.stream_position
        self._hashes[parsed.identity] = parsed.content_hash
        return "accepted"


@pytest.mark.parametrize("faults", [{}, FAULTS], ids=["clean", "faulty"])
def test_the_oracle_says_what_a_simple_reader_finds(faults: dict[str, bool]) -> None:
    """Rows and the count of every outcome, with every fault at work or none."""
    traffic = Traffic(3, 8, **faults)
    messages = traffic.take(6000)
    reader = Reader()
    for message, parsed in zip(messages, _parsed(messages), strict=True):
        reader.read(message, parsed)
    assert reader.rows == traffic.expected_rows()
    assert reader.outcomes == {name: count for name, count in traffic.counts.items() if name != "lost"}
    wanted = {"accepted"} | (
        {"safe_duplicate", "out_of_order", "unreadable", "unknown_table", "missing_key", "suspicious_duplicate", "lost"}
        if faults
        else set()
    )
    assert {name for name, count in traffic.counts.items() if count} == wanted


def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_stores_and_keys() -> None:
    """So that a failure can be repeated, and that two runs can share one pipeline."""
    first, again, other = (Traffic(seed, 4, **FAULTS) for seed in (5, 5, 6))
    assert first.take(500) + first.take(500) == again.take(1000)
    other.take(1000)
    for entity, rows in first.expected_rows().items():
        assert rows
        assert not rows.keys() & other.expected_rows()[entity].keys()


def test_faults_change_what_is_sent_but_not_what_the_kitchens_do() -> None:
    """A faulty run can be compared with a clean one of the same seed."""
    clean, faulty = Traffic(5, 4), Traffic(5, 4, duplicates=True)
    assert {message.body for message in faulty.take(800)} == {message.body for message in clean.take(800)}
    assert faulty.expected_rows() == clean.expected_rows()


def test_rows_have_the_columns_of_the_packaged_catalogue() -> None:
    """Every entity occurs, every row is whole, keys are the catalogue's."""
    catalogue = load_catalogue()
    traffic = Traffic(1, 5)
    traffic.take(2000)
    rows = traffic.expected_rows()
    assert rows.keys() == {entity.name for entity in catalogue.entities}
    for entity in catalogue.entities:
        assert KEYS[entity.name] == entity.primary_key
        assert {frozenset(row) for row in rows[entity.name].values()} == {frozenset(entity.column_by_name)}


def test_every_value_decodes_to_its_columns_type() -> None:
    """The natural JSON of the mock is what `core.values` reads."""
    catalogue = load_catalogue()
    (mock,) = (source for source in catalogue.sources if source.contract == "kds-cdc-mock/v1")
    traffic = Traffic(1, 5)
    traffic.take(1000)
    decoded = 0
    for entity in catalogue.entities:
        decoders = {column.name: compile_decoder(column, mock) for column in entity.columns}
        for row in traffic.expected_rows()[entity.name].values():
            for name, value in row.items():
                assert (decoders[name](value) is None) == (value is None)
                decoded += 1
    assert decoded > 5000


def test_positions_of_a_stream_are_dense_when_nothing_is_lost() -> None:
    """The mock's own counter is the proof of delivery."""
    positions: dict[str, list[int]] = {}
    for message in Traffic(1, 3).take(900):
        sequence = json.loads(message.body)["sequence"]
        assert sequence["stream_key"] == message.group_id
        positions.setdefault(message.group_id, []).append(sequence["stream_position"])
    assert len(positions) == 3
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in positions.values())


def test_keys_are_deleted_and_used_again() -> None:
    """The hard cases of a merge occur: delete, then create of the same key; soft deletes; many updates of a row."""
    ops: dict[tuple[Any, ...], list[str]] = {}
    soft = 0
    for message in Traffic(2, 2).take(4000):
        fields = json.loads(message.body)
        ops.setdefault((fields["entity"], *fields["primary_key"].values()), []).append(fields["operation"])
        soft += fields["operation"] == "u" and fields["is_deleted"]
    assert any(("d", "c") in pairwise(history) for history in ops.values())
    assert all(after == "c" for history in ops.values() for before, after in pairwise(history) if before == "d")
    assert soft > 0


def test_s17_one_store_can_be_hot() -> None:
    """Its share is what was asked for; the others share the rest."""
    groups = Counter(message.group_id for message in Traffic(1, 10, hot=0.6).take(3000))
    (_, hottest), (_, second) = groups.most_common(2)
    assert hottest / 3000 == pytest.approx(0.6, abs=0.05)
    assert second / 3000 < 0.1
    assert len(groups) == 10


def test_virtual_time_gives_the_rate() -> None:
    """Calls may come at any moment; nothing is sent twice for the same time."""
    traffic = Traffic(1, 2, rate=40)
    assert [len(traffic.until(seconds)) for seconds in (0.25, 0.25, 1.0, 0.5, 10.0)] == [10, 0, 30, 0, 360]


def test_a_kitchen_that_runs_long_stays_small() -> None:
    """Old tickets are purged with all their rows: the oracle and the curated tables are bounded."""
    traffic = Traffic(1, 1)
    traffic.take(20_000)
    rows = traffic.expected_rows()
    assert len(rows["kitchen_ticket"]) <= CLOSED_TICKETS_MAX + OPEN_TICKETS_MAX + 1
    assert len(rows["kitchen_ticket_item"]) <= 4 * len(rows["kitchen_ticket"])


@pytest.mark.parametrize("wrong", [{"stores": 0}, {"rate": 0}, {"hot": 1.5}])
def test_impossible_wishes_are_refused(wrong: dict[str, float]) -> None:
    """At the start, with the rule."""
    with pytest.raises(ValueError, match="needs 1 to"):
        Traffic(1, **wrong)
