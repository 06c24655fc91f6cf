"""The mock contract: every field mandatory, its own counter as coordinates."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kds_cdc_dagster.catalogue import load_catalogue
from kds_cdc_dagster.core import position
from kds_cdc_dagster.core.change import Change, Parsed, Phase, Reason, Rejection
from kds_cdc_dagster.core.contracts import Limits, Parser
from kds_cdc_dagster_tests.captures import delivery

STORE = "7c1f3b52-9f5e-4d7a-8a61-2f0c4de91b10"
GROUP = f"acct-001:{STORE}"
PARSER = Parser(load_catalogue(), Limits(5, 1 << 20, frozenset({"kds-cdc-mock/v1"})))


def message(**changes: Any) -> dict[str, Any]:
    """A good message, with changes."""
    row = {"ticket_id": 7, "account_id": "acct-001", "store_guid": STORE, "total": 12.5}
    fields = {
        "contract_version": "kds-cdc-mock/v1",
        "entity": "kitchen_ticket",
        "operation": "c",
        "primary_key": {"ticket_id": 7},
        "source_account_id": "acct-001",
        "store_guid": STORE,
        "is_deleted": False,
        "occurred_at": "2026-11-01T10:00:00.123456Z",
        "sequence": {"stream_key": GROUP, "stream_position": 42},
        "before": None,
        "after": row,
    }
    return fields | changes


def parse(document: object, group: str = GROUP) -> Parsed:
    """What the parser makes of `document`."""
    return PARSER.parse(delivery(json.dumps(document).encode(), group))


def change(document: object) -> Change:
    """The change in `document`."""
    found = parse(document)
    assert isinstance(found, Change), found
    return found


def test_a_mock_message_is_a_change_with_its_counter_as_position() -> None:
    """Sequence, tenant, key and time come from the message's own fields."""
    found = change(message())
    assert (found.source, found.entity, found.table) == ("mock", "kitchen_ticket", "kitchen_ticket")
    assert (found.primary_key, found.stream, found.tenant) == ("[7]", GROUP, "acct-001")
    assert found.stream_position == found.row_position == position.counter(42)
    assert found.occurred_at_ms == 1_793_527_200_123


@pytest.mark.parametrize("name", [name for name in message() if name != "contract_version"])
def test_every_field_is_mandatory(name: str) -> None:
    """A missing mandatory field never flows on."""
    document = message()
    del document[name]
    found = parse(document)
    assert isinstance(found, Rejection)
    assert found.reason == Reason.MISSING_FIELD
    assert name in found.detail


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"entity": "invoice"}, Reason.UNKNOWN_TABLE),
        ({"operation": "x"}, Reason.UNSUPPORTED_OPERATION),
        ({"operation": "t"}, Reason.UNSUPPORTED_OPERATION),
        ({"primary_key": {}}, Reason.MISSING_KEY),
        ({"primary_key": {"ticket_id": "seven"}}, Reason.UNDECODABLE_KEY),
        ({"after": None}, Reason.MISSING_FIELD),
        ({"occurred_at": "yesterday"}, Reason.MISSING_FIELD),
        ({"occurred_at": "2026-11-01T10:00:00"}, Reason.MISSING_FIELD),
        ({"source_account_id": ""}, Reason.MISSING_FIELD),
        ({"sequence": {"stream_key": GROUP}}, Reason.MISSING_COORDINATES),
        ({"sequence": {"stream_key": GROUP, "stream_position": -1}}, Reason.MISSING_COORDINATES),
        ({"sequence": {"stream_key": GROUP, "stream_position": True}}, Reason.MISSING_COORDINATES),
        ({"sequence": {"stream_key": f"acct-002:{STORE}", "stream_position": 1}}, Reason.GROUP_MISMATCH),
        ({"source_account_id": "acct-002"}, Reason.GROUP_MISMATCH),
    ],
)
def test_wrong_messages_have_their_own_reason(changes: dict[str, Any], reason: str) -> None:
    """Each broken rule has its reason code."""
    found = parse(message(**changes))
    assert isinstance(found, Rejection)
    assert found.reason == reason


def test_the_group_must_be_the_stream_key() -> None:
    """The hard contract with the publisher: one stream, one group."""
    found = parse(message(), "acct-001:elsewhere")
    assert isinstance(found, Rejection)
    assert found.reason == Reason.GROUP_MISMATCH


def test_s04_same_position_with_other_content_keeps_its_identity() -> None:
    """Identity is entity, key, stream and position: other content, or another operation, is suspicious."""
    first = change(message())
    for other in (message(after={"ticket_id": 7, "total": 13}), message(operation="u")):
        assert change(other).identity == first.identity
        assert change(other).content_hash != first.content_hash
    later = message(sequence={"stream_key": GROUP, "stream_position": 43})
    assert change(later).identity != first.identity


def test_reads_prove_nothing_and_a_delete_needs_no_old_row() -> None:
    """A read has no stream position and its content in its identity; a delete is known by its key."""
    read = change(message(operation="r"))
    assert (read.stream_position, read.phase, read.is_snapshot_start) == (None, Phase.SNAPSHOT, False)
    assert read.identity != change(message(operation="r", after={"ticket_id": 7})).identity
    gone = change(message(operation="d", after=None))
    assert (gone.primary_key, gone.tenant) == ("[7]", "acct-001")
