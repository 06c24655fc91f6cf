"""Captured events go to the queue whole, in order, each into the group that the intake expects."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import yaml

from kds_cdc_dagster.adapters.memory_inbox import MemoryQueue
from kds_cdc_dagster.catalogue import load_catalogue, packaged_text, parse_catalogue
from kds_cdc_dagster.core.change import Change, Delivery
from kds_cdc_dagster.core.contracts.parser import Limits, Parser
from kds_cdc_dagster.ports import Message
from kds_cdc_dagster.traffic.enqueue import EnqueueReport, UnreadableLine, enqueue_lines, message_of
from kds_cdc_dagster.traffic.groups import Groups
from kds_cdc_dagster_tests.captures import CAPTURES, capture
from kds_cdc_dagster_tests.contracts.clocks import ManualClock

STORE = "986e86cb-0ab8-4b67-a26b-7f62b1852f27"
GROUPS = Groups(load_catalogue())


class Sent:
    """Collects what is published."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def send(self, messages: list[Message]) -> int:
        self.messages += messages
        return len(messages)


def _line(body: object, destination: str = "kdsprod.kds.kitchen_ticket") -> str:
    return json.dumps({"destination": destination, "key": "{}", "value": json.dumps(body)})


def _envelope(op: str, **images: object) -> dict[str, object]:
    source = {
        "connector": "postgresql",
        "name": "kdsprod",
        "db": "postgres",
        "schema": "kds",
        "table": "kitchen_ticket",
    }
    return {"before": None, "after": None, **images, "op": op, "source": {**source, "lsn": 7}}


def _group(body: object, destination: str = "kdsprod.kds.kitchen_ticket") -> str:
    return GROUPS.of(json.dumps(body), destination)


ROW = {"ticket_id": 7, "account_id": "acct-001", "store_guid": STORE, "total": "BPs="}
KEY_ONLY = {"ticket_id": 7, "account_id": "", "store_guid": "", "total": "AA=="}


@pytest.mark.parametrize("name", CAPTURES)
def test_s34_every_captured_event_is_published_as_the_intake_wants_it(name: str) -> None:
    """Bodies exact and in order, no rejection by the parser (group mismatch above all), tombstones counted."""
    values = [None if body is None else body.decode() for body in capture(name).bodies]
    lines = [json.dumps({"destination": "kdsprod.kds.t", "key": "{}", "value": value}) for value in values]
    sent = Sent()
    report = enqueue_lines(lines, sent, catalogue=load_catalogue())
    bodies = [value for value in values if value is not None]
    assert [message.body for message in sent.messages] == bodies
    assert report == EnqueueReport(sent=len(bodies), skipped_null=len(values) - len(bodies))
    parser = Parser(load_catalogue(), Limits(5, 1 << 20, frozenset({"debezium"})))
    changes = Counter[str]()
    for number, message in enumerate(sent.messages):
        parsed = parser.parse(Delivery(message.body.encode(), message.group_id, f"{number:020d}", "m", "r", 1, 0))
        changes[type(parsed).__name__] += 1
        if isinstance(parsed, Change) and parsed.account and parsed.store:
            assert message.group_id == f"{parsed.account}:{parsed.store}"
    assert changes["Rejection"] == 0
    assert len({message.group_id for message in sent.messages}) > 10


def test_the_group_is_account_and_store_of_the_row_image_in_every_form() -> None:
    """Bare, wrapped, flattened, deletes with a full old row, and the mock."""
    forms = [
        _envelope("u", before=ROW, after=ROW),
        _envelope("d", before=ROW),
        {"schema": {"type": "struct"}, "payload": _envelope("c", after=ROW)},
        {**ROW, "__op": "u", "__table": "kitchen_ticket", "__lsn": 7, "__deleted": "false"},
        {"contract_version": "kds-cdc-mock/v1", "source_account_id": "acct-001", "store_guid": STORE},
    ]
    assert {_group(form) for form in forms} == {f"acct-001:{STORE}"}


def test_a_row_that_does_not_carry_its_store_goes_to_its_table() -> None:
    """Key-only deletes, truncates, and rows of unknown tables without the usual columns."""
    forms = [
        _envelope("d", before=KEY_ONLY),
        _envelope("t"),
        {**KEY_ONLY, "__op": "d", "__table": "kitchen_ticket", "__lsn": 7, "__deleted": "true"},
    ]
    assert {_group(form) for form in forms} == {"kdsprod:kitchen_ticket"}


