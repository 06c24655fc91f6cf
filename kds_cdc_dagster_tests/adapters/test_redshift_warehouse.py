"""The Redshift adapter over the stand-in: transactions, locks, repetitions, COPY, UNLOAD, credentials."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kds_cdc_dagster.adapters.redshift_access import RedshiftAccess
from kds_cdc_dagster.adapters.redshift_transaction import Exchange
from kds_cdc_dagster.adapters.redshift_warehouse import RepeatPolicy, open_redshift_warehouse
from kds_cdc_dagster.errors import InvariantBroken, LoadRefused, SettingsError, TransientError, WarehouseBusy
from kds_cdc_dagster.load.artifact import put_artifact
from kds_cdc_dagster.load.layout import Columns
from kds_cdc_dagster.ports import LoadArtifact, Transaction, Warehouse
from kds_cdc_dagster.settings import Settings
from kds_cdc_dagster_tests.redshift import faults
from kds_cdc_dagster_tests.redshift.bucket import S3Place
from kds_cdc_dagster_tests.redshift.server import redshift_with_s3
from kds_cdc_dagster_tests.redshift.warehouse import Site, site_on
from kds_cdc_dagster_tests.redshift.wire import ServerError

_PAIR: Columns = (("id", "bigint"), ("note", "varchar(8)"))


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Place]:
    """An S3 emulator; its stand-in keeps the server process running for the module."""
    with redshift_with_s3() as stand_in:
        yield stand_in.s3


@pytest.fixture
def site(s3: S3Place) -> Iterator[Site]:
    """A fresh database with an empty table `t`."""
    with site_on(s3) as opened:
        opened.warehouse().run(lambda tx: tx.execute("CREATE TABLE t (id BIGINT, note VARCHAR(8))"))
        opened.redshift.statements.clear()
        yield opened


def insert(value: int) -> Any:
    """A body that inserts once, however often it runs to its end."""

    def body(tx: Transaction) -> None:
        if not tx.rows("SELECT 1 FROM t WHERE id = ?", (value,)):
            tx.execute("INSERT INTO t VALUES (?, ?)", (value, "x"))

    return body


def ids(warehouse: Warehouse) -> list[int]:
    """What is in `t`."""
    return [value for (value,) in warehouse.run(lambda tx: tx.rows("SELECT id FROM t ORDER BY id"))]


def artifact(site: Site, rows: list[dict[str, Any]], columns: Columns = _PAIR, name: str = "t") -> LoadArtifact:
    """A load artifact of (id, note)."""
    schema = pa.schema([("id", pa.int64()), ("note", pa.string())])
    return put_artifact(site.store, f"load/{name}/", pa.Table.from_pylist(rows, schema), columns)


def copy(found: LoadArtifact) -> Any:
    """A body that copies into `t`."""
    return lambda tx: tx.copy("t", found)


# --- transactions -------------------------------------------------------------------------------


def test_body_is_committed_as_a_whole_or_not_at_all(site: Site) -> None:
    """Its answer comes back after the commit; its exception goes through after the rollback."""
    warehouse = site.warehouse()
    assert warehouse.run(lambda tx: insert(1)(tx) or "done") == "done"

    def broken(tx: Transaction) -> None:
        insert(2)(tx)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        warehouse.run(broken)
    assert ids(warehouse) == [1]


def test_error_that_the_body_swallows_is_not_committed(site: Site) -> None:
    """The driver's commit of a failed transaction is a silent rollback: it must not look like success."""

    def careless(tx: Transaction) -> None:
        insert(1)(tx)
        with pytest.raises(LoadRefused):
            tx.execute("SELECT nothing FROM nowhere")

    with pytest.raises(InvariantBroken):
        site.warehouse().run(careless)
    assert ids(site.warehouse()) == []


def test_lock_comes_first_and_alone(site: Site) -> None:
    """Nothing takes the snapshot before the lock; the lock's table is our own; DDL for it is no part of the load."""
    warehouse = site.warehouse()
    for value in (1, 2):
        warehouse.run(insert(value), lock="curated.t")
    sent = site.redshift.sql()
    begins = [at for at, sql in enumerate(sent) if sql == "begin transaction"]
    assert [sent[at + 1] for at in begins] == [next(sql for sql in sent if sql.startswith("LOCK TABLE ops.lock_"))] * 2
    assert len([sql for sql in sent if sql.startswith("CREATE TABLE")]) == 1


