"""The warehouse port's contract: every adapter runs this suite (fixtures `warehouse` and `store`)."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kds_cdc_dagster.catalogue import parse_catalogue
from kds_cdc_dagster.errors import InvariantBroken, LoadRefused
from kds_cdc_dagster.load.artifact import put_artifact
from kds_cdc_dagster.load.landing import land, landed
from kds_cdc_dagster.load.layout import Layout, Schemas, declared
from kds_cdc_dagster.load.schema import ensure_schema
from kds_cdc_dagster.ports import LoadArtifact, ObjectStore, Transaction, Warehouse
from kds_cdc_dagster_tests.load.loading import Loading
from kds_cdc_dagster_tests.load.source import CATALOGUE, cut, play

_EVERY_TYPE = parse_catalogue("""
version: 1
sources: [{name: mock, contract: kds-cdc-mock/v1}]
entities:
  - name: thing
    sources: [{source: mock}]
    primary_key: [id]
    columns:
      - {name: id, type: bigint}
      - {name: small, type: smallint}
      - {name: whole, type: integer}
      - {name: real, type: double}
      - {name: price, type: "decimal(38,10)"}
      - {name: is_on, type: boolean}
      - {name: code, type: varchar(20)}
      - {name: words, type: text}
      - {name: day, type: date}
      - {name: clock, type: time}
      - {name: wall, type: timestamp}
      - {name: instant, type: timestamptz}
      - {name: tree, type: json}
      - {name: guid, type: uuid}
      - {name: octets, type: binary}
