"""The stand-in as redshift_connector meets it: start-up, results, errors, transactions, faults."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from redshift_connector.error import InterfaceError, ProgrammingError

from kds_cdc_dagster_tests.redshift import faults
from kds_cdc_dagster_tests.redshift.postgres import Postgres
from kds_cdc_dagster_tests.redshift.server import RedshiftStandIn, redshift_with_s3
from kds_cdc_dagster_tests.redshift.sessions import connect, error_of, is_open, rows


@pytest.fixture(scope="module")
def running() -> Iterator[RedshiftStandIn]:
    """One stand-in for the module."""
    with redshift_with_s3() as stand_in:
        yield stand_in


@pytest.fixture
def redshift(running: RedshiftStandIn) -> Iterator[RedshiftStandIn]:
    """The stand-in with an empty table `t` and without faults."""
    with closing(connect(running, is_autocommit=True)) as connection:
        connection.cursor().execute("drop table if exists t")
        connection.cursor().execute("create table t (a integer, b varchar(10))")
    yield running
    running.faults.clear()


def test_rowcounts_are_those_of_redshift(redshift: RedshiftStandIn) -> None:
    """DML counts, everything else answers -1: a loader that trusts COPY's or SELECT's rowcount fails here too."""
    with closing(connect(redshift)) as connection, connection.cursor() as cursor:
        cursor.execute("insert into t values (%s, %s), (%s, %s)", (1, "x", 2, None))
        assert cursor.rowcount == 2
        cursor.execute("update t set b = 'y' where a = 1")
        assert cursor.rowcount == 1
        cursor.execute("select a, b from t order by a")
        assert (cursor.rowcount, cursor.fetchall()) == (-1, ([1, "y"], [2, None]))
        cursor.execute("create temp table u as select a from t")
        assert cursor.rowcount == -1


def test_wrong_password_is_an_interface_error(redshift: RedshiftStandIn) -> None:
    """Refused credentials look as the driver makes them look on Redshift (28000)."""
    with pytest.raises(InterfaceError, match="28000"):
        connect(redshift, password="wrong")


def test_unknown_database_is_told_at_connect(redshift: RedshiftStandIn) -> None:
    """Only the stand-in's own database exists."""
    with pytest.raises(ProgrammingError, match="3D000"):
        connect(redshift, database="other")


def test_error_leaves_the_transaction_failed_until_rollback(redshift: RedshiftStandIn) -> None:
    """Errors are dicts of wire fields; the transaction takes nothing more; commit then silently rolls back."""
    with closing(connect(redshift)) as connection, connection.cursor() as cursor:
        cursor.execute("insert into t values (1, 'x')")
        error = error_of(cursor, "select * from missing")
        assert (error["S"], error["C"]) == ("ERROR", "42P01")
        assert is_open(connection)
        assert error_of(cursor, "select 1")["C"] == "25P02"
        connection.commit()
        assert not is_open(connection)
    assert rows(redshift, "select count(*) from t") == [[0]]


def test_refused_statement_fails_the_transaction_too(redshift: RedshiftStandIn) -> None:
    """What the proxy refuses has the same consequences as what the server refuses."""
    with closing(connect(redshift)) as connection, connection.cursor() as cursor:
        cursor.execute("insert into t values (1, 'x')")
        assert error_of(cursor, "insert into t values (1, 'x') on conflict do nothing")["C"] == "42601"
        assert error_of(cursor, "select 1")["C"] == "25P02"


def test_truncate_commits_what_came_before(redshift: RedshiftStandIn) -> None:
    """TRUNCATE ends the transaction it runs in: a rollback brings nothing back."""
    with closing(connect(redshift)) as connection, connection.cursor() as cursor:
        cursor.execute("create table if not exists kept (a integer)")
        cursor.execute("insert into t values (1, 'x')")
        cursor.execute("insert into kept values (1)")
        cursor.execute("truncate table t")
        assert not connection.in_transaction
        connection.rollback()
    assert rows(redshift, "select (select count(*) from t), (select count(*) from kept)") == [[0, 1]]


def test_cached_statements_survive_ddl_and_rollback(redshift: RedshiftStandIn) -> None:
    """Statement names recycled by the driver after DDL and ROLLBACK never run an older statement again."""
    with closing(connect(redshift, max_prepared_statements=1000)) as connection, connection.cursor() as cursor:
        for turn in range(3):
            cursor.execute("insert into t values (%s, 'x')", (turn,))
            cursor.execute("truncate table t")
            cursor.execute("insert into t values (%s, 'y')", (turn,))
            cursor.execute(f"create table made_{turn} (a integer)")
            connection.rollback()
            cursor.execute("select count(*) from t")
            assert cursor.fetchall() == ([0],)


