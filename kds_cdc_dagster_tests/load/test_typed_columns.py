"""Bulk conversion and the scalar decoder are one rule."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kds_cdc_dagster.core.catalogue import Column
from kds_cdc_dagster.core.values import UNAVAILABLE, Undecodable, compile_decoder
from kds_cdc_dagster.load.typed_columns import ColumnReader
from kds_cdc_dagster_tests.core.decoders import source

MYSQL = source("mysql", time_precision_mode="adaptive_time_microseconds")
COLUMNS = [
    ("bigint", "int8", source()),
    ("smallint", "tinyint(1)", MYSQL),
    ("boolean", "tinyint(1)", MYSQL),
    ("boolean", "bool", source()),
    ("double", "float8", source()),
    ("decimal(9,3)", "numeric(9,2)", source()),
    ("decimal(9,3)", "numeric", source()),
    ("decimal(9,3)", "numeric(9,3)", source(decimal_handling_mode="string")),
    ("decimal(9,3)", "numeric(9,3)", source(decimal_handling_mode="double")),
    ("decimal(20,0)", "bigint unsigned", MYSQL),
    ("decimal(18,6)", "interval", source()),
    ("decimal(18,6)", "int", MYSQL),
    ("date", "date", source()),
    ("date", "date", source(infinity="quarantine")),
    ("time", "time(3)", source()),
    ("time", "time", source("sqlserver")),
    ("timestamp", "timestamp(3)", source()),
    ("timestamp", "datetime2", source("sqlserver")),
    ("timestamptz", "timestamptz", source()),
    ("timestamptz", "datetime(6)", MYSQL),
    ("varchar(8)", "text", source()),
    ("text", "text", source(unavailable_value_placeholder="<gone>")),
    ("json", "jsonb", source()),
    ("json", "text[]", source()),
    ("uuid", "uuid", source()),
    ("binary", "bytea", source()),
    ("binary", "bytea", source(binary_handling_mode="hex")),
]
PLACEHOLDERS = ["__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", "<gone>", "PGdvbmU+"]
TEXTS = [
    *PLACEHOLDERS,
    "",
    "a\0b",
    '{"a":1}',
    r'{"a":"\u0000"}',
    "[1",
    "BPs=",
    "-3.50",
    "1e3",
    "NaN",
    "+12.5",
    "7c1f3b52-9f5e-4d7a-8a61-2f0c4de91b10",
    "7C1F3B52-9F5E-4D7A-8A61-2F0C4DE91B10",
    "7c1f3b52-9f5e-4d7a-8a61-2f0c4de91b10\n",
    "2026-03-14T18:05:22Z",
    "2026-03-14T18:05:22.4170001-04:00",
    "2026-03-14 18:05:22Z",
    "2026-03-14",
    "infinity",
    "0000-00-00T00:00:00Z",
    "寿司",
    "__debezium:s3:ref:v1:b|k",
]
NUMBERS = [0, 1, -1, 5, 40_000, 1 << 31, 1 << 63, -(1 << 63), 20_526, 86_399_999_999, 86_400_000_000, 1773511524250451]
OTHERS: list[Any] = [
    None,
    True,
    False,
    [],
    ["x", None],
    ["\0"],
    {"scale": 2, "value": "BPs="},
    {"scale": 5, "value": "BPs="},
]
OTHERS += [[PLACEHOLDERS[0]], [PLACEHOLDERS[1]], list(PLACEHOLDERS[0].encode()), {"a": Decimal("1.50")}, {"scale": 2}]
BASE64 = [
    *("AQ==", "/w==", "FA==", "FB==", "Amqs", "////", "AMg=", "AAAAAAAA", "gAAAAAA=", "f/////8=", "AAAAAQA="),
    *(
        "f/////////8=",
        "gAAAAAAAAAA=",
        "AIAAAAAAAAAA",
        "AAAAAAAAAAAA",
        "AP///w==",
        "DeC2s6dkAAA=",
        "AA=A",
        "A===",
        "=A==",
    ),
    *("AAAAAAAAAAAAAAAAAAAB", "AQ", "AQ==AQ==", "-_==", "é===", "DUkkDN0UkkkkAAAA"),
]
"""Base64 of one to fifteen bytes, of the limits of 64 bits, and what is none."""
SCALED = [{"scale": scale, "value": text} for scale in (0, 2, 3, 5, -1, 40, True, "2") for text in (*BASE64[:4], 7)]
ARRAYS: list[Any] = [
    *([], [1, 2], [95, 0.5], ["a\nb", '"'], ["\\u0000"], ["\0"], [[1]], [None], {"b": 1, "a": Decimal("1.50")}, {}),
    *([PLACEHOLDERS[0]], [PLACEHOLDERS[2]], {PLACEHOLDERS[0]: PLACEHOLDERS[0]}, list(PLACEHOLDERS[2].encode())),
    [Decimal(n) for n in PLACEHOLDERS[0].encode()],
    [Decimal(f"{n}.0") for n in PLACEHOLDERS[2].encode()],
]
GUIDS = [text for text in TEXTS if text.lower().startswith("7c1f")]
DOCUMENTS = ["[1]", '{"a": 1}', "7", '""', "", "[1", r'["\u0000"]', r'["\\u0000"]', *PLACEHOLDERS[:1], "[" * 5000]
DECIMALS = [Decimal(text) for text in ("1.5", "12.0", "-0.001", "1e400", "1e-7", "123456.789", "1E+2")]


def by_decoder(values: list[Any], column: Column, by: Any) -> tuple[list[Any], list[int], list[tuple[int, str]]]:
    """What the scalar rule says: values, unavailable rows, refused rows with their rules."""
    decode = compile_decoder(column, by)
    found: list[Any] = []
    unavailable, refused = [], []
    for row, value in enumerate(values):
        try:
            found.append(decode(value))
        except Undecodable as error:
            found.append(None)
            refused.append((row, error.rule))
        if found[-1] is UNAVAILABLE:
            found[-1] = None
            unavailable.append(row)
    return found, unavailable, refused


def same(value: object) -> tuple[type, str]:
    """A form in which NaN equals itself, and True is not 1."""
    return type(value), str(value)


VALUES = st.one_of(
    st.sampled_from([*TEXTS, *NUMBERS, *OTHERS, *DECIMALS]),
    st.integers(-(1 << 64), 1 << 64),
    st.text(max_size=10),
    st.sampled_from(TEXTS),
)
ALIKE = st.one_of(
    st.lists(st.sampled_from(NUMBERS) | st.none(), max_size=6),
    st.lists(st.sampled_from(TEXTS) | st.none(), max_size=6),
    st.lists(st.sampled_from(DECIMALS) | st.none(), max_size=6),
    st.lists(st.sampled_from(OTHERS), max_size=6),
    *(
        st.lists(st.sampled_from(values), max_size=6) | st.lists(st.sampled_from(values) | st.none(), max_size=6)
        for values in (BASE64, BASE64[:11], SCALED, SCALED[:16], ARRAYS, ARRAYS[:8], GUIDS, GUIDS[:1], DOCUMENTS)
    ),
    st.lists(VALUES, max_size=6),
)


@pytest.mark.parametrize(
    ("target", "declared", "by"), COLUMNS, ids=lambda part: str(part) if isinstance(part, str) else ""
)
@settings(max_examples=60, deadline=None)
@given(values=ALIKE)
def test_bulk_and_decoder_agree_on_every_value(target: str, declared: str, by: Any, values: list[Any]) -> None:
    """Whatever stands in a column, the array holds what the decoder says, refusals and unknowns included."""
    column = Column(name="total", type=target, source_type=declared)
    found = ColumnReader(column, by).read(values)
    expected, unavailable, refused = by_decoder(values, column, by)
    assert list(map(same, found.array.to_pylist())) == list(map(same, expected))
    assert found.unavailable == unavailable
    assert [(row, error.rule) for row, error in found.refused] == refused


PLAIN: list[tuple[str, str, list[Any]]] = [
    ("bigint", "int8", NUMBERS[:5]),
    ("double", "float8", [0.5, 2.0, 7]),
    ("decimal(9,3)", "numeric(9,2)", BASE64[:7]),
    ("decimal(38,10)", "numeric", SCALED[:3]),
    ("decimal(18,6)", "interval", NUMBERS[:5]),
    ("date", "date", [0, 20_526]),
    ("time", "time", [0, 86_399_999_999]),
    ("timestamptz", "timestamptz", ["2026-03-14T18:05:22Z", "2026-03-14T18:05:22.417338-04:00"]),
    ("varchar(8)", "text", ["", "寿司"]),
    ("json", "jsonb", DOCUMENTS[:3]),
    ("json", "text[]", ARRAYS[:4]),
    ("uuid", "uuid", GUIDS[:1]),
    ("binary", "bytea", ["cbnX1rl7"]),
]


@pytest.mark.parametrize("nulls", ["none", "some", "all"])
@pytest.mark.parametrize(("target", "declared", "values"), PLAIN, ids=[f"{t} {d}" for t, d, _ in PLAIN])
def test_plain_values_need_no_decoder(
    target: str, declared: str, values: list[Any], nulls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual values of the usual types are converted in bulk: the scalar decoder is not even asked."""
    column = Column(name="total", type=target, source_type=declared)
    values = {"none": values, "some": [None, *values, None], "all": [None, None]}[nulls]
    expected, _, refused = by_decoder(values, column, source())
    assert not refused

    def asked(_: object) -> object:
        raise AssertionError

    monkeypatch.setattr("kds_cdc_dagster.load.typed_columns.compile_decoder", lambda *_: asked)
    assert list(map(same, ColumnReader(column, source()).read(values).array.to_pylist())) == list(map(same, expected))