targets: [{name: thing, from: [thing]}]
""").entity_by_name["thing"]

_ROW = {
    "id": (1 << 63) - 1,
    "small": -7,
    "whole": 1 << 30,
    "real": 0.1,
    "price": Decimal("-1234567890123456789012345678.0123456789"),
    "is_on": True,
    "code": "Grüße 🔥",
    "words": 'it\'s 100 % \\ "quoted"',
    "day": date(204, 6, 20),
    "clock": time(23, 59, 59, 999999),
    "wall": datetime(2026, 11, 1, 10, 0, 0, 123456),  # noqa: DTZ001  (a wall clock has no zone)
    "instant": datetime(2026, 11, 1, 10, 0, 0, 123456, tzinfo=UTC),
    "tree": '{"a": [1, null, "x"]}',
    "guid": "00000000-0000-0000-0000-00000000002a",
    "octets": b"\x00\xff",
}
_ARROW = [
    pa.int64(),
    pa.int16(),
    pa.int32(),
    pa.float64(),
    pa.decimal128(38, 10),
    pa.bool_(),
    pa.string(),
    pa.string(),
    pa.date32(),
    pa.time64("us"),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.string(),
    pa.string(),
    pa.binary(),
]


class WarehouseSuite:
    """What `kds_cdc_dagster.ports.Warehouse` promises, and that the whole merge holds on this warehouse."""

    def _table(self, warehouse: Warehouse, name: str = "suite_numbers") -> str:
        def body(tx: Transaction) -> None:
            tx.execute(f"DROP TABLE IF EXISTS {name}")
            tx.execute(tx.dialect.create_table(name, [("n", "bigint"), ("tenant", "varchar(20)")]))

        warehouse.run(body)
        return name

    def test_commits(self, warehouse: Warehouse) -> None:
        """What a body wrote is there for the next transaction, and its answer comes back."""
        table = self._table(warehouse)

        def body(tx: Transaction) -> int:
            tx.execute(f"INSERT INTO {table} (n, tenant) VALUES (?, ?)", (1, "a'b?%s"))
            return 7

        assert warehouse.run(body) == 7
        assert warehouse.run(lambda tx: tx.rows(f"SELECT n, tenant FROM {table}")) == [(1, "a'b?%s")]

    def test_rolls_back(self, warehouse: Warehouse) -> None:
        """A body that raises leaves nothing behind, and its own exception comes out."""
        table = self._table(warehouse)

        def body(tx: Transaction) -> None:
            tx.execute(f"INSERT INTO {table} (n) VALUES (1)")
            raise KeyError("stop")

        with pytest.raises(KeyError, match="stop"):
            warehouse.run(body)
        assert warehouse.run(lambda tx: tx.rows(f"SELECT n FROM {table}")) == []

    def test_one_lock_one_body(self, warehouse: Warehouse) -> None:
        """Bodies of one lock name never run side by side: no read-then-write is lost."""
        table = self._table(warehouse)
        warehouse.run(lambda tx: tx.execute(f"INSERT INTO {table} (n) VALUES (0)"))

        def raise_by_one(tx: Transaction) -> None:
            ((found,),) = tx.rows(f"SELECT n FROM {table}")
            tx.execute(f"DELETE FROM {table}")
            tx.execute(f"INSERT INTO {table} (n) VALUES (?)", (found + 1,))

        threads = [
            threading.Thread(target=lambda: [warehouse.run(raise_by_one, lock="suite") for _ in range(5)])
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert warehouse.run(lambda tx: tx.rows(f"SELECT n FROM {table}")) == [(15,)]

    def test_refuses_rows(self, warehouse: Warehouse) -> None:
        """A value that does not fit is LoadRefused, and the message holds no row data."""
        table = self._table(warehouse)
        with pytest.raises(LoadRefused) as refused:
            warehouse.run(lambda tx: tx.execute(f"INSERT INTO {table} (n) SELECT CAST(? AS BIGINT)", ("secret",)))
        assert "secret" not in str(refused.value)

    @pytest.mark.parametrize("is_held", [True, False])
    def test_every_type_survives(self, warehouse: Warehouse, store: ObjectStore, *, is_held: bool) -> None:
        """Every catalogue type goes Arrow → artifact → COPY → table without a change, and so do nulls.

        Also where another process wrote the artifact, whose rows this one does not have in memory.
        """
        columns = declared(_EVERY_TYPE)
        rows = pa.table(
            [pa.array([value, None], kind) for value, kind in zip(_ROW.values(), _ARROW, strict=True)], [*_ROW]
        )
        artifact = put_artifact(store, "load/thing/suite/", rows, columns)
        if not is_held:
            artifact = replace(artifact, held=None)

        def body(tx: Transaction) -> None:
            tx.execute("DROP TABLE IF EXISTS suite_types")
            tx.execute(tx.dialect.create_table("suite_types", columns))
            landing = land(tx, columns, artifact)
            tx.execute(f"INSERT INTO suite_types SELECT {landed(tx, columns)} FROM {landing}")
            tx.unland(landing)

        warehouse.run(body)
        plain = [name for name, _ in columns if name not in {"tree", "octets"}]
        found = warehouse.run(lambda tx: tx.rows(f"SELECT {', '.join(plain)} FROM suite_types ORDER BY id NULLS LAST"))
        assert found == [tuple(_ROW[name] for name in plain), (None,) * len(plain)]

    def test_a_repeated_key_in_json_fails_no_load(self, warehouse: Warehouse, store: ObjectStore) -> None:
        """One odd document must not stop its batch; where the warehouse keeps one of the keys, it is the last."""
        columns = (("id", "bigint"), ("tree", "json"))
        rows = pa.table({"id": [1, 2], "tree": ['{"a": 1, "b": [{"c": 2, "c": 3}], "a": 4}', '{"a": 5}']})
        artifact = put_artifact(store, "load/thing/repeated/", rows, columns)

        def body(tx: Transaction) -> list[tuple[Any, ...]]:
            tx.execute("DROP TABLE IF EXISTS suite_repeated")
            tx.execute(tx.dialect.create_table("suite_repeated", columns))
            tx.execute(f"INSERT INTO suite_repeated SELECT {landed(tx, columns)} FROM {land(tx, columns, artifact)}")
            is_super = tx.dialect.column_type("json") == "SUPER"
            text = "JSON_SERIALIZE(tree)" if is_super else "CAST(tree AS VARCHAR)"
            return tx.rows(f"SELECT id, {text} FROM suite_repeated ORDER BY id")

        found = {id_: json.loads(text) for id_, text in warehouse.run(body)}
        assert found == {1: {"a": 4, "b": [{"c": 3}]}, 2: {"a": 5}}

    def test_copy_counts(self, warehouse: Warehouse, store: ObjectStore) -> None:
        """An artifact that holds another number of rows than it says stops the load."""
        columns = (("n", "bigint"),)
        true = put_artifact(store, "load/thing/count/", pa.table({"n": [1, 2, 3]}), columns)
        false = LoadArtifact(true.key, true.manifest_key, true.sha256, 4, true.size_bytes)
        with pytest.raises(InvariantBroken, match="another number of rows"):
            warehouse.run(lambda tx: land(tx, columns, false))

    def test_landing_wants_the_columns(self, warehouse: Warehouse, store: ObjectStore) -> None:
        """An artifact of other columns stops the load instead of filling the wrong ones."""
        found = put_artifact(
            store, "load/thing/other/", pa.table({"n": [1], "m": [2]}), (("n", "bigint"), ("m", "bigint"))
        )
        with pytest.raises(LoadRefused, match="other columns"):
            warehouse.run(lambda tx: land(tx, (("n", "bigint"),), found))

    def test_landing_again_replaces(self, warehouse: Warehouse, store: ObjectStore) -> None:
        """In one transaction as after one that failed in between, what was landed last is what is read."""
        columns = (("n", "bigint"),)
        one, two = (put_artifact(store, f"load/thing/{n}/", pa.table({"n": [n]}), columns) for n in (1, 2))

        def twice(tx: Transaction) -> list[tuple[Any, ...]]:
            land(tx, columns, one)
            return tx.rows(f"SELECT n FROM {land(tx, columns, two)}")

        def failing(tx: Transaction) -> None:
            land(tx, columns, one)
            raise RuntimeError

        assert warehouse.run(twice) == [(2,)]
        with pytest.raises(RuntimeError):
            warehouse.run(failing)
        assert warehouse.run(twice) == [(2,)]

    def test_unload(self, warehouse: Warehouse, store: ObjectStore) -> None:
        """Every partition value has its own objects with the other columns; sizes and counts are true."""
        table = self._table(warehouse)

        def body(tx: Transaction) -> None:
            for n, tenant in ((1, "north"), (2, "north"), (3, "so/uth ü")):
                tx.execute(f"INSERT INTO {table} (n, tenant) VALUES (?, ?)", (n, tenant))

        warehouse.run(body)
        select = f"SELECT n, tenant FROM {table} WHERE tenant <> 'it''s'"
        files = warehouse.run(lambda tx: tx.unload(select, "exports/suite/v1/", partition="tenant"))
        found: dict[str, list[int]] = {}
        for file in files:
            body_bytes = store.get(file.key)
            rows = pq.read_table(pa.BufferReader(body_bytes))
            assert (rows.column_names, rows.num_rows, len(body_bytes)) == (["n"], file.rows, file.size_bytes)
            assert file.key.startswith("exports/suite/v1/")
            found.setdefault(file.partition, []).extend(rows["n"].to_pylist())
        assert {tenant: sorted(numbers) for tenant, numbers in found.items()} == {"north": [1, 2], "so/uth ü": [3]}

    def test_schema_grows(self, warehouse: Warehouse) -> None:
        """Schemas are made once; a column that the catalogue gains appears in table and view, rows stay."""
        schemas = Schemas("suite_staging", "suite_curated", "suite_ops")
        layout = Layout.of(CATALOGUE, "dish", schemas)
        assert ensure_schema(warehouse, CATALOGUE, schemas) > 0
        assert ensure_schema(warehouse, CATALOGUE, schemas) == 0
        warehouse.run(lambda tx: tx.execute(f"INSERT INTO {layout.rows} (dish_id, _is_deleted) VALUES (1, FALSE)"))
        grown = CATALOGUE.model_dump(by_alias=True)
        grown["entities"][0]["columns"] = [*grown["entities"][0]["columns"], {"name": "spice", "type": "integer"}]
        assert ensure_schema(warehouse, type(CATALOGUE).model_validate(grown), schemas) > 0
        assert warehouse.run(lambda tx: tx.rows(f"SELECT dish_id, spice FROM {layout.view}")) == [(1, None)]

    @pytest.mark.parametrize("seed", [1, 2])
    def test_s34_merge(self, warehouse: Warehouse, store: ObjectStore, seed: int) -> None:
        """A history with deletes, reused and swapped keys, placeholders, truncates and snapshots ends as its source."""
        dice = random.Random(seed)
        table = play(dice, 40)
        changes = list(table.emitted)
        dice.shuffle(changes)
        loading = Loading(warehouse, store)
        loading.run_out(cut(dice, changes, 12))
        assert loading.view() == table.rows