def test_bodies_of_one_lock_exclude_each_other(site: Site) -> None:
    """Eight processes that add one to what they read end at eight, without a repetition."""
    site.warehouse().run(lambda tx: tx.execute("INSERT INTO t VALUES (0, '')"))

    def add(tx: Transaction) -> None:
        ((value,),) = tx.rows("SELECT id FROM t")
        tx.execute("UPDATE t SET id = ?", (value + 1,))

    workers = [threading.Thread(target=site.warehouse().run, args=(add,), kwargs={"lock": "t"}) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert ids(site.warehouse()) == [8]
    assert len(site.redshift.sql("UPDATE t")) == 8


def test_other_locks_do_not_wait(site: Site) -> None:
    """While one lock is held, a body of another lock and a reader go on."""
    gate = site.redshift.faults.hold("INSERT INTO t")
    warehouse = site.warehouse()
    waiting = threading.Thread(target=warehouse.run, args=(insert(1),), kwargs={"lock": "a"})
    waiting.start()
    assert gate.reached.wait(10)
    warehouse.run(insert(2), lock="b")
    assert ids(warehouse) == [2]
    gate.release.set()
    waiting.join(10)
    assert ids(warehouse) == [1, 2]


def test_no_connection_outlives_a_transaction(site: Site) -> None:
    """Neither after success nor after an error."""
    warehouse = site.warehouse()
    warehouse.run(insert(1), lock="t")
    with pytest.raises(LoadRefused):
        warehouse.run(lambda tx: tx.execute("SELECT nothing FROM nowhere"))
    query = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()"
    assert warehouse.run(lambda tx: tx.rows(query)) == [(1,)]


# --- repetitions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [faults.SERIALIZABLE, faults.CONFLICT, faults.RELATION_GONE, faults.S3_SLOW_DOWN],
    ids=lambda e: e.message[:9],
)
@pytest.mark.parametrize("pattern", ["^begin", "^LOCK", "^INSERT", "^commit"])
def test_passing_error_repeats_the_whole_body(site: Site, error: ServerError, pattern: str) -> None:
    """Wherever it hits, the body runs again from its first statement, after a wait, and takes effect once."""
    site.redshift.faults.fail(pattern, error, times=2)
    site.warehouse().run(insert(1), lock="t")
    assert len(site.waits) == 2
    assert ids(site.warehouse()) == [1]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("pattern", ["^SET", "^CREATE SCHEMA", "^begin", "^LOCK", "^SELECT 1", "^INSERT", "^commit"])
def test_lost_connection_repeats_the_whole_body(site: Site, pattern: str, when: faults.When) -> None:
    """Also when the commit was done and only its reply was lost: the body finds its work done."""
    site.redshift.faults.drop(pattern, when=when)
    site.warehouse().run(insert(1), lock="t")
    assert len(site.waits) == 1
    assert ids(site.warehouse()) == [1]


def test_attempts_are_bounded_and_leave_nothing(site: Site) -> None:
    """After the last attempt the caller may come back later: nothing is half applied, and then it works."""
    site.redshift.faults.fail("^commit", times=-1)
    with pytest.raises(WarehouseBusy) as caught:
        site.warehouse().run(insert(1), lock="t")
    assert (caught.value.facts["lock"], caught.value.facts["attempts"]) == ("t", 8)
    site.redshift.faults.clear()
    assert ids(site.warehouse()) == []
    site.warehouse().run(insert(1), lock="t")
    assert ids(site.warehouse()) == [1]


def test_waits_grow_with_jitter_up_to_a_limit() -> None:
    """Each wait lies between nothing and a limit that doubles, and stops doubling."""
    policy = RepeatPolicy(wait_seconds=0.25, wait_seconds_max=8)
    assert [policy.wait(attempt, 1.0) for attempt in range(1, 8)] == [0.5, 1, 2, 4, 8, 8, 8]
    assert policy.wait(3, 0.5) == 1