def test_columns_are_named_by_the_catalogue_where_it_knows_the_table() -> None:
    """Another deployment calls its store column otherwise."""
    document = yaml.safe_load(packaged_text())
    (ticket,) = (entity for entity in document["entities"] if entity["name"] == "kitchen_ticket")
    ticket["store"] = "channel"
    groups = Groups(parse_catalogue(yaml.safe_dump(document)))
    row = {**ROW, "channel": "dine-in"}
    assert groups.of(json.dumps(_envelope("c", after=row))) == "acct-001:dine-in"


def test_an_unknown_table_uses_the_usual_column_names() -> None:
    """It will be quarantined, but in its own stream."""
    body = _envelope("c", after=ROW)
    body["source"] = {"connector": "postgresql", "name": "kdsprod", "db": "d", "schema": "kds", "table": "loyalty"}
    assert _group(body) == f"acct-001:{STORE}"
    body["after"] = {"id": 1}
    assert _group(body) == "kdsprod:loyalty"


@pytest.mark.parametrize(
    "text",
    [
        "not json {",
        "[[[[" * 50_000,
        '{"ts_ms":1}',
        '{"op":"u","source":7}',
        '{"op":["u"],"source":{"name":[]}}',
        "null",
        "7",
    ],
)
def test_what_holds_no_row_goes_to_its_destination(text: str) -> None:
    """Garbage, heartbeats and half envelopes are published, never lost and never an error here."""
    assert GROUPS.of(text, "__debezium-heartbeat.kdsprod") == "__debezium-heartbeat.kdsprod"
    assert GROUPS.of(text, "") == "control"


def test_a_group_that_no_queue_takes_is_not_chosen() -> None:
    """An account with a space, or one that is too long, falls back to the table."""
    for account in ("acct 001", "x" * 120, "ünï"):
        assert _group(_envelope("c", after={**ROW, "account_id": account})) == "kdsprod:kitchen_ticket"


def test_ready_messages_and_a_fixed_group_are_sent_as_told() -> None:
    """Body and group form; `group` wins over everything; a given deduplication id is kept."""
    line = json.dumps({"body": "text é", "group_id": "g", "dedup_id": "d1"})
    assert message_of(line, groups=GROUPS, dedup_id="new") == Message("text é", "g", "d1")
    assert message_of(line, groups=GROUPS, group="all", dedup_id="new") == Message("text é", "all", "d1")
    fixed = message_of(_line(_envelope("c", after=ROW)), groups=GROUPS, group="cdc-group", dedup_id="new")
    assert fixed is not None
    assert (fixed.group_id, fixed.dedup_id) == ("cdc-group", "new")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "no JSON object"),
        ('{"key":"k"}', "`value` is missing"),
        ('{"value":{"a":1}}', "`value` is missing or no text"),
        ('{"body":"b"}', "`group_id` is missing"),
        ('{"body":"b","group_id":"a b"}', "the group id"),
        ('{"value":""}', "the body is empty"),
        ('{"value":"\\u0000"}', "character that SQS refuses"),
        ('{"value":"\\ud800"}', "character that SQS refuses"),
    ],
)
def test_a_line_that_is_no_message_says_why(line: str, reason: str) -> None:
    """And shows nothing of its content."""
    with pytest.raises(UnreadableLine, match=reason):
        message_of(line, groups=GROUPS, dedup_id="d")


def test_bad_lines_are_named_by_number_and_stop_nothing() -> None:
    """A user's error: reported, left out, the rest goes on; repeats are counted as suppressed."""
    clock = ManualClock()
    queue = MemoryQueue(clock=clock)
    repeated = json.dumps({"body": "a", "group_id": "g", "dedup_id": "d"})
    lines = [repeated, "oops", "", '{"destination":"t","value":null}', repeated, '{"destination":"t","value":"hello"}']
    told: list[EnqueueReport] = []
    report = enqueue_lines(lines, queue, catalogue=load_catalogue(), on_progress=told.append)
    assert report == EnqueueReport(sent=2, skipped_null=1, suppressed=1, unreadable_lines=((2, "not JSON"),))
    assert told[-1] == report
    assert [d.group_id for d in queue.receive(max_messages=10, wait_seconds=0)] == ["g", "t"]
