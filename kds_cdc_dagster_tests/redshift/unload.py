"""UNLOAD ('select …') TO 's3://…' FORMAT AS PARQUET, by Redshift's rules. S3 is outside of the transaction."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kds_cdc_dagster_tests.redshift.backend import Backend, Rows
from kds_cdc_dagster_tests.redshift.bucket import S3Place
from kds_cdc_dagster_tests.redshift.options import COLUMNS, CREDENTIALS, FLAG, SIZE, TEXT, options
from kds_cdc_dagster_tests.redshift.refusals import refuse
from kds_cdc_dagster_tests.redshift.rewrite import is_simple_select, rewritten
from kds_cdc_dagster_tests.redshift.tokens import Token, closing, literal, tokens
from kds_cdc_dagster_tests.redshift.wire import Field, Refused

NODE_SLICES = 2
"""Each writes a file of its own, so that even a small export has several."""
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_OPTIONS = {
    **CREDENTIALS,
    "partition": COLUMNS,
    "manifest": FLAG,
    "verbose": FLAG,
    "header": FLAG,
    "allowoverwrite": FLAG,
    "cleanpath": FLAG,
    "parallel": FLAG,
    "maxfilesize": SIZE,
    "rowgroupsize": SIZE,
    "region": TEXT,
}


@dataclass(frozen=True)
class Unload:
    """A parsed UNLOAD."""

    query: str
    prefix: str
    options: dict[str, str]

    @classmethod
    def parse(cls, parts: Sequence[Token], status: bytes) -> Unload:
        """From its tokens. Raises Refused, also for a query that Redshift would not take."""
        end = closing(parts, 1)
        if [p.kind for p in parts[2:end]] != ["text"] or [p.text for p in parts[end + 1 : end + 2]] != ["to"]:
            raise Refused("42601", "syntax error: UNLOAD ('select-statement') TO 's3://…'")
        query = tokens(literal(parts[2]))
        refuse(query, status)
        if not is_simple_select(query):
            raise Refused("0A000", "Limit clause is not supported")
        rest = [part for part in parts[end + 3 :] if part.text != "by"]
        found = options(rest, _OPTIONS, "UNLOAD")
        if {"allowoverwrite", "cleanpath"} <= found.keys():
            raise Refused("0A000", "ALLOWOVERWRITE and CLEANPATH exclude each other")
        return cls(rewritten(query), literal(parts[end + 2]), found)

    @property
    def partition_columns(self) -> list[str]:
        """Columns that become folders."""
        names = self.options.get("partition", "").removesuffix(" include")
        return names.split(",") if names else []


def run(unload: Unload, backend: Backend, place: S3Place, before_manifest: Callable[[], None]) -> int:
    """Write the files, then (after `before_manifest`) the manifest; the number of rows. Raises Refused."""
    rows = backend.query(unload.query)
    table = _table(rows)
    if missing := [name for name in unload.partition_columns if name not in table.column_names]:
        raise Refused("42703", f"partition column {missing[0]} is not in the query's columns")
    files = list(_files(unload, table))
    _clear(unload, place)
    entries = []
    for url, part in files:
        body = _parquet(part)
        place.put(url, body)
        entries.append({"url": url, "meta": {"content_length": len(body), "record_count": part.num_rows}})
    before_manifest()
    if "manifest" in unload.options and entries:
        place.put(f"{unload.prefix}manifest", json.dumps(_manifest(unload, entries, rows.fields)).encode())
    return len(rows.values)


def _clear(unload: Unload, place: S3Place) -> None:
    if "cleanpath" in unload.options:
        place.remove(place.under(unload.prefix))
    elif "allowoverwrite" not in unload.options and next(place.under(unload.prefix), None):
        raise Refused(
            "XX000",
            "Specified unload destination on S3 is not empty. Consider using a different bucket / prefix, "
            "manually removing the target files in S3, or using the ALLOWOVERWRITE option.",
        )


def _files(unload: Unload, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """URL and rows of each file: per partition, per node slice that has rows. No rows: no file."""
    drop = [] if unload.options.get("partition", "").endswith(" include") else unload.partition_columns
    slices = NODE_SLICES if unload.options.get("parallel", "on") in {"on", "true"} else 1
    for folder, part in _partitions(unload.partition_columns, table):
        for number in range(min(slices, part.num_rows)):
            rows = part.take(list(range(number, part.num_rows, slices))).drop_columns(drop)
            yield f"{unload.prefix}{folder}{number:04d}_part_00.parquet", rows


def _partitions(names: Sequence[str], table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    if not names:
        yield "", table
        return
    for values in table.select(names).group_by(list(names)).aggregate([]).to_pylist():
        is_here = pa.array([True] * table.num_rows)
        for name, value in values.items():
            column = table[name]
            same = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), fill_value=False)
            is_here = pc.and_(is_here, same)
        folders = (f"{name}={_NULL_FOLDER if value is None else value}/" for name, value in values.items())
        yield "".join(folders), table.filter(is_here)


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="snappy")
    return sink.getvalue()


_BASES = {
    16: ("boolean", pa.bool_()),
    20: ("bigint", pa.int64()),
    21: ("smallint", pa.int16()),
    23: ("integer", pa.int32()),
    25: ("character varying", pa.string()),
    700: ("real", pa.float32()),
    701: ("double precision", pa.float64()),
    1042: ("character", pa.string()),
    1043: ("character varying", pa.string()),
    1082: ("date", pa.date32()),
    1083: ("time without time zone", pa.time64("us")),
    1114: ("timestamp without time zone", pa.timestamp("us")),
    1184: ("timestamp with time zone", pa.timestamp("us")),  # the value in UTC, without its zone
    3802: ("super", pa.string()),
}
_NUMERIC, _VARBYTE, _UNKNOWN = 1700, 17, 705


def _base(field: Field) -> tuple[str, pa.DataType]:
    if field.oid == _VARBYTE:
        raise Refused("0A000", f"UNLOAD to PARQUET does not support column {field.name} of type VARBYTE")
    if field.oid == _NUMERIC:
        precision, scale = ((field.modifier - 4) >> 16, (field.modifier - 4) & 0x7FF) if field.modifier > 0 else (38, 6)
        return "numeric", pa.decimal128(precision, scale)
    return _BASES.get(field.oid, _BASES[25])


def _table(rows: Rows) -> pa.Table:
    columns = list(zip(*rows.values, strict=True)) or [()] * len(rows.fields)
    arrays = [_array(field, values) for field, values in zip(rows.fields, columns, strict=True)]
    return pa.table(arrays, names=[field.name for field in rows.fields])


def _array(field: Field, values: Sequence[str | None]) -> pa.Array:
    kind = _base(field)[1]
    if kind == pa.bool_():
        return pa.array([None if value is None else value == "t" for value in values], kind)
    if pa.types.is_time(kind):
        return pa.array([value and dt.time.fromisoformat(value) for value in values], kind)
    if pa.types.is_timestamp(kind):
        values = [value and value.removesuffix("+00") for value in values]
    return pc.cast(pa.array(values, pa.string()), kind)


def _manifest(unload: Unload, entries: list[dict[str, Any]], fields: Sequence[Field]) -> dict[str, Any]:
    if "verbose" not in unload.options:
        return {"entries": [{"url": entry["url"]} for entry in entries]}
    total = {key: sum(entry["meta"][key] for entry in entries) for key in ("content_length", "record_count")}
    elements = [{"name": field.name, "type": {"base": _base(field)[0]}} for field in fields]
    author = {"name": "Amazon Redshift", "version": "1.0.0"}
    return {"entries": entries, "schema": {"elements": elements}, "meta": total, "author": author}
