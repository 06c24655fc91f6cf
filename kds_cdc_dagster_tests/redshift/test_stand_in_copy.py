"""COPY and UNLOAD of the stand-in over a real S3 protocol."""

from __future__ import annotations

import datetime as dt
import io
import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from redshift_connector.error import ProgrammingError

from kds_cdc_dagster_tests.redshift.loading import put_manifest, put_parquet
from kds_cdc_dagster_tests.redshift.server import ROLE, RedshiftStandIn, redshift_with_s3
from kds_cdc_dagster_tests.redshift.sessions import connect, error_of, rows

_FOLDERS = (f"f{number}/" for number in itertools.count())
_STRINGS = pa.table({"x": pa.array([1, 2], pa.int32()), "y": ["é", None]})


@pytest.fixture(scope="module")
def redshift() -> Iterator[RedshiftStandIn]:
    """One stand-in with tables `t` and `wide`."""
    with redshift_with_s3() as stand_in:
        with closing(connect(stand_in, is_autocommit=True)) as connection:
            connection.cursor().execute("create table t (a integer, b varchar(4))")
            connection.cursor().execute(
                "create table wide (i bigint, n numeric(12,2), d double precision, f boolean, day date, "
                "at timestamp, seen timestamptz, v varchar(20))"
            )
        yield stand_in


@pytest.fixture
def folder(redshift: RedshiftStandIn) -> Iterator[str]:
    """A fresh folder of the bucket; `t` is empty."""
    with closing(connect(redshift, is_autocommit=True)) as connection:
        connection.cursor().execute("truncate table t")
    yield next(_FOLDERS)
    redshift.faults.clear()


def copied(stand_in: RedshiftStandIn, url: str, *, table: str = "t", clauses: str = "MANIFEST") -> int:
    """COPY in a transaction of its own; what pg_last_copy_count() says."""
    with closing(connect(stand_in)) as connection, connection.cursor() as cursor:
        cursor.execute(f"COPY {table} FROM '{url}' IAM_ROLE '{ROLE}' FORMAT AS PARQUET {clauses}")
        assert cursor.rowcount == -1
        cursor.execute("select pg_last_copy_count()")
        ((count,),) = cursor.fetchall()
        connection.commit()
        return int(count)


def refused(stand_in: RedshiftStandIn, url: str, *, table: str = "t", clauses: str = "MANIFEST") -> dict[str, str]:
    """The error of such a COPY."""
    with pytest.raises(ProgrammingError) as caught:
        copied(stand_in, url, table=table, clauses=clauses)
    return dict(caught.value.args[0])


def manifest(stand_in: RedshiftStandIn, folder: str, *tables: pa.Table, **changed: Any) -> str:
    """Write tables and a manifest over them, the last entry changed."""
    entries = [put_parquet(stand_in.s3, f"{folder}{n}.parquet", table) for n, table in enumerate(tables)]
    entries[-1].update(changed)
    return put_manifest(stand_in.s3, f"{folder}manifest", entries)


def test_copy_loads_by_position_and_counts(redshift: RedshiftStandIn, folder: str) -> None:
    """Columns match by position, whatever their names; count and notice tell the rows."""
    assert copied(redshift, manifest(redshift, folder, _STRINGS, _STRINGS)) == 4
    assert rows(redshift, "select a, b from t order by a") == [[1, "é"], [1, "é"], [2, None], [2, None]]


