"""Numbers: exact, in every mode of the connector, refused rather than bent."""

from __future__ import annotations

from base64 import b64encode
from decimal import Decimal
from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kds_cdc_dagster.core.values import LogicalType
from kds_cdc_dagster_tests.core.decoders import decoded, refused, source

MYSQL = source("mysql", time_precision_mode="adaptive_time_microseconds")
STRING = source(decimal_handling_mode="string")
DOUBLE = source(decimal_handling_mode="double")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("BPs=", "12.75"),
        ("/qI=", "-3.50"),
        ("/w==", "-0.01"),
        ("AMg=", "2.00"),
        ("Y5w=", "255.00"),
        ("AA==", "0.00"),
        ("gAA=", "-327.68"),
    ],
)
def test_dbz02_base64_decimals_are_exact_and_keep_their_sign(text: str, number: str) -> None:
    """Big-endian two's complement, scale from the catalogue: a refund stays negative."""
    assert str(decoded(text, "decimal(12,2)", "numeric(12,2)")) == number


def test_dbz02_the_same_numbers_in_the_other_modes() -> None:
    """Variable scale, string mode, double mode and NUMERIC JSON numbers give the same decimals."""
    assert decoded({"scale": 3, "value": "AeJA"}, "decimal(12,3)", "numeric") == Decimal("123.456")
    assert str(decoded("-3.50", "decimal(12,2)", "numeric(12,2)", STRING)) == "-3.50"
    assert str(decoded(Decimal("-3.5"), "decimal(12,2)", "numeric(12,2)", DOUBLE)) == "-3.50"
    assert str(decoded(Decimal("-3.5"), "decimal(12,2)", "numeric(12,2)")) == "-3.50"


NOT_BASE64: list[tuple[object, object]] = [
    (value, None) for value in ("!!", "NaN", "", "-3.50", True, [1], {"scale": 1})
]
NOT_TEXT: list[tuple[object, object]] = [(value, STRING) for value in ("NAN", "!!", "1_0", Decimal("-3.5"))]
NOT_NUMBER: list[tuple[object, object]] = [(value, DOUBLE) for value in ("-3.50", "NaN")]


@pytest.mark.parametrize(("value", "by"), [*NOT_BASE64, *NOT_TEXT, *NOT_NUMBER])
def test_dbz02_what_is_no_decimal_in_its_mode_is_refused(value: object, by: object) -> None:
    """One table mixes modes only if configured; the column is named, the value is not."""
    assert refused(value, "decimal(12,2)", "numeric(12,2)", by)  # type: ignore[arg-type]


def test_digits_are_never_lost_or_rounded() -> None:
    """Beyond the scale or the precision of the target a number is refused, and trailing zeros are not digits."""
    assert decoded("1.200", "decimal(5,2)", "numeric(9,3)", STRING) == Decimal("1.20")
    assert "scale" in refused("1.205", "decimal(5,2)", "numeric(9,3)", STRING)
    assert "digits" in refused("1234.5", "decimal(5,2)", "numeric(9,3)", STRING)
    assert decoded("-999.99", "decimal(5,2)", "numeric(5,2)", STRING) == Decimal("-999.99")
    assert str(decoded("-0.00", "decimal(5,2)", "numeric(5,2)", STRING)) == "0.00"


@pytest.mark.parametrize("value", [Decimal("1e999999"), Decimal("1e-999999"), {"scale": 999_999_999, "value": "AQ=="}])
def test_numbers_without_end_are_refused_quickly(value: object) -> None:
    """A few bytes of exponent must not take memory or time."""
    for target in ("bigint", "decimal(38,10)"):
        assert refused(value, target, "numeric")
    assert refused("A" * 4_000, "decimal(38,0)", "numeric(38,0)")


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_any_decimal_survives_its_base64(number: int, scale: int) -> None:
    """Encoding as Debezium does and decoding gives the number back, to the last digit."""
    text = b64encode(number.to_bytes(17, "big", signed=True)).decode()
    expected = Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))
    assert decoded(text, f"decimal(38,{scale})", f"numeric(38,{scale})") == expected


