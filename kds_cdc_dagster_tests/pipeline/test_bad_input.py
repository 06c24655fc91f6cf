"""Bad input through the whole path: set aside with its reason and its bytes, counted, and nobody else held up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kds_cdc_dagster.core.change import Reason
from kds_cdc_dagster.journal import segment
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.ports import Message
from kds_cdc_dagster_tests.pipeline.kitchen import ACCOUNT, GROUP, Kitchen
from kds_cdc_dagster_tests.pipeline.site import Site, site
from kds_cdc_dagster_tests.synthetic.mode import Mode, catalogue_text

Spoil = Callable[[Message], Message]


def edited(change: Callable[[dict[str, Any]], object]) -> Spoil:
    """Spoils the envelope."""

    def spoil(message: Message) -> Message:
        document = json.loads(message.body)
        change(document)
        return replace(message, body=json.dumps(document, ensure_ascii=False))

    return spoil


SPOILED: dict[str, tuple[Spoil, Reason]] = {
    "garbage": (lambda m: replace(m, body="not json \u2728 {"), Reason.UNREADABLE),
    "truncated": (lambda m: replace(m, body=m.body[: len(m.body) // 2]), Reason.UNREADABLE),
    "array": (lambda m: replace(m, body=f"[{m.body}]"), Reason.UNREADABLE),
    "deep": (lambda m: replace(m, body="[" * 20_000), Reason.UNREADABLE),
    "unknown_table": (edited(lambda d: d["source"].update(table="loyalty_card")), Reason.UNKNOWN_TABLE),
    "unknown_source": (edited(lambda d: d["source"].update(name="elsewhere")), Reason.UNKNOWN_SOURCE),
    "missing_key": (edited(lambda d: d["after"].pop("ticket_id")), Reason.MISSING_KEY),
    "null_key": (edited(lambda d: d["after"].update(ticket_id=None)), Reason.MISSING_KEY),
    "no_coordinates": (edited(lambda d: d["source"].update(sequence=None, lsn=None)), Reason.MISSING_COORDINATES),
    "odd_coordinates": (edited(lambda d: d["source"].update(sequence="[1")), Reason.MISSING_COORDINATES),
    "other_group": (lambda m: replace(m, group_id=f"{ACCOUNT}:elsewhere"), Reason.GROUP_MISMATCH),
    "oversize": (edited(lambda d: d["after"].update(notes="x" * 70_000)), Reason.OVERSIZE),
    "operation": (edited(lambda d: d.update(op="x")), Reason.UNSUPPORTED_OPERATION),
    "no_account": (edited(lambda d: d["after"].update(account_id=None)), Reason.UNMAPPED_TENANT),
    "contract": (lambda m: replace(m, body='{"contract_version":"kds-cdc-mock/v9"}'), Reason.UNKNOWN_CONTRACT),
}


def taken_in(line: Site, messages: list[Message]) -> None:
    """Through the queue into the warehouse."""
    line.send(messages)
    line.drain()
    line.load()
    assert line.failures == []


def assert_set_aside(line: Site, bad: Message, reason: Reason) -> None:
    """One open row in quarantine, with the reason; the journal has the very bytes."""
    query = "SELECT reason, status, body, body_bytes, segment, segment_row, message_id FROM ops.quarantine"
    ((found, status, shown, size_bytes, place, row, message_id),) = line.rows(query)
    body = bad.body.encode()
    assert (found, status, size_bytes) == (reason, "open", len(body))
    assert body.startswith(shown.encode())
    kept = segment.read(line.parts.store, SegmentId.parse(place))
    assert kept is not None
    assert kept.rows.column("body")[row].as_py() == body
    assert kept.rows.column("message_id")[row].as_py() == message_id


@pytest.mark.parametrize("name", SPOILED)
def test_bad_messages_are_set_aside_alone(name: str, tmp_path: Path) -> None:
    """Between two good changes of its own stream, a bad one is quarantined whole and both others are loaded."""
    kitchen, (spoil, reason) = Kitchen(), SPOILED[name]
    first, spare, last = (kitchen.ticket(number) for number in (1, 2, 3))
    bad = spoil(spare)
    with site(tmp_path, body_bytes_max=60_000) as line:
        taken_in(line, [first, bad, last])
        assert_set_aside(line, bad, reason)
        assert line.counts == {"received": 3, "accepted": 2, f"rejected.{reason}": 1}
        state = kitchen.state()
        assert line.differences({"kitchen_ticket": [r for r in state["kitchen_ticket"] if r["ticket_id"] != 2]}) == []
        taken_in(line, [replace(bad, dedup_id="again")])
        assert_set_aside(line, bad, reason)


def test_an_unmapped_tenant_is_set_aside(tmp_path: Path) -> None:
    """With explicit tenants, an account that nobody mapped is quarantined; a mapped one flows on."""
    text = catalogue_text(Mode()).replace(
        "mode: identity", f"mode: explicit\n  accounts: {{{ACCOUNT}: {{tenant: north, company: acme}}}}", 1
    )
    kitchen = Kitchen()
    good = kitchen.ticket(1)
    bad = replace(kitchen.ticket(2, account_id="acct-999"), dedup_id="bad")
    with site(tmp_path, text) as line:
        taken_in(line, [good, bad])
        assert_set_aside(line, bad, Reason.UNMAPPED_TENANT)
        assert line.rows("SELECT ticket_id, _tenant, _company FROM curated.kitchen_ticket_rows") == [
            (1, "north", "acme")
        ]


def test_an_undecodable_value_is_set_aside_when_it_is_typed(tmp_path: Path) -> None:
    """A value that its column cannot hold is found after acceptance; the row goes to quarantine, the others load."""
    kitchen = Kitchen()
    messages = [kitchen.ticket(number) for number in (1, 2, 3)]
    bad = edited(lambda d: d["after"].update(guest_count=1 << 40))(messages[1])
    with site(tmp_path) as line:
        taken_in(line, [messages[0], bad, messages[2]])
        assert_set_aside(line, bad, Reason.UNDECODABLE_VALUE)
        assert line.counts == {"received": 3, "accepted": 3}
        assert sorted(row["ticket_id"] for row in line.view("kitchen_ticket")) == [1, 3]


def test_a_message_received_too_often_is_set_aside_unparsed(tmp_path: Path) -> None:
    """What may have killed workers is not looked at again; what stands behind it in its group flows on."""
    kitchen = Kitchen()
    bad, good = kitchen.ticket(1), kitchen.ticket(2)
    with site(tmp_path, receives_max=2) as line:
        line.send([bad])
        for _ in range(2):
            (delivery,) = line.parts.inbox.receive(max_messages=1, wait_seconds=0.0)
            line.parts.inbox.release([delivery.receipt])
        taken_in(line, [good])
        assert_set_aside(line, bad, Reason.TOO_MANY_RECEIVES)
        assert [row["ticket_id"] for row in line.view("kitchen_ticket")] == [2]
        assert delivery.group_id == GROUP
