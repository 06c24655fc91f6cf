"""COPY and UNLOAD of the Redshift adapter over the stand-in."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kds_cdc_dagster.adapters.redshift_transaction import Exchange
from kds_cdc_dagster.errors import InvariantBroken, LoadRefused
from kds_cdc_dagster.load.artifact import put_artifact
from kds_cdc_dagster.load.layout import Columns
from kds_cdc_dagster.ports import LoadArtifact, Transaction
from kds_cdc_dagster_tests.redshift.warehouse import Site, ids

pytest_plugins = ("kds_cdc_dagster_tests.redshift.fixtures",)


_PAIR: Columns = (("id", "bigint"), ("note", "varchar(8)"))


@pytest.fixture
def site(redshift_site: Site) -> Site:
    """A fresh database with an empty table `t`."""
    return redshift_site.with_table()


def artifact(site: Site, rows: list[dict[str, Any]], columns: Columns = _PAIR, name: str = "t") -> LoadArtifact:
    """A load artifact of (id, note)."""
    schema = pa.schema([("id", pa.int64()), ("note", pa.string())])
    return put_artifact(site.store, f"load/{name}/", pa.Table.from_pylist(rows, schema), columns)


def copy(found: LoadArtifact) -> Any:
    """A body that copies into `t`."""
    return lambda tx: tx.copy("t", found)


_EVERY: dict[str, tuple[pa.DataType, Any, Any]] = {
    "smallint": (pa.int16(), -7, -7),
    "integer": (pa.int32(), 7, 7),
    "bigint": (pa.int64(), 2**62, 2**62),
    "double": (pa.float64(), 0.1, 0.1),
    "decimal(38,10)": (pa.decimal128(38, 10), Decimal("1.0000000001"), Decimal("1.0000000001")),
    "boolean": (pa.bool_(), True, True),
    "varchar(4)": (pa.string(), "éé", "éé"),
    "text": (pa.string(), "x" * 65_535, "x" * 65_535),
    "date": (pa.date32(), date(204, 6, 20), date(204, 6, 20)),
    "time": (pa.time64("us"), time(23, 59, 59, 999999), time(23, 59, 59, 999999)),
    "timestamp": (pa.timestamp("us"), datetime(2026, 1, 2, 3, 4, 5, 6), datetime(2026, 1, 2, 3, 4, 5, 6)),  # noqa: DTZ001
    "timestamptz": (pa.timestamp("us", "UTC"), datetime(2026, 7, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC)),
    "json": (pa.string(), '{"a": [1, "é"]}', '{"a": [1, "é"]}'),
    "uuid": (pa.string(), "0" * 36, "0" * 36),
    "binary": (pa.binary(), b"\x00\xff\\", "\\x00ff5c"),
}
"""Declared type -> (typed as, value, value read back)."""
_COLUMNS: Columns = tuple((f"c{at}", declared) for at, declared in enumerate(_EVERY))


def _landed(site: Site, tx: Transaction) -> None:
    """Load one full row and one of nulls, by way of a landing table, into `every`."""
    values = [[value, None] for _, value, _ in _EVERY.values()]
    arrays = [pa.array(pair, kind) for pair, (kind, *_) in zip(values, _EVERY.values(), strict=True)]
    found = put_artifact(site.store, "load/every/", pa.table(arrays, names=[name for name, _ in _COLUMNS]), _COLUMNS)
    tx.execute(tx.dialect.create_table("every", _COLUMNS, spread_by="c2"))
    landing = ", ".join(f"{name} {tx.dialect.landing_type(declared)}" for name, declared in _COLUMNS)
    tx.execute(f"CREATE TEMP TABLE landing ({landing})")
    tx.copy("landing", found)
    landed = ", ".join(tx.dialect.landed(name, declared) for name, declared in _COLUMNS)
    tx.execute(f"INSERT INTO every SELECT {landed} FROM landing")


def test_every_type_arrives_exactly(site: Site) -> None:
    """By COPY into the landing types and from there into the permanent ones; nulls stay nulls."""
    warehouse = site.warehouse()
    warehouse.run(lambda tx: _landed(site, tx))
    full, empty = warehouse.run(lambda tx: tx.rows("SELECT * FROM every ORDER BY c0"))
    assert full == tuple(expected for *_, expected in _EVERY.values())
    assert set(empty) == {None}


def test_unload_writes_every_type(site: Site) -> None:
    """Binary as hex text, JSON as text: Parquet from Redshift knows neither; the partition column is left out."""

    def body(tx: Transaction) -> Any:
        _landed(site, tx)
        return tx.unload("SELECT e.*, 'a1' AS tenant FROM every e", "exports/every/1/", partition="tenant")

    files = site.warehouse().run(body)
    tables = [pq.read_table(io.BytesIO(site.store.get(file.key))) for file in files]
    assert {tuple(table.column_names) for table in tables} == {tuple(name for name, _ in _COLUMNS)}
    (row,) = [row for table in tables for row in table.to_pylist() if row["c0"] is not None]
    assert (row["c14"], row["c12"], row["c4"]) == ("00ff5c", '{"a": [1, "é"]}', Decimal("1.0000000001"))
    assert sum(file.rows for file in files) == 2


def test_unload_takes_any_partition_value(site: Site) -> None:
    """Values that a folder's name would garble, or that are empty, have folders as the port says."""
    values = ["acct-001", "B.2", "", "a b", "ü/'%", "\\x"]
    names = ["acct-001", "B.2", "%", "a%20b", "%C3%BC%2F%27%25", "%5Cx"]

    def body(tx: Transaction) -> Any:
        tx.execute("CREATE TABLE owned (tenant VARCHAR(20), id BIGINT)")
        for at, value in enumerate([*values, None]):
            tx.execute("INSERT INTO owned VALUES (?, ?)", (value, at))
        return tx.unload("SELECT * FROM owned WHERE id < 99", "exports/o/1/", partition="tenant")

    files = site.warehouse().run(body)
    found: dict[str, list[int]] = {value: [] for value in values}
    for file in files:
        assert file.key.startswith(f"exports/o/1/tenant={names[values.index(file.partition)]}/")
        body_bytes = site.store.get(file.key)
        rows = pq.read_table(io.BytesIO(body_bytes)).to_pylist()
        assert (file.rows, file.size_bytes) == (len(rows), len(body_bytes))
        found[file.partition] += [row["id"] for row in rows]
    assert {value: sorted(ids_) for value, ids_ in found.items()} == {
        value: [at, 6] if value == "" else [at] for at, value in enumerate(values)
    }