def test_lost_race_is_1023(redshift: RedshiftStandIn) -> None:
    """Two transactions that change a row they both have seen: the second ends in Redshift's 1023."""
    with closing(connect(redshift)) as one, closing(connect(redshift)) as two:
        first, second = one.cursor(), two.cursor()
        first.execute("insert into t values (1, 'x')")
        one.commit()
        second.execute("select * from t")
        first.execute("update t set b = 'first'")
        one.commit()
        error = error_of(second, "update t set b = 'second'")
    assert (error["C"], error["M"]) == ("XX000", "1023")
    assert error["D"].startswith("Serializable isolation violation on table")


def test_lock_first_waits_and_sees_the_winner(redshift: RedshiftStandIn) -> None:
    """A transaction that locks before it reads takes its snapshot after the wait: no 1023."""
    with closing(connect(redshift)) as one, closing(connect(redshift)) as two:
        first, second = one.cursor(), two.cursor()
        first.execute("lock table t")
        first.execute("insert into t values (1, 'first')")
        waiting = threading.Thread(target=second.execute, args=("lock table t",))
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        one.commit()
        waiting.join(10)
        second.execute("select b from t")
        assert second.fetchall() == (["first"],)


def test_ordered_failure_hits_the_nth_execution_only(redshift: RedshiftStandIn) -> None:
    """A commit made to fail with 1023 has rolled its transaction back; the next one is left alone."""
    redshift.faults.fail("^commit", nth=2)
    with closing(connect(redshift)) as connection, connection.cursor() as cursor:
        for value in (1, 2, 3):
            cursor.execute("insert into t values (%s, 'x')", (value,))
            if value == 2:
                with pytest.raises(ProgrammingError, match="1023"):
                    connection.commit()
                assert not connection.in_transaction
            else:
                connection.commit()
    assert rows(redshift, "select a from t order by a") == [[1], [3]]


def test_ordered_failure_with_another_wording(redshift: RedshiftStandIn) -> None:
    """Any error can be ordered; inside a transaction it leaves the transaction failed."""
    redshift.faults.fail("insert into t", faults.CONFLICT)
    with closing(connect(redshift)) as connection, connection.cursor() as cursor:
        cursor.execute("select 1")
        assert "conflict with concurrent transaction" in error_of(cursor, "INSERT INTO t VALUES (1, 'x')")["M"]
        assert error_of(cursor, "select 1")["C"] == "25P02"


@pytest.mark.parametrize(("when", "expected"), [("before", []), ("after", [[1]])])
def test_connection_dropped_around_a_commit(
    redshift: RedshiftStandIn, when: faults.When, expected: list[list[int]]
) -> None:
    """The driver lets ConnectionResetError through unwrapped; what the server did depends on when it was cut."""
    redshift.faults.drop("^commit", when=when)
    with closing(connect(redshift)) as connection, connection.cursor() as cursor:
        cursor.execute("insert into t values (1, 'x')")
        with pytest.raises(ConnectionResetError):
            connection.commit()
        with pytest.raises((OSError, InterfaceError)):
            cursor.execute("select 1")
    assert rows(redshift, "select a from t") == expected
    assert [executed.outcome for executed in redshift.statements if executed.sql == "commit"][-1] == "gone"


def test_delayed_and_held_statements_wait(redshift: RedshiftStandIn) -> None:
    """A delay is a time, a hold ends when the test says so: meanwhile other sessions go on."""
    redshift.faults.delay("insert into t", 0.2)
    gate = redshift.faults.hold("^commit")
    connection = connect(redshift)
    started_at = time.monotonic()
    connection.cursor().execute("insert into t values (1, 'x')")
    assert time.monotonic() - started_at >= 0.2
    committing = threading.Thread(target=connection.commit)
    committing.start()
    assert gate.reached.wait(10)
    assert rows(redshift, "select a from t") == []
    gate.release.set()
    committing.join(10)
    assert rows(redshift, "select a from t") == [[1]]
    connection.close()


def test_statements_are_recorded_as_sent_with_their_outcome(redshift: RedshiftStandIn) -> None:
    """Assertions can look at what a loader really said, refused statements included."""
    redshift.statements.clear()
    with closing(connect(redshift, is_autocommit=True)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT  a FROM t -- comment")
        error_of(cursor, "savepoint s")
    assert [(e.sql, e.outcome) for e in redshift.statements] == [
        ("SELECT  a FROM t -- comment", "done"),
        ("savepoint s", "0A000"),
    ]


def test_stop_ends_everything_it_started() -> None:
    """After the last stop neither a server process of ours nor a listener is left, open connections or not."""
    postgres = Postgres()
    with redshift_with_s3(postgres) as stand_in:
        connection = connect(stand_in)
        connection.cursor().execute("select 1")
        port, pid = stand_in.connect_kwargs["port"], postgres.pid
    with pytest.raises((OSError, InterfaceError)):
        connection.cursor().execute("select 1")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()
    assert pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
