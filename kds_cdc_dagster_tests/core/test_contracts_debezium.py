"""The Debezium contract: routing, streams, tenants, keys, coordinates."""

from __future__ import annotations

import json

import pytest

from kds_cdc_dagster.core import position
from kds_cdc_dagster.core.change import Change, Control, Phase, Rank, Reason, Rejection
from kds_cdc_dagster_tests.captures import CAPTURES, capture, delivery
from kds_cdc_dagster_tests.core.debezium_messages import GROUP, PARSER, STORE, body, change, parser, rejection


@pytest.mark.parametrize("name", CAPTURES)
def test_captures_parse_without_a_rejection(name: str) -> None:
    """Everything a real engine sent is a change or a control message; each change has its own identity."""
    found = [PARSER.parse(delivery(b, number=n + 1)) for n, b in enumerate(capture(name).bodies) if b is not None]
    assert not [f for f in found if isinstance(f, Rejection)]
    identities = [f.identity for f in found if isinstance(f, Change)]
    assert len(set(identities)) == len(identities) > 300
    assert {f.kind for f in found if isinstance(f, Control)} <= {"schema_change"}


@pytest.mark.parametrize("name", CAPTURES)
def test_captures_stream_in_order(name: str) -> None:
    """Delivered in order, stream positions never fall: what the decision calls out of order is that indeed."""
    found = [PARSER.parse(delivery(b, number=n + 1)) for n, b in enumerate(capture(name).bodies) if b is not None]
    orders = [f.stream_position for f in found if isinstance(f, Change) and f.stream_position]
    assert orders == sorted(orders)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (body(name="elsewhere"), Reason.UNKNOWN_SOURCE),
        (body(connector="sqlserver"), Reason.UNKNOWN_SOURCE),
        (body(table="invoice"), Reason.UNKNOWN_TABLE),
        (body(schema="other"), Reason.UNKNOWN_TABLE),
        (body(connector=None), Reason.MISSING_FIELD),
        (body(db=None), Reason.MISSING_FIELD),
        (body(schema=""), Reason.MISSING_FIELD),
        (body(table=None), Reason.MISSING_FIELD),
        (body("x"), Reason.UNSUPPORTED_OPERATION),
        (body(sequence=None), Reason.MISSING_COORDINATES),
        (body(sequence=None, lsn=None), Reason.MISSING_COORDINATES),
        (body(sequence='["a","b"]', lsn=None), Reason.MISSING_COORDINATES),
        (body(sequence='["1"]'), Reason.MISSING_COORDINATES),
        (body(lsn=-3), Reason.MISSING_COORDINATES),
        (body("r", sequence=None, lsn=None), Reason.MISSING_COORDINATES),
        (body(image={"ticket_id": None}), Reason.MISSING_KEY),
        (body(image={"ticket_id": "x"}), Reason.UNDECODABLE_KEY),
        (body(image={"ticket_id": 1 << 63}), Reason.UNDECODABLE_KEY),
        (body(image={"account_id": "acct-002"}), Reason.GROUP_MISMATCH),
        (body() | {"after": None}, Reason.MISSING_FIELD),
        (body("d") | {"before": None}, Reason.MISSING_KEY),
        (body(image={"account_id": ""}), Reason.UNMAPPED_TENANT),
    ],
)
def test_what_must_not_flow_on_is_rejected_with_its_own_reason(document: object, reason: str) -> None:
    """Source, table, operation, coordinates, key, stream and tenant each have a reason code."""
    assert rejection(document).reason == reason


def test_a_rejected_change_is_named_as_far_as_it_is_known() -> None:
    """A mismatch is found last, so source, entity, stream, identity and hash are there to find it again."""
    found = rejection(body(), "acct-001:elsewhere")
    known = change(body())
    assert (found.source, found.entity, found.stream) == ("kdsprod-pg", "kitchen_ticket", "acct-001:elsewhere")
    assert (found.identity, found.content_hash) == (known.identity, known.content_hash)
    assert rejection(body(image={"ticket_id": None})).entity == "kitchen_ticket"


def test_the_stream_is_the_group_and_a_uuids_case_does_not_matter() -> None:
    """A publisher that writes the store in capitals is not wrong."""
    group = f"acct-001:{STORE.upper()}"
    assert change(body(), group).stream == group
    assert change(body(image={"store_guid": STORE.upper()})).store == STORE


def test_rows_without_account_or_store_belong_to_the_group_they_came_in() -> None:
    """Key-only deletes and truncates carry neither: the check does not apply, the tenant is open."""
    fillers = {"account_id": "", "store_guid": "", "status": ""}
    for document in (body("d", image=fillers), body("t")):
        found = change(document, "kdsprod:kitchen_ticket")
        assert (found.stream, found.account, found.tenant) == ("kdsprod:kitchen_ticket", None, None)
    full = change(body("d"))
    assert (full.account, full.store, full.tenant) == ("acct-001", STORE, "acct-001")
    assert rejection(body("d"), "kdsprod:kitchen_ticket").reason == Reason.GROUP_MISMATCH


