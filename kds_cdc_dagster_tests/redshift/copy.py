"""COPY … FROM 's3://…' FORMAT AS PARQUET [MANIFEST], by Redshift's rules: all or nothing, columns by position."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from kds_cdc_dagster_tests.redshift.backend import Backend
from kds_cdc_dagster_tests.redshift.bucket import S3Place
from kds_cdc_dagster_tests.redshift.options import CREDENTIALS, FLAG, TEXT, options
from kds_cdc_dagster_tests.redshift.tokens import Token, closing, join, literal
from kds_cdc_dagster_tests.redshift.wire import Refused

_OPTIONS = {
    **CREDENTIALS,
    "manifest": FLAG,
    "statupdate": FLAG,
    "fillrecord": FLAG,
    "acceptinvchars": TEXT,
    "explicit_ids": FLAG,
}
_STRING_TOO_LONG, _INVALID_TEXT = 1204, 1220


@dataclass(frozen=True)
class Column:
    """A target column: name, PostgreSQL's name of its type, width in bytes of a VARCHAR."""

    name: str
    type: str

    @property
    def width_bytes(self) -> int | None:
        """Bytes a VARCHAR holds."""
        match = re.fullmatch(r"character(?: varying)?\((\d+)\)", self.type)
        return int(match[1]) if match else None

    @property
    def arrow(self) -> tuple[pa.DataType, ...]:
        """The file types this column takes; none for those that Parquet cannot load."""
        if match := re.fullmatch(r"numeric\((\d+),(\d+)\)", self.type):
            return (pa.decimal128(int(match[1]), int(match[2])),)
        if self.width_bytes:
            return (pa.string(), pa.large_string())
        return _ARROW.get(self.type, ())