def test_statement_timeout_is_the_servers_and_repeated_once(site: Site) -> None:
    """A statement that is too slow twice is told; the server itself has ended it."""
    warehouse = site.warehouse(statement_timeout_seconds=0.1)
    with pytest.raises(WarehouseBusy, match="statement timeout"):
        warehouse.run(lambda tx: tx.execute("SELECT pg_sleep(5)"))
    assert [e.outcome for e in site.redshift.statements if "pg_sleep" in e.sql] == ["57014", "57014"]


def test_sql_that_is_wrong_is_not_repeated(site: Site) -> None:
    """No retry helps; the error names the statement's kind and code, and no value."""
    with pytest.raises(LoadRefused) as caught:
        site.warehouse().run(lambda tx: tx.execute("INSERT INTO t VALUES (?, ?)", (1, "much too long")))
    assert caught.value.facts["code"] == "22001"
    assert "much too long" not in str(caught.value)
    assert site.waits == []


# --- COPY and UNLOAD ----------------------------------------------------------------------------

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
    site.store.overwrite(found.manifest_key, site.store.get(other.manifest_key))
    with pytest.raises(LoadRefused) as caught:
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


# --- access -------------------------------------------------------------------------------------


def test_wrong_password_is_the_deployers_matter(site: Site) -> None:
    """Not repeated: a locked account helps nobody."""
    with pytest.raises(SettingsError):
        site.warehouse(site.access(password="wrong")).run(insert(1))
    assert site.waits == []


def test_unreachable_redshift_is_transient(site: Site) -> None:
    """After bounded attempts; nothing was accepted."""
    access = site.access()
    site.redshift.stop()
    with pytest.raises(TransientError, match="connection"):
        site.warehouse(access).run(insert(1))
    assert len(site.waits) == 7


@pytest.mark.parametrize(
    ("access", "expected"),
    [
        (
            RedshiftAccess(host="h", user="u", password="p"),
            {"host": "h", "port": 5439, "user": "u", "password": "p", "ssl": True, "sslmode": "verify-full"},
        ),
        (
            RedshiftAccess(iam="serverless", workgroup="wg", region="eu-west-1"),
            {"iam": True, "is_serverless": True, "serverless_work_group": "wg", "region": "eu-west-1"},
        ),
        (
            RedshiftAccess(iam="provisioned", cluster="c", user="loader"),
            {"iam": True, "cluster_identifier": "c", "db_user": "loader"},
        ),
    ],
    ids=["password", "serverless", "provisioned"],
)
def test_access_kinds(access: RedshiftAccess, expected: dict[str, Any]) -> None:
    """Each kind passes what the driver needs and nothing of the others; TLS checks the host's name."""
    kwargs = access.connect_kwargs()
    assert {name: kwargs.get(name) for name in expected} == expected
    assert kwargs["max_prepared_statements"] == 0
    assert ("password" in kwargs) == (access.iam == "off")
    assert ("host" in kwargs) == bool(access.host)


@pytest.mark.parametrize("changed", [{"is_ssl": False}, {"user": ""}], ids=["no TLS", "no user"])
def test_impossible_access_is_refused(changed: dict[str, Any]) -> None:
    """Before anything is opened."""
    access = replace(RedshiftAccess(iam="provisioned", cluster="c", user="loader"), **changed)
    with pytest.raises(SettingsError):
        access.connect_kwargs()


def test_settings_reach_the_adapter(site: Site) -> None:
    """A warehouse opened from settings works; a wrong combination is told at once."""
    kwargs = site.redshift.connect_kwargs
    named = {f"redshift_{name}": kwargs[name] for name in ("host", "port", "database", "user", "password", "ssl")}
    settings = Settings(warehouse="redshift", redshift_copy_role=site.redshift.role, **named)
    warehouse = open_redshift_warehouse(settings, site.store)
    warehouse.run(copy(artifact(site, [{"id": 1}])), lock="t")
    assert ids(warehouse) == [1]
    with pytest.raises(SettingsError):
        open_redshift_warehouse(settings.model_copy(update={"redshift_iam": "serverless"}), site.store)
