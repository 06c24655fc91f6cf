"""Schema drift: every kind under every policy, on made-up messages; and what the warehouse takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kds_cdc_dagster.adapters.duckdb_warehouse import DuckdbWarehouse
from kds_cdc_dagster.adapters.object_store import open_memory
from kds_cdc_dagster.adapters.redshift_dialect import RedshiftDialect
from kds_cdc_dagster.catalogue import packaged_text, parse_catalogue
from kds_cdc_dagster.core.catalogue import Catalogue, Policies
from kds_cdc_dagster.core.change import Reason
from kds_cdc_dagster.core.contracts import Limits, Parser
from kds_cdc_dagster.load.drift import Seen, drift_seen, narrowed
from kds_cdc_dagster.load.layout import Layout, Schemas
from kds_cdc_dagster.load.loader import code_version
from kds_cdc_dagster.load.merge import merge
from kds_cdc_dagster.load.schema import ensure_schema
from kds_cdc_dagster.load.staging import Stager
from kds_cdc_dagster.load.typed import Typed, typed
from kds_cdc_dagster.ports import ObjectStore, Warehouse
from kds_cdc_dagster_tests.captures import delivery
from kds_cdc_dagster_tests.core.debezium_messages import GROUP, STORE, body
from kds_cdc_dagster_tests.load.recorded import records
from kds_cdc_dagster_tests.redshift.warehouse import Site

pytest_plugins = ("kds_cdc_dagster_tests.redshift.fixtures",)

LIMITS = Limits(5, 1 << 20, frozenset({"debezium"}))
SCHEMAS = Schemas()
NAMES = [column.name for column in parse_catalogue(packaged_text()).entity_by_name["kitchen_ticket"].columns]
TOO_LONG = "x" * 65_536


def catalogue(*edits: tuple[str, str], **policies: str) -> Catalogue:
    """The packaged catalogue with edits, and with policies of its PostgreSQL source."""
    text = packaged_text()
    for name, value in policies.items():
        edits = (*edits, (f"{name}: {getattr(Policies(), name)}", f"{name}: {value}"))
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return parse_catalogue(text)


def image(**columns: Any) -> dict[str, Any]:
    """A ticket's row; `...` takes a column away."""
    row = dict.fromkeys(NAMES) | {"ticket_id": 7, "account_id": "acct-001", "store_guid": STORE} | columns
    return {name: value for name, value in row.items() if value is not ...}


def recorded(rules: Catalogue, *images: dict[str, Any], schema: dict[str, Any] | None = None) -> pa.Table:
    """Records of creates with these images, in the wrapper of `schema` if there is one."""
    deliveries = []
    for at, one in enumerate(images, 1):
        document = {**body("c", lsn=at, sequence=f'["1","{at}"]'), "after": one}
        whole = document if schema is None else {"schema": schema, "payload": document}
        deliveries.append(delivery(json.dumps(whole).encode(), GROUP, at))
    found = records(Parser(rules, LIMITS), deliveries)
    at = found.schema.get_field_index("received_at_ms")
    return found.set_column(at, found.schema.field(at), pa.array([1_796_025_000_000] * len(images), pa.int64()))


def stage(rules: Catalogue, *images: dict[str, Any], schema: dict[str, Any] | None = None, **options: Any) -> Typed:
    """Typed tickets."""
    found = recorded(rules, *images, schema=schema)
    return typed(found, rules.entity_by_name["kitchen_ticket"], rules, **options)


def row(found: Typed, at: int = 0) -> dict[str, Any]:
    """A typed row."""
    result: dict[str, Any] = found.table.to_pylist()[at]
    return result


def reasons(found: Typed) -> list[tuple[int, Reason]]:
    """(record, reason) of what was refused."""
    return [(record, reason) for record, reason, _ in found.refused]


@pytest.mark.parametrize("policy", ["evolve", "ignore", "quarantine"])
def test_a_new_column(policy: str) -> None:
    """It is kept in `_extra`, or left out, or refuses the row; and is counted whatever the policy."""
    found = stage(catalogue(new_column=policy), image(lane="wok"))
    assert found.drift == {("new_column", "lane"): 1}
    if policy == "quarantine":
        assert reasons(found) == [(0, Reason.SCHEMA_DRIFT)]
    else:
        assert row(found)["_extra"] == ('{"lane":"wok"}' if policy == "evolve" else None)


