"""The Redshift adapter over the stand-in: transactions, locks, repetitions."""

from __future__ import annotations

import threading

import pytest

from kds_cdc_dagster.adapters.redshift_warehouse import RepeatPolicy
from kds_cdc_dagster.errors import InvariantBroken, LoadRefused, WarehouseBusy
from kds_cdc_dagster.ports import ObjectStore, Transaction, Warehouse
from kds_cdc_dagster_tests.contracts.warehouse_suite import WarehouseSuite
from kds_cdc_dagster_tests.redshift import faults
from kds_cdc_dagster_tests.redshift.warehouse import Site, ids, insert
from kds_cdc_dagster_tests.redshift.wire import ServerError

pytest_plugins = ("kds_cdc_dagster_tests.redshift.fixtures",)


@pytest.fixture
def site(redshift_site: Site) -> Site:
    """A fresh database with an empty table `t`."""
    return redshift_site.with_table()


class TestRedshift(WarehouseSuite):
    @pytest.fixture
    def store(self, redshift_site: Site) -> ObjectStore:
        """What COPY reads."""
        return redshift_site.store

    @pytest.fixture
    def warehouse(self, redshift_site: Site) -> Warehouse:
        """The adapter under contract."""
        return redshift_site.warehouse()


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
    with pytest.raises(LoadRefused, match='relation "nowhere" does not exist'):
        site.warehouse().run(lambda tx: tx.execute("SELECT 1 FROM nowhere"))
    with pytest.raises(LoadRefused) as caught:
        site.warehouse().run(lambda tx: tx.execute("INSERT INTO t (id) VALUES (?)", ("row data",)))
    assert "row data" not in str(caught.value)
    assert site.waits == []
