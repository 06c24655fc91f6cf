"""What is let in: gates, garbage, empty bodies, and the contracts allowed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kds_cdc_dagster.catalogue import load_catalogue
from kds_cdc_dagster.core.change import Change, Control, Reason, Rejection
from kds_cdc_dagster.core.contracts import Limits, Parser
from kds_cdc_dagster_tests.captures import CAPTURES, capture, delivery, samples

PARSER = Parser(load_catalogue(), Limits(5, 20_000, frozenset({"debezium", "kds-cdc-mock/v1"})))


def reason(body: bytes, **changes: Any) -> str:
    """Reason of the rejection of `body`, whose detail repeats none of it."""
    found = PARSER.parse(delivery(body, changes.pop("group_id", "g"), **changes))
    assert isinstance(found, Rejection), found
    assert "secret" not in found.detail
    return found.reason


@pytest.mark.parametrize("body", [b"", b" ", b"\n\t", b'""', b'" "'])
def test_dbz05_empty_bodies_are_tombstones(body: bytes) -> None:
    """Nothing to delete by, nothing wrong: counted and acknowledged, 200 in a row as one."""
    assert {PARSER.parse(delivery(body, "g", n)).kind for n in range(200)} == {"tombstone"}  # type: ignore[union-attr]


def test_dbz05_null_is_control_and_an_empty_object_is_malformed() -> None:
    """A JSON null is a delete whose row was dropped; {} is nobody's message."""
    assert PARSER.parse(delivery(b"null", "g")) == Control("null")
    assert reason(b"{}") == Reason.UNREADABLE


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"ts_ms":1718900000456}', "heartbeat"),
        (
            b'{"op":"m","ts_ms":1,"source":{"connector":"postgresql","name":"kdsprod","schema":"","table":"","lsn":7}}',
            "logical_message",
        ),
        (
            b'{"source":{"connector":"mysql","name":"kdsprod"},"databaseName":"kds","ddl":"DROP TABLE t"}',
            "schema_change",
        ),
        (b'{"status":"BEGIN","id":"900:5000","event_count":null}', "transaction"),
        (b'{"status":"END","id":"900:5000","event_count":3,"data_collections":[]}', "transaction"),
    ],
)
def test_dbz11_messages_between_the_rows_never_reach_a_table(body: bytes, kind: str) -> None:
    """Heartbeats of both kinds, DDL and transaction markers are control messages."""
    assert PARSER.parse(delivery(body, "g")) == Control(kind)


GARBAGE = [
    b"{",
    b"[" * 10_000,
    b'{"op":"c","source":' * 2_000,
    b'{"a":"\xff"}',
    rb'{"op":"c","source":{"connector":"\ud800"}}',
    b"NaN",
    b"[B@1f2e3d",
    b'"secret"',
    b"17",
    b'{"op":1,"source":{},"after":{}}',
    b'{"op":"c","source":null,"after":{"secret":1}}',
    b'{"source":{"connector":"postgresql"},"after":{}}',
    b'{"specversion":"1.0","data":{"secret":1}}',
    b'{"schema":{"type":"struct"},"payload":[1]}',
    b'{"contract_version":"kds-cdc-mock/v1"}',
    b'{"a":' + b"9" * 10_000 + b"}",
]


@pytest.mark.parametrize("body", GARBAGE)
def test_garbage_is_a_rejection_with_a_reason_and_no_row_data(body: bytes) -> None:
    """Nothing that arrives may raise, and no detail repeats what was in it."""
    assert reason(body) in set(Reason)


def test_duplicate_keys_do_not_raise() -> None:
    """The last value of a repeated key counts, as in every JSON reader on the way."""
    body = samples()["postgresql/02-insert"].replace(b'"op"', b'"op":"d","op"')
    assert reason(body) == Reason.UNKNOWN_SOURCE


def test_broken_messages_are_refused_unparsed() -> None:
    """Too many receives, no FIFO metadata, oversize: each with its own reason."""
    body = capture("pg-envelope").bodies[0] or b""
    assert reason(body, receive_count=6) == Reason.TOO_MANY_RECEIVES
    assert reason(b"{", receive_count=6) == Reason.TOO_MANY_RECEIVES
    assert reason(body, sequence_number="") == Reason.MISSING_QUEUE_METADATA
    assert reason(body, sequence_number="12a") == Reason.MISSING_QUEUE_METADATA
    assert isinstance(PARSER.parse(delivery(body, receive_count=5)), Change)
    ungrouped = PARSER.parse(msgspec.structs.replace(delivery(body), group_id=""))
    assert isinstance(ungrouped, Rejection)
    assert ungrouped.reason == Reason.MISSING_QUEUE_METADATA
    assert reason(b'{"pad":"' + b"x" * 20_000 + b'"}') == Reason.OVERSIZE


def test_only_allowed_contracts_are_let_in() -> None:
    """A pipeline that takes the mock alone refuses Debezium rows, and the other way round."""
    only_mock = Parser(load_catalogue(), Limits(5, 1 << 20, frozenset({"kds-cdc-mock/v1"})))
    found = only_mock.parse(delivery(capture("pg-envelope").bodies[0] or b""))
    assert isinstance(found, Rejection)
    assert found.reason == Reason.UNKNOWN_CONTRACT
    for version in ("kds-cdc-mock/v2", 1, None):
        assert reason(json.dumps({"contract_version": version}).encode()) == Reason.UNKNOWN_CONTRACT


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_mutilated_body_ever_raises(data: st.DataObject) -> None:
    """Cut, doubled or with bytes changed: the parser answers with one of its three answers."""
    name = data.draw(st.sampled_from(CAPTURES))
    body = bytearray(data.draw(st.sampled_from([b for b in capture(name).bodies if b and len(b) < 9_000])))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=3))
        if not body:
            break
    assert isinstance(PARSER.parse(delivery(bytes(body), "acct-000:x")), Change | Control | Rejection)