@pytest.mark.parametrize(("policy", "missing"), [("evolve", ""), ("ignore", ",tax,")])
def test_a_dropped_column(policy: str, missing: str) -> None:
    """It becomes null where the catalogue follows the source; otherwise the last known value stays."""
    found = stage(catalogue(dropped_column=policy), image(tax=...))
    assert (row(found)["tax"], row(found)["_missing"]) == (None, missing)
    assert found.drift == {("dropped_column", "tax"): 1}


def test_a_renamed_column_is_a_dropped_and_a_new_one() -> None:
    """Nothing of it is lost: the old one keeps its value, the new one's goes to `_extra`."""
    found = stage(catalogue(), image(status=..., state="open"))
    assert (row(found)["_missing"], row(found)["_extra"]) == (",status,", '{"state":"open"}')
    assert set(found.drift) == {("dropped_column", "status"), ("new_column", "state")}


@pytest.mark.parametrize("policy", ["evolve", "ignore", "quarantine"])
def test_a_widened_column_without_schema(policy: str) -> None:
    """What fits is loaded; what does not refuses its row alone, or leaves the last known value."""
    found = stage(catalogue(widened=policy), image(guest_count=4), image(guest_count=40_000))
    assert row(found)["guest_count"] == 4
    assert found.drift == {("widened", "guest_count"): 1}
    if policy == "ignore":
        assert (row(found, 1)["guest_count"], row(found, 1)["_missing"]) == (None, ",guest_count,")
    else:
        assert reasons(found) == [(1, Reason.UNDECODABLE_VALUE)]


WIDER = {
    "type": "struct",
    "fields": [{"field": "after", "type": "struct", "fields": [{"field": "guest_count", "type": "int32"}]}],
}


@pytest.mark.parametrize("policy", ["evolve", "ignore", "quarantine"])
def test_a_widened_column_that_the_schema_shows(policy: str) -> None:
    """Values that fit are loaded and the drift is counted; only `quarantine` refuses them."""
    found = stage(catalogue(widened=policy), image(guest_count=4), schema=WIDER)
    assert found.drift == {("widened", "guest_count"): 1}
    if policy == "quarantine":
        assert reasons(found) == [(0, Reason.SCHEMA_DRIFT)]
    else:
        assert row(found)["guest_count"] == 4


@pytest.mark.parametrize(
    ("policy", "extra"), [("evolve", '{"guest_count":"many"}'), ("ignore", None), ("quarantine", None)]
)
def test_an_incompatible_column(policy: str, extra: str | None) -> None:
    """The row is refused, or the last known value stays and, evolving, the new one is kept beside it."""
    found = stage(catalogue(incompatible=policy), image(guest_count="many"))
    assert found.drift == {("incompatible", "guest_count"): 1}
    if policy == "quarantine":
        assert reasons(found) == [(0, Reason.UNDECODABLE_VALUE)]
    else:
        assert (row(found)["guest_count"], row(found)["_missing"]) == (None, ",guest_count,")
        assert row(found)["_extra"] == extra


def test_a_key_that_does_not_fit_is_always_refused() -> None:
    """Without its key a row is nobody's, whatever the policy says."""
    declared = "{name: ticket_id, type: bigint, source_type: {postgresql: int8"
    narrow = catalogue((declared, declared.replace("bigint", "smallint")), widened="ignore")
    found = typed(recorded(catalogue(), image(ticket_id=40_000)), narrow.entity_by_name["kitchen_ticket"], narrow)
    assert reasons(found) == [(0, Reason.UNDECODABLE_VALUE)]


def test_what_the_warehouse_cannot_take_refuses_its_row_alone() -> None:
    """Text, JSON and binary over the warehouse's limit; a byte less is loaded."""
    limit = RedshiftDialect().bytes_max
    long = [{"notes": TOO_LONG}, {"allergens": [TOO_LONG]}, {"notes": TOO_LONG[:-1]}]
    found = stage(catalogue(), *(image(**one) for one in long), bytes_max=limit)
    assert reasons(found) == [(0, Reason.UNDECODABLE_VALUE), (1, Reason.UNDECODABLE_VALUE)]
    assert "65535 bytes" in found.refused[0][2]
    assert len(row(found)["notes"]) == 65_535
    assert stage(catalogue(), image(notes=TOO_LONG)).refused == []
    assert limit("binary") == 32_767


