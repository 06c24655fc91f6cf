"""Typed rows: what the recorded changes say, in the warehouse's types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kds_cdc_dagster.catalogue import load_catalogue, packaged_text, parse_catalogue
from kds_cdc_dagster.core.catalogue import Catalogue, Entity
from kds_cdc_dagster.core.change import Change, Reason
from kds_cdc_dagster.core.contracts import Limits, Parser
from kds_cdc_dagster.load.typed import Typed, typed, typed_schema
from kds_cdc_dagster_tests.captures import CAPTURES, capture, delivery
from kds_cdc_dagster_tests.core.debezium_messages import GROUP, STORE, body
from kds_cdc_dagster_tests.load.recorded import of_entity, records

CATALOGUE = load_catalogue()
LIMITS = Limits(5, 1 << 20, frozenset({"debezium", "kds-cdc-mock/v1"}))
PARSER = Parser(CATALOGUE, LIMITS)
TICKET = CATALOGUE.entity_by_name["kitchen_ticket"]


def of_bodies(*documents: Mapping[str, Any], edits: tuple[str, str] | None = None) -> Typed:
    """Typed kitchen tickets of some messages, perhaps under an edited catalogue."""
    catalogue = CATALOGUE if edits is None else parse_catalogue(packaged_text().replace(*edits))
    assert edits is None or edits[0] in packaged_text()
    deliveries = [delivery(json.dumps(d).encode(), GROUP, n + 1) for n, d in enumerate(documents)]
    return typed(records(Parser(catalogue, LIMITS), deliveries), catalogue.entity_by_name["kitchen_ticket"], catalogue)


def full(**image: Any) -> dict[str, Any]:
    """An image with every column of a ticket."""
    return dict.fromkeys(column.name for column in TICKET.columns) | {
        "ticket_id": 7,
        "account_id": "acct-001",
        "store_guid": STORE,
        "status": "open",
        **image,
    }


def folded(table: pa.Table, entity: Entity) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Latest row per key by row order; missing columns keep what was known, deletes remove.

    The create half of a key change takes them from the old key, which was deleted at the same position.
    """
    known: dict[tuple[Any, ...], dict[str, Any]] = {}
    gone: dict[str, dict[str, Any]] = {}
    for row in sorted(table.to_pylist(), key=lambda row: str(row["_row_order"])):
        key = tuple(row[name] for name in entity.primary_key)
        if row["_op"] == "d":
            gone[row["_row_position"]] = known.pop(key, {})
            continue
        missing = row["_missing"].strip(",").split(",")
        old = known.get(key) or gone.get(row["_row_position"], {})
        known[key] = {c.name: old.get(c.name) if c.name in missing else row[c.name] for c in entity.columns}
    return known


def oracle_value(value: Any, kind: str) -> Any:
    """A value of the source's own final state in the target's type."""
    if value is None:
        return None
    if isinstance(value, dict) and "hex" in value:
        raw = bytes.fromhex(value["hex"])
        return raw if kind == "binary" else any(raw)
    if isinstance(value, dict) and set(value) == {"seconds"}:
        return _seconds(value["seconds"], kind)
    readers: dict[str, Any] = {
        "date": date.fromisoformat,
        "time": time.fromisoformat,
        "timestamp": datetime.fromisoformat,
        "timestamptz": lambda text: _instant(datetime.fromisoformat(text)),
        "boolean": bool,
        "json": lambda found: json.loads(found) if isinstance(found, str) else found,
        "decimal": lambda found: Decimal(str(found)),
    }
    return readers.get(kind, lambda found: found)(value)