@pytest.mark.parametrize("key", ["[account_id, store_guid]", "[account, store]"])
def test_a_payload_rule_makes_the_stream_of_the_row(key: str) -> None:
    """One static group for all: the row names its stream; one that cannot stays in the group."""
    by = parser(("stream: {from: group}                  #", f"stream: {{from: payload, key: {key}}}  #"))
    assert change(body(image={"store_guid": STORE.upper()}), "cdc-group", by).stream == GROUP
    assert change(body("d", image={"account_id": "", "store_guid": ""}), "cdc-group", by).stream == "cdc-group"


def test_tenants_come_from_the_explicit_mapping() -> None:
    """An account that nobody mapped is quarantined; a mapped one brings tenant and company."""
    by = parser(
        ("tenants: {mode: identity}", "tenants: {mode: explicit, accounts: {acct-001: {tenant: north, company: acme}}}")
    )
    found = change(body(), by=by)
    assert (found.tenant, found.company) == ("north", "acme")
    other = body(image={"account_id": "acct-009"})
    assert rejection(other, f"acct-009:{STORE}", by).reason == Reason.UNMAPPED_TENANT


def test_a_refused_truncate_is_quarantined() -> None:
    """The source's policy decides whether a truncate may empty a table."""
    by = parser(("truncate: apply", "truncate: quarantine"))
    assert rejection(body("t"), by=by).reason == Reason.TRUNCATE_REFUSED
    assert change(body("t")).primary_key == ""


def test_dbz07_phases_rank_a_late_read_below_the_stream() -> None:
    """The row order of a snapshot read is lower than that of any streaming change, whatever its numbers say."""
    late, early = change(body("r", snapshot="last", lsn=6500, sequence='[null,"6500"]')), change(body(lsn=100))

    def order(found: Change) -> str:
        return position.row_order(1, found.phase, found.row_position or "", found.rank, "1")

    assert order(late) < order(early)
    assert not late.is_snapshot_start, "only the first row of a snapshot may open a new lineage"


@pytest.mark.parametrize("mark", ["true", "first", "first_in_data_collection", "last_in_data_collection", "last", True])
def test_every_mark_but_incremental_is_a_snapshot(mark: object) -> None:
    """Reads rank in phase 0, the first starts a lineage; the incremental mark alone ranks a read as streaming."""
    read = change(body("r", snapshot=mark))
    assert (read.phase, read.is_snapshot_start) == (Phase.SNAPSHOT, mark == "first")
    found = change(body("r", snapshot="incremental", lsn=None))
    assert (found.phase, found.rank, found.is_snapshot_start) == (Phase.STREAMING, Rank.INCREMENTAL, False)
    assert found.row_position == position.postgresql(100, 200)


def test_postgresql_orders_by_last_commit_then_lsn() -> None:
    """A long transaction's lsns are older than those of the transactions committed before it."""
    null, small, long = (
        change(body(sequence=json.dumps([commit, str(lsn)]), lsn=lsn)).stream_position or ""
        for commit, lsn in ((None, 900), ("0", 900), ("950", 700))
    )
    assert null < small < long


def test_dbz13_unsigned_keys_are_one_key_in_both_modes() -> None:
    """-4 in long mode and its precise base64 are the same row; undeclared and too big is refused."""
    mysql = {"connector": "mysql", "db": "kds", "schema": None, "file": "bin.9", "pos": 4, "row": 0, "server_id": 1}
    by = parser(
        ("- {name: ticket_id, type: bigint, source_type", '- {name: ticket_id, type: "decimal(20,0)", source_type')
    )
    wrapped, precise = (
        change(body(image={"ticket_id": key}, **mysql), by=by).primary_key for key in (-4, "AP/////////8")
    )
    assert wrapped == precise == "[18446744073709551612]"
    assert rejection(body(image={"ticket_id": -4}, **mysql)).reason == Reason.UNDECODABLE_KEY


def test_dbz14_nul_in_a_key_is_refused() -> None:
    """Two keys that differ only behind a NUL must not become one row."""
    document = body(image={"store_guid": STORE, "station_id": 1, "event_id": f"{STORE}\0"}, table="bump_event")
    found = rejection(document)
    assert found.reason == Reason.UNDECODABLE_KEY
    assert "event_id" in found.detail


def test_dbz16_identity_knows_rows_that_share_coordinates() -> None:
    """Rows of one statement, rows of one snapshot, and one row changed three times are all different."""
    multi = {change(body("c", image={"ticket_id": n})).identity for n in (20, 21)}
    snapshot = {change(body("r", image={"ticket_id": n}, snapshot="true")).identity for n in range(5)}
    again = {change(body("r", image={"status": s}, snapshot="true")).identity for s in ("NEW", "FIRED")}
    assert (len(multi), len(snapshot), len(again)) == (2, 5, 2)


def test_dbz09_binlog_files_and_offsets_compare_as_numbers() -> None:
    """bin.9 before bin.10, and no offset is too big for its place."""
    places = [("bin.9", 88000, 0), ("bin.10", 4, 0), ("bin.999999", 4294960000, 2), ("bin.1000000", 4, 0)]
    orders = [position.binlog(*place) for place in places]
    assert orders == sorted(orders)
    assert (
        rejection(body(connector="mysql", db="kds", file="binlog", pos=4, row=0)).reason == Reason.MISSING_COORDINATES
    )
