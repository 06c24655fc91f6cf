"""Values of the invented samples: every column type of five connectors."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from kds_cdc_dagster.catalogue import parse_catalogue
from kds_cdc_dagster.core.change import Change
from kds_cdc_dagster.core.contracts import Limits, Parser
from kds_cdc_dagster.load.typed import typed
from kds_cdc_dagster_tests.captures import DATA, delivery, samples
from kds_cdc_dagster_tests.load.recorded import records

CATALOGUE = parse_catalogue((DATA / "samples-catalogue.yaml").read_text("utf-8"))
PARSER = Parser(CATALOGUE, Limits(5, 1 << 20, frozenset({"debezium"})))
STORE = "7c1f3b52-9f5e-4d7a-8a61-2f0c4de91b10"


def row(name: str) -> dict[str, Any]:
    """The typed row of a sample, without the columns it does not know."""
    message = delivery(samples()[name], f"40017:{STORE}")
    change = PARSER.parse(message)
    assert isinstance(change, Change), change
    found = typed(records(PARSER, [message]), CATALOGUE.entity_by_name[change.entity], CATALOGUE)
    assert found.refused == []
    (values,) = found.table.to_pylist()
    missing = values["_missing"].split(",")
    assert {values[column] for column in missing if column} <= {None}
    return {column: value for column, value in values.items() if column not in missing}


def at(text: str) -> datetime:
    """A zone-less moment."""
    return datetime.fromisoformat(text)


COMMON = {
    "store_guid": STORE,
    "account_id": 40017,
    "quantity": Decimal("-1.250"),
    "unit_price": Decimal("1234567.8901"),
    "photo_hash": b"\x00\xff\x10\xa0",
    "finished_at": at("2026-03-14T18:09:59.999999"),
    "is_deleted": False,
}
BUMPED = datetime(2026, 3, 14, 18, 10, 2, 1, tzinfo=UTC)
FIRED = time(18, 5, 23, 451)
POSTGRESQL = {
    "raw_weight": Decimal("0.333000"),
    "prep_seconds": 187.5,
    "fire_date": date(2026, 3, 14),
    "fire_time": FIRED,
    "started_at_ms": at("2026-03-14T18:05:24.250"),
    "bumped_at": BUMPED,
    "expected_by": None,
    "hold_interval": Decimal(90),
    "modifiers": '["extra hot",null,"no salt"]',
    "flags": 0x0205,
    "allergens": '{"nuts": true, "dairy": null}',
    "menu_item_guid": "5b0e8f7a-3c2d-4e1f-8a9b-0c1d2e3f4a5b",
}
BINLOG = {
    "prep_seconds": 187.5,
    "fire_date": date(2026, 3, 14),
    "fire_time": FIRED,
    "started_at": at("2026-03-14T18:05:24.250"),
    "bumped_at": BUMPED,
    "service_year": 2026,
    "void_at": None,
    "zero_date_not_null": date(1970, 1, 1),
    "status": "FIRED",
    "tags": "spicy,rush",
    "allergens": '{"nuts": true, "dairy": null}',
    "flags": 0x0205,
}
SQL_SERVER = {
    "prep_seconds": 187.5,
    "fire_date": date(2026, 3, 14),
    "prep_cost": Decimal("12.3400"),
    "fire_time": FIRED,
    "started_at": at("2026-03-14T18:05:24.250"),
    "bumped_at": BUMPED,
    "priority": 200,
    "config_xml": '<item hot="true"/>',
}
ORACLE = {
    "raw_weight": Decimal("0.333000"),
    "legacy_float": 187.5,
    "count_int": 12,
    "started_at": at("2026-03-14T18:05:24.250"),
    "fire_date": date(2026, 3, 14),
    "finished_at_ns": at("2026-03-14T18:09:59.999999"),
    "bumped_at": BUMPED,
    "bumped_local": BUMPED,
    "hold_interval": Decimal(90),
    "allergens": '{"nuts":true}',
}
EXPECTED = {
    "postgresql": POSTGRESQL,
    "mysql": BINLOG | {"external_ref": Decimal(12297829382473034410)},
    "mariadb": BINLOG | {"external_ref": Decimal(12)},
    "sqlserver": SQL_SERVER,
    "oracle": ORACLE,
}


@pytest.mark.parametrize(("connector", "values"), EXPECTED.items())
def test_every_type_of_a_connector_is_decoded(connector: str, values: dict[str, Any]) -> None:
    """Decimals exact, units as declared, offsets applied, bits little-endian, uuids in one form."""
    found = row(f"{connector}/06-decimal-temporal")
    assert {name: found[name] for name in COMMON | values} == COMMON | values
    ours = {name for name in found if name.startswith("_")}
    assert set(found) - ours <= set(COMMON | values) | {"id", "ticket_id"}


def test_subtotals_of_one_table_in_all_its_forms() -> None:
    """Snapshot, stream, NUMERIC numbers, the wrapper and CloudEvents: the same exact money."""
    assert row("postgresql/01-snapshot-read")["subtotal"] == Decimal("86.50")
    assert row("mysql/01-snapshot-read")["subtotal"] == Decimal("64.00")
    forms = [
        "insert-with-schema-wrapper",
        "insert-numeric-decimal-null-snapshot",
        "cloudevents-insert",
        "flattened-insert",
    ]
    for form in forms:
        assert row(f"common/{form}")["subtotal"] == Decimal("41.25")


@pytest.mark.parametrize(
    "name",
    [
        "postgresql/07-toast-unchanged-update",
        "mysql/07-noblob-unavailable-update",
        "mariadb/07-noblob-unavailable-update",
        "sqlserver/07-max-column-unavailable-update",
        "oracle/07-lob-unavailable-update",
    ],
)
def test_s35_unavailable_columns_are_unknown_and_the_others_written(name: str) -> None:
    """special_instructions stays as it was, subtotal becomes 55.75."""
    found = row(name)
    assert "special_instructions" not in found
    assert found["subtotal"] == Decimal("55.75")
    assert found["guest_count"] == 3


def test_the_new_half_of_a_key_change_does_not_know_its_large_column() -> None:
    """display_layout must be carried from the old key."""
    found = row("postgresql/05b-pk-change-create-new-key-toast")
    assert found["station_code"] == "GRL1"
    assert "display_layout" not in found


def test_zoned_and_zone_less_times_of_one_row() -> None:
    """SQL Server keeps offsets and 100 ns digits; Oracle's and MySQL's instants are UTC."""
    expected = datetime(2026, 3, 14, 18, 5, 22, 417338, tzinfo=UTC)
    for connector in ("sqlserver", "oracle", "mysql"):
        found = row(f"{connector}/02-insert")
        assert found["opened_at"] == expected
        assert found["updated_at"] == datetime(2026, 3, 14, 18, 5, 22, 417000, tzinfo=UTC)