def test_copy_keeps_every_type_exactly(redshift: RedshiftStandIn, folder: str) -> None:
    """Values of each type arrive as they were written; an empty string is not null."""
    at = dt.datetime(204, 6, 20, 1, 2, 3, 456789)  # noqa: DTZ001  (TIMESTAMP has no zone)
    values = [2**62, Decimal("-0.01"), 0.1, True, dt.date(9999, 12, 31), at, at.replace(tzinfo=dt.UTC), "a,\"b'\n"]
    types = [pa.int64(), pa.decimal128(12, 2), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us")]
    schema = pa.schema(zip("abcdefgh", [*types, pa.timestamp("us", "UTC"), pa.string()], strict=True))
    lines = [dict(zip("abcdefgh", row, strict=True)) for row in (values, [None] * 7 + [""], [None] * 8)]
    url = manifest(redshift, folder, pa.Table.from_pylist(lines, schema))
    assert copied(redshift, url, table="wide") == 3
    assert rows(redshift, "select * from wide where v <> ''") == [values]
    assert rows(redshift, "select count(*), count(v), count(i) from wide") == [[3, 2, 1]]


def test_copy_listed_twice_loads_twice(redshift: RedshiftStandIn, folder: str) -> None:
    """COPY has no memory of files."""
    entry = put_parquet(redshift.s3, f"{folder}a.parquet", _STRINGS)
    assert copied(redshift, put_manifest(redshift.s3, f"{folder}m", [entry, entry])) == 4


def test_copy_of_a_missing_file(redshift: RedshiftStandIn, folder: str) -> None:
    """Mandatory: an error, nothing loaded. Not mandatory: fewer rows, in silence."""
    gone = redshift.s3.url(f"{folder}gone.parquet")
    url = manifest(redshift, folder, _STRINGS, _STRINGS, url=gone)
    assert "NoSuchKey" in refused(redshift, url)["M"]
    assert rows(redshift, "select count(*) from t") == [[0]]
    assert copied(redshift, manifest(redshift, folder, _STRINGS, _STRINGS, url=gone, mandatory=False)) == 2


@pytest.mark.parametrize(
    ("changed", "code"), [({"meta": {}}, "15003"), ({"meta": {"content_length": 5}}, "15001")], ids=["none", "wrong"]
)
def test_copy_needs_true_lengths(redshift: RedshiftStandIn, folder: str, changed: dict[str, Any], code: str) -> None:
    """A Parquet manifest entry must carry the file's length."""
    assert code in refused(redshift, manifest(redshift, folder, _STRINGS, **changed))["D"]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (_STRINGS.append_column("z", pa.array([1, 2])), "Table columns: 2, Data columns: 3"),
        (_STRINGS.set_column(0, "x", pa.array([1, 2], pa.int64())), "incompatible Parquet schema for column 'x'"),
        (_STRINGS.set_column(1, "y", pa.array([b"a", b"b"])), "incompatible Parquet schema for column 'y'"),
    ],
    ids=["count", "width", "binary"],
)
def test_copy_refuses_another_schema(redshift: RedshiftStandIn, folder: str, table: pa.Table, text: str) -> None:
    """Count and types of columns must fit; the error is Redshift's 15007."""
    error = refused(redshift, manifest(redshift, folder, table))
    assert (error["C"], error["M"]) == ("XX000", "Spectrum Scan Error")
    assert "15007" in error["D"]
    assert text in error["D"]


def test_copy_counts_bytes_and_tells_where(redshift: RedshiftStandIn, folder: str) -> None:
    """One value of too many bytes: no row of any file is loaded, and the error's place outlives the rollback."""
    long = pa.table({"x": pa.array([1, 2], pa.int32()), "y": ["abcd", "éé!"]})
    error = refused(redshift, manifest(redshift, folder, _STRINGS, long))
    assert error["M"].startswith("Load into table 't' failed.")
    assert rows(redshift, "select count(*) from t") == [[0]]
    found = rows(
        redshift, "select trim(file_name), line_number, trim(column_name), error_code from sys_load_error_detail"
    )
    assert found == [[redshift.s3.url(f"{folder}1.parquet"), 2, "b", 1204]]


@pytest.mark.parametrize("clauses", ["MANIFEST MAXERROR 5", "MANIFEST REGION 'us-east-1'", "MANIFEST TRUNCATECOLUMNS"])
def test_copy_of_parquet_has_few_options(redshift: RedshiftStandIn, folder: str, clauses: str) -> None:
    """Options of text formats are refused."""
    error = refused(redshift, manifest(redshift, folder, _STRINGS), clauses=clauses)
    assert "not supported for PARQUET based COPY" in error["M"]


def test_copy_by_prefix_takes_the_neighbour_too(redshift: RedshiftStandIn, folder: str) -> None:
    """RS-09: without a manifest, batch=12 means batch=120 as well, and a manifest is read as data."""
    for batch in ("12/a", "120/a"):
        put_parquet(redshift.s3, f"{folder}batch={batch}.parquet", _STRINGS)
    assert copied(redshift, redshift.s3.url(f"{folder}batch=12"), clauses="") == 4
    assert "15007" in refused(redshift, manifest(redshift, folder, _STRINGS), clauses="")["D"]


def test_copy_under_another_role(redshift: RedshiftStandIn, folder: str) -> None:
    """Only the cluster's role reaches S3."""
    with closing(connect(redshift)) as connection:
        sql = f"copy t from '{manifest(redshift, folder, _STRINGS)}' iam_role 'arn:other' format parquet manifest"
        assert "not authorized to assume" in error_of(connection.cursor(), sql)["M"]