def test_dbz13_unsigned_bigints_are_unwrapped() -> None:
    """Above 2^63 - 1 the `long` mode comes out negative; declared unsigned, the true value is stored."""
    for wire, number in ((-4, 18446744073709551612), (-(2**63), 2**63), (2**63 - 1, 2**63 - 1)):
        assert decoded(wire, "decimal(20,0)", "bigint unsigned", MYSQL) == number
    precise = source("mysql", bigint_unsigned_handling_mode="precise")
    for by in (MYSQL, precise):
        assert decoded("AP/////////8", "decimal(20,0)", "bigint unsigned", by) == 18446744073709551612
        assert decoded("AIAAAAAAAAAA", "decimal(20,0)", "bigint unsigned", by) == 2**63
    assert "fit" in refused(-4, "bigint", "bigint unsigned", MYSQL)
    plain_schema = LogicalType("int64")
    assert decoded(-4, "decimal(20,0)", "bigint unsigned", MYSQL, logical=plain_schema) == 18446744073709551612


@pytest.mark.parametrize(("target", "bits"), [("smallint", 16), ("integer", 32), ("bigint", 64)])
def test_integers_fit_or_are_refused(target: str, bits: int) -> None:
    """The limits of each type stand, one beyond is refused; fractions and texts are no integers."""
    for limit in (-(1 << (bits - 1)), (1 << (bits - 1)) - 1):
        assert decoded(limit, target, "int8") == limit
        assert refused(limit + (1 if limit > 0 else -1), target, "int8")
    assert decoded(Decimal("12.0"), target, "int8") == 12
    for wrong in (Decimal("1.5"), "12", [1]):
        assert refused(wrong, target, "int8")


def test_booleans_come_in_several_spellings() -> None:
    """TINYINT(1) is 0/1 or true/false by how the connector learned of the table; BIT(1) is true/false."""
    for declared in ("tinyint(1)", "bit(1)", "bool"):
        assert [decoded(value, "boolean", declared, MYSQL) for value in (0, 1, False, True, None)] == [
            False,
            True,
            False,
            True,
            None,
        ]
    assert refused(2, "boolean", "tinyint(1)", MYSQL)
    assert refused("true", "boolean", "bool")


def test_doubles_hold_what_is_no_number() -> None:
    """NaN and infinities come as texts and only a double can hold them."""
    assert decoded(Decimal("187.5"), "double", "float8") == 187.5
    assert isnan(decoded("NaN", "double", "float8"))  # type: ignore[arg-type]
    assert decoded("-Infinity", "double", "float8") == float("-inf")
    assert decoded("POSITIVE_INFINITY", "double", "numeric(9,2)", STRING) == float("inf")
    assert refused(Decimal("1e400"), "double", "float8")
    assert refused("1.5", "double", "float8")


def test_money_and_oracle_numbers() -> None:
    """Scales that the declared type does not write: money's, Oracle's integers and floats."""
    assert decoded("AeII", "decimal(19,4)", "money", source("sqlserver")) == Decimal("12.3400")
    assert decoded("BPs=", "decimal(19,2)", "money") == Decimal("12.75")
    oracle = source("oracle")
    assert decoded("AJxR", "bigint", "integer", oracle) == 40017
    assert decoded(11, "integer", "number(9)", oracle) == 11
    assert decoded({"scale": 1, "value": "B1M="}, "double", "float(63)", oracle) == 187.5


def test_the_wrappers_schema_wins_over_the_catalogue() -> None:
    """A logical decimal brings its scale, a plain string is the string mode, whatever the catalogue says."""
    decimal = LogicalType("bytes", "org.apache.kafka.connect.data.Decimal", 3)
    assert decoded("AeJA", "decimal(12,3)", "numeric(12,2)", logical=decimal) == Decimal("123.456")
    assert decoded("12.5", "decimal(12,2)", "numeric(12,2)", logical=LogicalType("string")) == Decimal("12.50")
    assert decoded(Decimal("12.5"), "decimal(12,2)", "numeric(12,2)", STRING, logical=LogicalType("float64")) == 12.5


def test_the_mock_writes_natural_json() -> None:
    """Numbers or texts for decimals, base64 for bytes, objects for json."""
    mock = source("mock")
    for value in (Decimal("12.50"), "12.50", 12):
        assert decoded(value, "decimal(12,2)", by=mock) in {Decimal("12.50"), Decimal(12)}
    assert decoded("AP8QoA==", "binary", by=mock) == b"\x00\xff\x10\xa0"
    assert decoded({"a": [Decimal("1.50")]}, "json", by=mock) == '{"a":[1.50]}'
    assert decoded("B-7", "varchar(8)", by=mock) == "B-7"


def test_wrong_target_types_are_refused_when_compiled() -> None:
    """A catalogue with a type that does not exist fails at start, not at the first row."""
    for target in ("money", "decimal", "decimal(39,2)", "decimal(4,5)", "varchar", "text[]"):
        with pytest.raises(ValueError, match=r"type|decimal|varchar"):
            decoded(1, target)