def _seconds(seconds: float, kind: str) -> Any:
    micros = round(seconds * 1_000_000)
    if kind == "time":
        return datetime.fromtimestamp(micros // 1_000_000, UTC).time().replace(microsecond=micros % 1_000_000)
    return Decimal(micros).scaleb(-6)


def _instant(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def typed_of(name: str, entity: Entity, catalogue: Catalogue = CATALOGUE) -> Typed:
    """Typed rows of one entity of a capture."""
    bodies = [(n + 1, b) for n, b in enumerate(capture(name).bodies) if b is not None and b'"ddl"' not in b]
    every = records(PARSER, [delivery(b, number=n) for n, b in bodies])
    return typed(of_entity(every, entity.name), entity, catalogue)


@pytest.mark.parametrize("name", CAPTURES)
@pytest.mark.parametrize("entity", CATALOGUE.entities, ids=lambda entity: entity.name)
def test_s34_decoded_captures_equal_the_sources_final_state(name: str, entity: Entity) -> None:
    """Everything a real engine sent, decoded and folded, is what the tables held at the end."""
    found = typed_of(name, entity)
    assert found.refused == []
    assert found.table.schema.equals(typed_schema(entity))
    rows = folded(found.table, entity)
    kinds = {column.name: column.type.split("(")[0] for column in entity.columns}
    expected = {
        tuple(row[key] for key in entity.primary_key): {n: oracle_value(row[n], kinds[n]) for n in kinds}
        for row in capture(name).state[entity.name]
    }
    for row in rows.values():
        row.update({n: oracle_value(row[n], "json") for n in kinds if kinds[n] == "json"})
    assert len(expected) > 15
    assert rows == expected


def test_deletes_know_their_key_and_nothing_else() -> None:
    """Invented zeros never become values: every other column is missing."""
    found = of_bodies(
        body("d", image=full(account_id="", store_guid="", guest_count=0, opened_at="1970-01-01T00:00:00Z"))
    )
    (row,) = found.table.to_pylist()
    assert row["ticket_id"] == 7
    names = [column.name for column in TICKET.columns if column.name != "ticket_id"]
    assert row["_missing"] == f",{','.join(names)},"
    assert {row[name] for name in names} == {None}
    assert (row["_tenant"], row["_op"], found.drift) == (None, "d", {})


def test_truncates_have_no_row_at_all() -> None:
    """The key is missing too."""
    (row,) = of_bodies(body("t")).table.to_pylist()
    assert row["ticket_id"] is None
    assert row["_missing"].startswith(",ticket_id,")


def test_s35_placeholders_are_null_and_missing() -> None:
    """An unchanged large column, in a text and in an array, keeps the stored value downstream."""
    gone = "__debezium_unavailable_value"
    found = of_bodies(body(image=full(notes=gone, allergens=[gone])), body(image=full(notes="x", allergens=[])))
    first, second = found.table.to_pylist()
    assert (first["notes"], first["allergens"], first["_missing"]) == (None, None, ",notes,allergens,")
    assert (second["notes"], second["allergens"], second["_missing"]) == ("x", "[]", "")


def test_columns_the_image_lacks_are_missing_or_refused_by_policy() -> None:
    """dropped_column: ignore keeps what was known; quarantine holds the row back."""
    image = full()
    del image["tax"]
    document = body()
    document["after"] = image
    found = of_bodies(document)
    assert found.table.column("_missing").to_pylist() == [",tax,"]
    assert found.drift["dropped_column", "tax"] == 1
    refused = of_bodies(document, edits=("dropped_column: ignore", "dropped_column: quarantine"))
    assert refused.table.num_rows == 0
    assert refused.refused == [(0, Reason.SCHEMA_DRIFT, "column tax: dropped by the source")]


def test_columns_the_catalogue_lacks_are_kept_by_policy() -> None:
    """new_column: evolve keeps them as JSON, ignore drops them, quarantine holds the row back."""
    document = body(image=full(lane="B", weight=1.50))
    found = of_bodies(document, body(image=full()))
    assert found.table.column("_extra").to_pylist() == ['{"lane":"B","weight":1.5}', None]
    assert (found.drift["new_column", "lane"], found.drift["new_column", "weight"]) == (1, 1)
    ignored = of_bodies(document, edits=("new_column: evolve", "new_column: ignore"))
    assert ignored.table.column("_extra").to_pylist() == [None]
    refused = of_bodies(document, edits=("new_column: evolve", "new_column: quarantine"))
    assert refused.refused == [(0, Reason.SCHEMA_DRIFT, "column lane, weight: not in the catalogue")]


def test_one_bad_value_refuses_its_row_only() -> None:
    """The refusal names column and rule, never the value; the others go on."""
    bad = body(image=full(guest_count=40_000, total="!!"))
    found = of_bodies(body(image=full()), bad, body(image=full(guest_count=3)))
    assert found.table.column("_record").to_pylist() == [0, 2]
    assert found.table.column("guest_count").to_pylist() == [None, 3]
    ((record, reason, detail),) = found.refused
    assert (record, reason) == (1, Reason.UNDECODABLE_VALUE)
    assert detail == "column guest_count: number does not fit smallint"


def test_incompatible_values_may_be_ignored() -> None:
    """incompatible: ignore keeps the row and leaves the column unknown, counted."""
    document = body(image=full(guest_count="many"))
    found = of_bodies(document, edits=("incompatible: quarantine", "incompatible: ignore"))
    assert found.table.column("_missing").to_pylist() == [",guest_count,"]
    assert found.drift["incompatible", "guest_count"] == 1


def test_dbz14_replaced_nuls_are_counted() -> None:
    """The batch loads, the text is whole, and somebody can see it."""
    found = of_bodies(body(image=full(notes="no onions\0side", order_number="\0")), body(image=full(notes="x")))
    assert found.table.column("notes").to_pylist() == ["no onions\ufffdside", "x"]
    assert (found.drift["nul_replaced", "notes"], found.drift["nul_replaced", "order_number"]) == (1, 1)


def test_rows_carry_what_the_merge_needs() -> None:
    """Source, relation, orders, identity, tenant and times ride along; `_record` points back."""
    document = json.dumps(body(image=full(total="BPs="))).encode()
    change = PARSER.parse(delivery(document, GROUP, 1))
    assert isinstance(change, Change)
    (row,) = of_bodies(body(image=full(total="BPs="))).table.to_pylist()
    assert (row["_source"], row["_relation"], row["_record"]) == ("kdsprod-pg", "kds.kitchen_ticket", 0)
    assert (row["_identity"], row["_content_hash"]) == (change.identity, change.content_hash)
    assert (row["_company"], row["_tenant"], row["_row_position"]) == ("acct-001", "acct-001", change.row_position)
    assert row["_occurred_at"] == datetime(2026, 11, 30, 7, 50, 5, 26000, tzinfo=UTC)
    assert row["_sent_at"].timestamp() == pytest.approx(1_796_025_000.001)
    assert row["total"] == Decimal("12.75")


def test_several_sources_and_schemas_keep_the_order_of_the_records() -> None:
    """Parts that are read by different rules come back together, in order."""
    mysql = {"connector": "mysql", "db": "kds", "schema": None, "file": "bin.9", "pos": 4, "row": 0, "server_id": 1}
    documents = [
        body(image=full(fire_time=1_000_000, is_deleted=True)),
        body(image=full(fire_time=1_000_000, is_rush=1, promised_at=1_000, ticket_id=8), **mysql),
        body(image=full(ticket_id=9)),
    ]
    found = of_bodies(*documents)
    assert found.table.column("_record").to_pylist() == [0, 1, 2]
    assert found.table.column("_source").to_pylist() == ["kdsprod-pg", "kdsprod-mysql", "kdsprod-pg"]
    assert found.table.column("promised_at").to_pylist() == [None, datetime(1970, 1, 1, 0, 0, 1), None]  # noqa: DTZ001


def test_nothing_gives_an_empty_table_of_the_same_schema() -> None:
    """No records, or none that can be read: the columns are there all the same."""
    empty = typed(records(PARSER, []), TICKET, CATALOGUE)
    assert empty.table.schema.equals(typed_schema(TICKET))
    assert empty.table.num_rows == 0
    table = records(PARSER, [delivery(json.dumps(body()).encode(), GROUP)])
    unreadable = table.set_column(table.schema.get_field_index("body"), "body", pa.array([b"{"], pa.binary()))
    assert typed(unreadable, TICKET, CATALOGUE).refused == [
        (0, Reason.UNDECODABLE_VALUE, "no row image in the body"),
    ]