def test_an_extra_that_is_too_long_is_left_out_and_counted() -> None:
    """The row's own columns are loaded all the same."""
    found = stage(catalogue(), image(lane=TOO_LONG, status="open"), bytes_max=RedshiftDialect().bytes_max)
    assert (row(found)["status"], row(found)["_extra"]) == ("open", None)
    assert found.drift["extra_too_long", "lane"] == 1


@pytest.fixture(params=["duckdb", "redshift"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Warehouse, ObjectStore]:
    """Both warehouses, empty."""
    if request.param == "redshift":
        opened: Site = request.getfixturevalue("redshift_site")
        return opened.warehouse(), opened.store
    store = open_memory("kds")
    return DuckdbWarehouse(tmp_path / "warehouse.duckdb", store, threads=1), store


class _Line:
    """Loads tickets as a run does, under one catalogue after the other."""

    def __init__(self, warehouse: Warehouse, store: ObjectStore, records: pa.Table) -> None:
        self.warehouse = warehouse
        self._store = store
        self._records = records

    def load(self, rules: Catalogue) -> Typed:
        """Stage and merge the records as batch b-1, again if they are loaded."""
        ensure_schema(self.warehouse, rules, SCHEMAS)
        fitting = narrowed(self.warehouse, rules, SCHEMAS)
        entity = fitting.entity_by_name["kitchen_ticket"]
        found = typed(self._records, entity, fitting, bytes_max=self.warehouse.dialect.bytes_max)
        Stager(self.warehouse, self._store, fitting, SCHEMAS).stage_typed(entity, "b-1", self._records, found)
        layout = Layout.of(rules, "kitchen_ticket", SCHEMAS)
        merge(self.warehouse, layout, "b-1", code_version=code_version(rules))
        return found

    def rows(self, columns: str) -> list[tuple[Any, ...]]:
        """What consumers see, by key."""
        select = f"SELECT {columns} FROM curated.kitchen_ticket ORDER BY ticket_id"
        return self.warehouse.run(lambda tx: tx.rows(select))


def test_a_column_added_later_is_filled_on_replay(warehouse: tuple[Warehouse, ObjectStore]) -> None:
    """Its values were in `_extra`; a replay under the grown catalogue reads them from the messages."""
    before = catalogue()
    line = _Line(*warehouse, recorded(before, image(lane="wok")))
    line.load(before)
    ((extra,),) = line.warehouse.run(lambda tx: tx.rows("SELECT _extra FROM curated.kitchen_ticket_rows"))
    assert json.loads(extra) == {"lane": "wok"}
    assert drift_seen(line.warehouse, SCHEMAS) == [Seen("kitchen_ticket", "new_column", "lane", 1, 1)]
    status = "      - {name: status,"
    line.load(catalogue((status, "      - {name: lane, type: varchar(80), source_type: text}\n" + status)))
    assert line.rows("lane") == [("wok",)]


def test_a_widened_catalogue_widens_the_warehouse_where_it_can(warehouse: tuple[Warehouse, ObjectStore]) -> None:
    """DuckDB widens all, Redshift texts alone: there a number that does not fit is quarantined, the batch is not."""
    before = catalogue()
    images = [image(ticket_id=1, status="s" * 200, guest_count=4), image(ticket_id=2, guest_count=40_000)]
    line = _Line(*warehouse, recorded(before, *images))
    assert reasons(line.load(before)) == [(0, Reason.UNDECODABLE_VALUE), (1, Reason.UNDECODABLE_VALUE)]
    status, guests = "{name: status, type: varchar(", "{name: guest_count, type: "
    wider = catalogue((f"{status}80)", f"{status}400)"), (f"{guests}smallint", f"{guests}integer"))
    found = line.load(wider)
    expected = [("s" * 200, 4), (None, 40_000)]
    is_redshift = isinstance(line.warehouse.dialect, RedshiftDialect)
    assert line.rows("status, guest_count") == expected[: 1 if is_redshift else 2]
    assert reasons(found) == ([(1, Reason.UNDECODABLE_VALUE)] if is_redshift else [])
    assert ensure_schema(line.warehouse, wider, SCHEMAS) == 0
