"""The stand-in's SQL: it takes Redshift's words, refuses PostgreSQL's, and is as weak on keys as Redshift."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
from redshift_connector.cursor import Cursor

from kds_cdc_dagster_tests.redshift.server import RedshiftStandIn, redshift_with_s3
from kds_cdc_dagster_tests.redshift.sessions import connect, error_of, rows


@pytest.fixture(scope="module")
def redshift() -> Iterator[RedshiftStandIn]:
    """One stand-in with two tables: `cur.orders` and `work`."""
    with redshift_with_s3() as stand_in:
        with closing(connect(stand_in, is_autocommit=True)) as connection:
            connection.cursor().execute("create schema cur")
            for table in ("cur.orders", "work"):
                connection.cursor().execute(f"create table {table} (id bigint, v varchar(10), pos bigint)")
        yield stand_in


@pytest.fixture
def cursor(redshift: RedshiftStandIn) -> Iterator[Cursor]:
    """A cursor in autocommit."""
    with closing(connect(redshift, is_autocommit=True)) as connection, connection.cursor() as opened:
        yield opened


@pytest.mark.parametrize(
    "sql",
    [
        "insert into work values (1, 'a', 1) on conflict do nothing",
        "delete from work where id = 1 returning id",
        "select distinct on (id) id, v from work",
        "savepoint a",
        "create index i on work (id)",
        "create sequence s",
        "create table x (id bigserial)",
        "create table x (id uuid)",
        "create table x (id bigint, doc jsonb)",
        "create table x (names varchar(10)[])",
        "create table x (v varchar(65536))",
        "create table x (n numeric(39, 2))",
        "create table x (v varchar(5) check (v > 'a'))",
        "alter table work add column doc json",
        "alter table work add column x integer, add column y integer",
        "alter table work add column if not exists x integer",
        "select v::uuid from work",
        "select array[1, 2]",
        "select * from (values (1), (2)) as v (a)",
        "with gone as (delete from work returning id) select * from gone",
        "insert into work select g, 'x', g from generate_series(1, 3) g",
        "select now()",
        "select id from work where v < current_timestamp::varchar",
        "select string_agg(v, ',') from work",
        "delete from cur.orders o using work where o.id = work.id",
        "delete from cur.orders as o using work where o.id = work.id",
        (
            "merge into cur.orders o using work s on o.id = s.id when matched then update set v = s.v "
            "when not matched then insert (id) values (s.id)"
        ),
        (
            "merge into cur.orders using work s on orders.id = s.id when matched and s.pos > orders.pos then "
            "update set v = s.v when not matched then insert (id) values (s.id)"
        ),
        (
            "merge into cur.orders using work s on orders.id = s.id when matched then delete "
            "when matched then update set v = s.v when not matched then insert (id) values (s.id)"
        ),
        (
            "merge into cur.orders using work s on orders.id = s.id when matched then do nothing "
            "when not matched then insert (id) values (s.id)"
        ),
        "merge into cur.orders using work s on orders.id = s.id when matched then update set v = s.v",
        "select id from work where v is distinct from 'a'",
        'select max(v collate "C") from work',
        "select count(*) filter (where pos > 1) from work",
        "select id from work except all select id from cur.orders",
        "select id from work for update",
        "create temp table x (a integer) on commit drop",
        "select last_value(v) over (partition by id order by pos) from work",
        "select 1; select 2",
        "select 1 limit 1 qualify 1",
        "select id from work qualify row_number() over (partition by id order by pos) = 1",
    ],
)
def test_what_redshift_refuses_is_refused(cursor: Cursor, sql: str) -> None:
    """A statement that only PostgreSQL takes never passes a test."""
    assert error_of(cursor, sql)["C"] in {"42601", "0A000", "42704", "42883", "22023"}


@pytest.mark.parametrize(
    "sql",
    [
        (
            "merge into cur.orders using work s on orders.id = s.id when matched then update set v = s.v, pos = s.pos "
            "when not matched then insert (id, v, pos) values (s.id, s.v, s.pos)"
        ),
        "delete from work using cur.orders where orders.id = work.id and orders.pos >= work.pos",
        (
            "insert into cur.orders (id, v, pos) select id, v, pos from (select s.*, row_number() over "
            "(partition by id order by pos desc) rn from work s) t where rn = 1"
        ),
        (
            "select last_value(v) over (partition by id order by pos rows between unbounded preceding "
            "and unbounded following) from work"
        ),
        "select nvl(v, 'x'), len(v), getdate(), sysdate, 'now() on conflict' from work -- returning",
        "select json_serialize(json_parse('[1]')), from_varbyte(to_varbyte('00ff', 'hex'), 'hex')",
        "set query_group to 'loader'",
        "set statement_timeout to 1000",
        "analyze work",
    ],
)
def test_what_redshift_takes_is_taken(cursor: Cursor, sql: str) -> None:
    """Redshift's own words, and PostgreSQL's words inside of literals and comments, pass."""
    cursor.execute(sql)


def test_ddl_words_of_redshift(redshift: RedshiftStandIn, cursor: Cursor) -> None:
    """Distribution, sorting, encoding, identity, SUPER, VARBYTE, VARCHAR(MAX) and late-binding views exist."""
    cursor.execute(
        'CREATE TABLE IF NOT EXISTS cur."Made" (id bigint identity(1,1), "Key" bigint NOT NULL ENCODE az64, '
        "v varchar(max), doc super, raw varbyte(10), at timestamptz, n decimal(12,2), u varchar(9) UNIQUE, "
        "PRIMARY KEY (key)) DISTSTYLE KEY DISTKEY(key) COMPOUND SORTKEY(at, key)"
    )
    cursor.execute("insert into cur.made (key, doc, raw) values (1, json_parse(%s), to_varbyte('ff', 'hex'))", ("[]",))
    cursor.execute("create or replace view cur.seen as select id, key from cur.made with no schema binding")
    cursor.execute("create or replace view cur.seen as select key from cur.MADE with no schema binding")
    cursor.execute("create temp table copied distkey(key) sortkey(key) as select key from cur.made")
    assert rows(redshift, "select id, key, doc from cur.made") == [[1, 1, "[]"]]
    assert rows(redshift, 'select "KEY" from cur.seen') == [[1]]


def test_keys_are_not_enforced_but_not_null_is(redshift: RedshiftStandIn, cursor: Cursor) -> None:
    """A duplicate key goes in without an error, as on Redshift; a null key does not."""
    cursor.execute("create table keyed (a integer primary key, b integer unique, primary key (a, b))")
    cursor.execute("insert into keyed values (1, 1), (1, 1)")
    assert rows(redshift, "select count(*) from keyed") == [[2]]
    assert error_of(cursor, "insert into keyed values (1, null)")["C"] == "23502"


def test_varchar_counts_bytes(redshift: RedshiftStandIn, cursor: Cursor) -> None:
    """Four é are eight bytes and do not fit VARCHAR(5), in a new table, a copied one and an added column."""
    cursor.execute("create table narrow (a integer, v varchar(5), t text)")
    cursor.execute("alter table narrow add column w varchar(5)")
    cursor.execute("create temp table like_narrow (like narrow)")
    for table, column in (("narrow", "v"), ("narrow", "w"), ("like_narrow", "v")):
        assert error_of(cursor, f"insert into {table} ({column}) values ('éééé')")["C"] == "22001"
    assert error_of(cursor, f"insert into narrow (t) values ('{'x' * 257}')")["C"] == "22001"
    cursor.execute(f"select len('{'x' * 300}'::varchar), len(cast('{'x' * 300}' as text))")
    assert cursor.fetchall() == ([256, 256],)


def test_literal_column_of_a_created_table_is_narrow(cursor: Cursor) -> None:
    """CREATE TABLE AS makes '' one byte wide: what is inserted later must be told by a cast."""
    cursor.execute(
        "create temp table made as select u.* from (select id, '' as v, cast('' as varchar(9)) as w from work) u"
    )
    assert error_of(cursor, "insert into made values (1, 'ab', 'ab')")["C"] == "22001"
    cursor.execute("insert into made values (1, 'a', 'ab')")


def test_alter_column_only_widens_and_never_in_a_transaction(redshift: RedshiftStandIn, cursor: Cursor) -> None:
    """The same size is refused, a transaction block is refused, a wider VARCHAR then takes more bytes."""
    cursor.execute("create table wide (v varchar(5))")
    assert error_of(cursor, "alter table wide alter column v type varchar(5)")["C"] == "0A000"
    cursor.execute("alter table wide alter column v type varchar(8)")
    cursor.execute("insert into wide values ('éééé')")
    with closing(connect(redshift)) as connection:
        error = error_of(connection.cursor(), "alter table wide alter column v type varchar(9)")
    assert error["M"] == "ALTER TABLE ALTER COLUMN cannot run inside a transaction block"


def test_backslash_in_a_literal_is_an_escape(cursor: Cursor) -> None:
    r"""Redshift reads '\\' as one backslash: a value must travel as a parameter."""
    cursor.execute(r"select len('a\\b')")
    assert cursor.fetchall() == ([3],)


def test_json_parse_refuses_what_super_cannot_hold(cursor: Cursor) -> None:
    """Repeated keys and strings above 65,535 bytes are errors by default; a setting keeps the last of the keys."""
    assert "Duplicate" in error_of(cursor, """select json_parse('{"a": 1, "a": 2}')""")["M"]
    cursor.execute("set json_parse_dedup_attributes to on")
    cursor.execute("""select json_serialize(json_parse('[{"a": 1, "a": {"b": 2, "b": 3}}]'))""")
    assert [json.loads(text) for (text,) in cursor.fetchall()] == [[{"a": {"b": 3}}]]
    assert "65535" in error_of(cursor, f"""select json_parse('["{"x" * 65536}"]')""")["M"]