def test_unload_of_nothing_is_no_file(site: Site) -> None:
    """No rows, no files, no error."""
    body = lambda tx: tx.unload("SELECT id, note FROM t", "exports/t/1/", partition="note")  # noqa: E731
    assert site.warehouse().run(body) == []


def test_rs04_too_many_bytes_are_refused_with_their_place(site: Site) -> None:
    """One value of nine bytes in eight: nothing is loaded; file, column, line and code are told, the value is not."""
    found = artifact(site, [{"id": 1, "note": "éééé"}, {"id": 2, "note": "ééééx"}])
    with pytest.raises(LoadRefused) as caught:
        site.warehouse().run(copy(found))
    told = {name: caught.value.facts[name] for name in ("key", "column", "line", "error_code")}
    assert told == {"key": found.key, "column": "note", "line": 2, "error_code": 1204}
    assert "éx" not in str(caught.value)
    assert ids(site.warehouse()) == []
    site.warehouse().run(copy(artifact(site, [{"id": 1, "note": "éééé"}])))
    assert ids(site.warehouse()) == [1]


def test_rs09_copy_takes_the_files_of_its_manifest_only(site: Site) -> None:
    """A neighbour whose name begins the same way, and a stray file in the folder, are left alone."""
    found = artifact(site, [{"id": 12}], name="batch=12")
    artifact(site, [{"id": 120}], name="batch=120")
    site.store.create("load/batch=12/_tmp", b"stray")
    site.warehouse().run(copy(found))
    assert ids(site.warehouse()) == [12]


def test_rs09_missing_or_shortened_file_is_an_error(site: Site) -> None:
    """Never fewer rows in silence, also when another file stands where ours stood."""
    found = artifact(site, [{"id": 1}, {"id": 2}])
    other = artifact(site, [{"id": 1}])
    Exchange(site.store).manifest(other)
    site.store.overwrite(found.manifest_key, site.store.get(other.manifest_key))
    with pytest.raises(InvariantBroken) as caught:
        site.warehouse().run(copy(found))
    assert (caught.value.facts["rows"], caught.value.facts["loaded"]) == (2, 1)
    site.store.delete([other.key])
    with pytest.raises(LoadRefused, match="NoSuchKey"):
        site.warehouse().run(copy(found))
    assert ids(site.warehouse()) == []
    assert site.waits == []


def test_copy_refuses_columns_in_another_order(site: Site) -> None:
    """COPY maps by position: like types in another order would load wrong rows."""
    site.warehouse().run(lambda tx: tx.execute("CREATE TABLE pair (a VARCHAR(8), b VARCHAR(8))"))
    rows = pa.table({"b": ["1"], "a": ["2"]})
    found = put_artifact(site.store, "load/pair/", rows, (("b", "varchar(8)"), ("a", "varchar(8)")))
    with pytest.raises(LoadRefused, match="other columns"):
        site.warehouse().run(lambda tx: tx.copy("pair", found))


def test_copy_needs_the_role(site: Site) -> None:
    """Without the right to read S3 the error says so and is not repeated."""
    warehouse = site.warehouse(exchange=Exchange(site.store, "arn:aws:iam::1:role/other"))
    with pytest.raises(LoadRefused, match="not authorized"):
        warehouse.run(copy(artifact(site, [{"id": 1}])))