_STAMPS = (pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"))
_ARROW: dict[str, tuple[pa.DataType, ...]] = {
    "smallint": (pa.int16(),),
    "integer": (pa.int32(),),
    "bigint": (pa.int64(),),
    "real": (pa.float32(),),
    "double precision": (pa.float64(),),
    "boolean": (pa.bool_(),),
    "date": (pa.date32(),),
    "timestamp without time zone": _STAMPS,
    "timestamp with time zone": _STAMPS,
}


@dataclass(frozen=True)
class Copy:
    """A parsed COPY."""

    table: str
    columns: tuple[str, ...]
    url: str
    options: dict[str, str]

    @classmethod
    def parse(cls, parts: Sequence[Token]) -> Copy:
        """From its tokens. Raises Refused."""
        at = next((i for i, part in enumerate(parts) if part.text == "from"), len(parts))
        head, tail = parts[1:at], parts[at + 1 :]
        if not tail or tail[0].kind != "text":
            raise Refused("42601", "syntax error: COPY … FROM takes one literal")
        opening = next((i for i, part in enumerate(head) if part.text == "("), len(head))
        names = head[opening + 1 : closing(head, opening)] if opening < len(head) else []
        columns = tuple(part.text.strip('"') for part in names if part.text != ",")
        return cls(join(head[:opening]), columns, literal(tail[0]), options(tail[1:], _OPTIONS, "COPY"))


def run(copy: Copy, backend: Backend, place: S3Place) -> int:
    """Load; the number of rows. Raises Refused; the caller rolls back. LoadError names the file and column."""
    columns = _columns(copy, backend)
    urls = _manifest(place, copy.url) if "manifest" in copy.options else [(u, None) for u in place.under(copy.url)]
    if not urls:
        raise Refused("XX000", f"The specified S3 prefix '{copy.url}' does not exist")
    names = ", ".join(f'"{column.name}"' for column in columns)
    rows = 0
    for url, size_bytes in urls:
        table = _read(place, url, size_bytes, columns, is_filled="fillrecord" in copy.options)
        _check(copy.table, url, table, columns)
        backend.copy_in(f"copy {copy.table} ({names}) from stdin with (format csv)", _lines(table))
        rows += table.num_rows
    return rows


class LoadError(Refused):
    """A value that does not fit; leaves a row in sys_load_error_detail, which outlives the rollback."""

    def __init__(self, table: str, url: str, column: Column, line: int, code: int, text: str) -> None:
        super().__init__(
            "XX000",
            f"Load into table '{table}' failed.  Check 'sys_load_error_detail' system table for details.",
        )
        self.row = (url, line, column.name, "varchar", str(column.width_bytes or ""), code, text)


def _columns(copy: Copy, backend: Backend) -> list[Column]:
    rows = backend.query(
        "select attname, format_type(atttypid, atttypmod), attidentity from pg_attribute "
        f"where attrelid = '{copy.table}'::regclass and attnum > 0 and not attisdropped order by attnum"
    ).values
    known = {str(name): Column(str(name), str(type_)) for name, type_, identity in rows if not identity}
    if missing := [name for name in copy.columns if name not in known]:
        raise Refused("42703", f'column "{missing[0]}" of relation "{copy.table}" does not exist')
    return [known[name] for name in copy.columns] if copy.columns else list(known.values())


def _manifest(place: S3Place, url: str) -> list[tuple[str, int | None]]:
    """(URL, size) of each entry that is there. An entry listed twice is loaded twice."""
    try:
        entries = json.loads(place.get(url))["entries"]
    except (ValueError, KeyError, TypeError) as error:
        raise Refused("XX000", "Problem reading manifest file - JSON is not valid") from error
    return [found for entry in entries if (found := _entry(place, entry))]


def _entry(place: S3Place, entry: dict[str, Any]) -> tuple[str, int] | None:
    if "content_length" not in entry.get("meta", {}):
        raise _scan_error(15003, "File entry does not have 'meta' key.")
    try:
        place.get(entry["url"])
    except Refused:
        if entry.get("mandatory", False):
            raise
        return None  # Skipped in silence: why every entry must say mandatory.
    return entry["url"], entry["meta"]["content_length"]


def _read(place: S3Place, url: str, size_bytes: int | None, columns: Sequence[Column], *, is_filled: bool) -> pa.Table:
    body = place.get(url)
    if size_bytes is not None and size_bytes != len(body):
        raise _scan_error(15001, f"Size of file {url} is {len(body)}, its manifest entry says {size_bytes}")
    try:
        table = pq.ParquetFile(io.BytesIO(body)).read()
    except pa.ArrowInvalid as error:
        raise _scan_error(15007, f"File '{url}' has an invalid version number.") from error
    if is_filled:
        for column in columns[table.num_columns :]:
            table = table.append_column(column.name, pa.nulls(table.num_rows, column.arrow[0]))
    if table.num_columns != len(columns):
        counts = f"Table columns: {len(columns)}, Data columns: {table.num_columns}"
        raise _scan_error(15007, f"Unmatched number of columns between table and file. {counts}, File name: {url}")
    return table


def _check(table_name: str, url: str, table: pa.Table, columns: Sequence[Column]) -> None:
    for column, field, values in zip(columns, table.schema, table.columns, strict=True):
        if field.type not in column.arrow:
            text = f"File '{url}' has an incompatible Parquet schema for column '{field.name}'"
            raise _scan_error(15007, f"{text}. Column type: {column.type}, Parquet type: {field.type}")
        if column.width_bytes is None:
            continue
        lengths = pc.binary_length(values)
        if line := _first(pc.greater(lengths, column.width_bytes)):
            raise LoadError(table_name, url, column, line, _STRING_TOO_LONG, "String length exceeds DDL length")
        if line := _first(pc.match_substring(values, "\0")):
            text = "String contains invalid or unsupported UTF8 codepoints. Bad UTF8 hex sequence: 00 (error 3)"
            raise LoadError(table_name, url, column, line, _INVALID_TEXT, text)


def _first(is_wrong: pa.ChunkedArray) -> int:
    """Line (from 1) of the first true; 0 if there is none."""
    return int(pc.index(is_wrong, pa.scalar(value=True)).as_py()) + 1


def _lines(table: pa.Table) -> bytes:
    """CSV as PostgreSQL reads it: strings quoted, null empty."""
    columns = [pc.cast(column, pa.string()) if pa.types.is_decimal(column.type) else column for column in table.columns]
    sink = io.BytesIO()
    plain = pa.table(columns, names=[str(index) for index in range(len(columns))])
    pyarrow.csv.write_csv(plain, sink, pyarrow.csv.WriteOptions(include_header=False))
    return sink.getvalue()


def _scan_error(code: int, context: str) -> Refused:
    rule = "-" * 47
    detail = f"\n  {rule}\n  error:  Spectrum Scan Error\n  code:      {code}\n  context:   {context}\n  {rule}\n"
    return Refused("XX000", "Spectrum Scan Error", detail)