def test_copy_cut_off_midway_leaves_nothing(redshift: RedshiftStandIn, folder: str) -> None:
    """Also in autocommit a COPY is one whole."""
    redshift.faults.drop("^copy", when="midway")
    url = manifest(redshift, folder, _STRINGS)
    with closing(connect(redshift, is_autocommit=True)) as connection, pytest.raises(ConnectionResetError):
        connection.cursor().execute(f"copy t from '{url}' iam_role default format as parquet manifest")
    assert rows(redshift, "select count(*) from t") == [[0]]


def unloaded(stand_in: RedshiftStandIn, prefix: str, clauses: str = "", query: str = "select a, b from t") -> int:
    """UNLOAD; what pg_last_unload_count() says."""
    with closing(connect(stand_in)) as connection, connection.cursor() as cursor:
        text = query.replace("'", "''")
        where = f"'{stand_in.s3.url(prefix)}' IAM_ROLE '{ROLE}'"
        cursor.execute(f"UNLOAD ('{text}') TO {where} FORMAT AS PARQUET {clauses} MANIFEST VERBOSE")
        cursor.execute("select pg_last_unload_count()")
        return int(cursor.fetchall()[0][0])


def objects(stand_in: RedshiftStandIn, prefix: str) -> list[str]:
    """Keys under a prefix, without it."""
    return [url.removeprefix(stand_in.s3.url(prefix)) for url in stand_in.s3.under(stand_in.s3.url(prefix))]


def test_unload_partitions_and_tells_in_the_manifest(redshift: RedshiftStandIn, folder: str) -> None:
    """Folders per value, the column dropped from the files, true lengths and counts in the manifest."""
    copied(redshift, manifest(redshift, folder, _STRINGS, _STRINGS))
    assert unloaded(redshift, f"{folder}out/", "PARTITION BY (b)", "select a, b from t where a > 0 or b = 'é'") == 4
    names = objects(redshift, f"{folder}out/")
    assert names == [
        *(f"b=__HIVE_DEFAULT_PARTITION__/000{n}_part_00.parquet" for n in (0, 1)),
        *(f"b=é/000{n}_part_00.parquet" for n in (0, 1)),
        "manifest",
    ]
    listed = json.loads(redshift.s3.get(redshift.s3.url(f"{folder}out/manifest")))
    assert listed["meta"]["record_count"] == 4
    for entry in listed["entries"]:
        body = redshift.s3.get(entry["url"])
        assert entry["meta"] == {"content_length": len(body), "record_count": 1}
        assert pq.read_table(io.BytesIO(body)).column_names == ["a"]


def test_unload_refuses_what_would_overwrite(redshift: RedshiftStandIn, folder: str) -> None:
    """A used prefix is refused; ALLOWOVERWRITE mixes with old parts; CLEANPATH removes them."""
    copied(redshift, manifest(redshift, folder, _STRINGS))
    prefix = f"{folder}out/"
    unloaded(redshift, prefix, "PARTITION BY (b) INCLUDE")
    with pytest.raises(ProgrammingError, match="is not empty"):
        unloaded(redshift, prefix)
    unloaded(redshift, prefix, "ALLOWOVERWRITE", "select a, b from t where a = 1")
    assert len(objects(redshift, prefix)) == 4
    unloaded(redshift, prefix, "CLEANPATH", "select a, b from t where a = 1")
    assert objects(redshift, prefix) == ["0000_part_00.parquet", "manifest"]


def test_unload_of_nothing_writes_nothing(redshift: RedshiftStandIn, folder: str) -> None:
    """No rows: no files and no manifest (the worse case; what Redshift does is not documented)."""
    assert unloaded(redshift, f"{folder}out/") == 0
    assert objects(redshift, f"{folder}out/") == []


def test_unload_refuses_an_outer_limit(redshift: RedshiftStandIn, folder: str) -> None:
    """LIMIT must be nested."""
    with pytest.raises(ProgrammingError, match="Limit clause"):
        unloaded(redshift, f"{folder}out/", query="select a from t limit 1")
    assert unloaded(redshift, f"{folder}out/", query="select a from (select a from t limit 1) x") == 0


def test_unload_cut_off_leaves_files_without_a_manifest(redshift: RedshiftStandIn, folder: str) -> None:
    """S3 is outside of the transaction: only the manifest says that an export is whole."""
    copied(redshift, manifest(redshift, folder, _STRINGS))
    redshift.faults.drop("^unload", when="midway")
    with pytest.raises(ConnectionResetError):
        unloaded(redshift, f"{folder}out/")
    assert objects(redshift, f"{folder}out/") == ["0000_part_00.parquet", "0001_part_00.parquet"]
