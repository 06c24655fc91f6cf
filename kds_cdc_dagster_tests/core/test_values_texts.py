"""Texts, bytes, json, uuids, and the placeholder of values the connector did not get."""

from __future__ import annotations

import uuid
from base64 import b64encode
from hashlib import md5

import pytest

from kds_cdc_dagster.core.values import UNAVAILABLE, LogicalType, logical_types
from kds_cdc_dagster_tests.captures import samples
from kds_cdc_dagster_tests.core.decoders import decoded, refused, source

PLACEHOLDER = "__debezium_unavailable_value"
CODED = b64encode(PLACEHOLDER.encode()).decode()


@pytest.mark.parametrize("text", ["\0rush", "no onions\0side", "\0", "grill\0"])
def test_dbz14_nul_is_replaced_never_cut(text: str) -> None:
    """One documented replacement; the rest of the text stays."""
    assert decoded(text, "text", "text") == text.replace("\0", "\ufffd")
    assert decoded(text, "varchar(40)", "varchar(20)") == text.replace("\0", "\ufffd")


def test_dbz14_an_escaped_nul_in_json_is_replaced_too() -> None:
    """A warehouse's JSON type refuses it; an escaped backslash before u0000 is no NUL."""
    assert decoded(r'{"a":"\u0000x"}', "json", "jsonb") == r'{"a":"\ufffdx"}'
    assert decoded(r'{"a":"\\u0000x"}', "json", "jsonb") == r'{"a":"\\u0000x"}'
    assert decoded(["\0"], "json", "text[]") == r'["\ufffd"]'


def test_varchar_counts_bytes() -> None:
    """UTF-8 bytes, as the warehouse counts them: what is longer is refused, not cut."""
    assert decoded("寿司", "varchar(6)", "text") == "寿司"
    assert "6 bytes" in refused("寿司!", "varchar(6)", "text")
    assert decoded("x" * 100_000, "text", "text") == "x" * 100_000


def test_json_stands_as_sent_and_must_be_json() -> None:
    """Key order and blanks are the source's; lists become compact JSON."""
    text = '{"nuts": true,  "dairy": null}'
    assert decoded(text, "json", "jsonb") == text
    assert decoded(["extra hot", None, "no salt"], "json", "text[]") == '["extra hot",null,"no salt"]'
    assert decoded([], "text", "text[]") == "[]"
    for wrong in ("", "{", "open", "{'a':1}", "[1] [2]"):
        assert refused(wrong, "json", "jsonb") == "not JSON"


def test_uuids_have_one_form() -> None:
    """Lower-case text, whether it came in capitals or as 16 bytes."""
    text = "7c1f3b52-9f5e-4d7a-8a61-2f0c4de91b10"
    assert decoded(text, "uuid", "uuid") == text
    assert decoded(text.upper(), "uuid", "uniqueidentifier", source("sqlserver")) == text
    assert decoded("fB87Up9eTXqKYS8MTekbEA==", "uuid", "binary(16)", source("mysql")) == text
    assert decoded("fB87Up9eTXqKYS8MTekbEA==", "uuid", "raw(16)", source("oracle")) == text
    for wrong in ("", "7c1f3b52", text + "\n", text.replace("-", "")):
        assert refused(wrong, "uuid", "uuid")


@pytest.mark.parametrize(
    ("mode", "text"),
    [("bytes", "AP8QoPv/"), ("base64", "AP8QoPv/"), ("base64-url-safe", "AP8QoPv_"), ("hex", "00ff10a0fbff")],
)
def test_bytes_in_every_mode(mode: str, text: str) -> None:
    """The mode of the connector says how bytes are written."""
    assert decoded(text, "binary", "bytea", source(binary_handling_mode=mode)) == b"\x00\xff\x10\xa0\xfb\xff"


def test_bits_are_little_endian() -> None:
    """BIT(n) is a number: "BQI=" is 0x0205."""
    assert decoded("BQI=", "integer", "bit(16)") == 0x0205
    assert decoded("BQI=", "integer", "varbit(16)", logical=LogicalType("bytes", "io.debezium.data.Bits")) == 0x0205


UNAVAILABLE_FORMS = [
    (PLACEHOLDER, "text", "text"),
    (PLACEHOLDER, "varchar(8)", "text"),
    (PLACEHOLDER, "json", "jsonb"),
    (PLACEHOLDER, "decimal(9,2)", "numeric(9,2)"),
    (PLACEHOLDER, "binary", "bytea"),
    (CODED, "binary", "bytea"),
    (PLACEHOLDER.encode().hex(), "binary", "bytea"),
    ([PLACEHOLDER], "json", "text[]"),
    ([CODED], "json", "bytea[]"),
    (list(PLACEHOLDER.encode()), "json", "int4[]"),
    (["b68a35a7-17ad-35b3-af2a-ae46edb4545a"], "json", "uuid[]"),
    (f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}', "json", "hstore"),
    (f'{{"{PLACEHOLDER}": "{PLACEHOLDER}"}}', "json", "hstore"),
    ({PLACEHOLDER: PLACEHOLDER}, "json", "hstore"),
]


@pytest.mark.parametrize(("value", "target", "declared"), UNAVAILABLE_FORMS)
def test_s35_the_placeholder_is_recognised_in_every_form(value: object, target: str, declared: str) -> None:
    """Unchanged large values are not in the change: they must never be loaded as text."""
    assert decoded(value, target, declared) is UNAVAILABLE


def test_the_placeholder_may_be_another_one() -> None:
    """A text of the user's choice, or its hex form; the usual text is then a value like any other."""
    for setting in ("<gone>", "hex:" + b"<gone>".hex()):
        by = source(unavailable_value_placeholder=setting)
        named = str(uuid.UUID(bytes=md5(b"<gone>", usedforsecurity=False).digest(), version=3))
        assert decoded("<gone>", "text", "text", by) is UNAVAILABLE
        assert decoded([named], "json", "uuid[]", by) is UNAVAILABLE
        assert decoded(b64encode(b"<gone>").decode(), "binary", "bytea", by) is UNAVAILABLE
        assert decoded(PLACEHOLDER, "text", "text", by) == PLACEHOLDER


def test_only_bytes_columns_read_the_coded_placeholder() -> None:
    """A text column may hold that base64 for real."""
    assert decoded(CODED, "text", "text") == CODED


def test_a_reference_to_an_offloaded_value_is_never_loaded() -> None:
    """Debezium's S3 post-processor leaves a pointer instead of a large value."""
    for target, declared in (("text", "text"), ("binary", "bytea"), ("json", "jsonb")):
        assert "object store" in refused("__debezium:s3:ref:v1:bucket|key", target, declared)


def test_logical_types_are_read_from_the_wrapper() -> None:
    """The fields of `after` carry names and scales; a flattened row's fields stand at the top."""
    document = samples()["common/insert-with-schema-wrapper"]
    found = logical_types(document[document.index(b"{", 1) : document.rindex(b'"payload"')].rstrip().rstrip(b","))
    assert found["subtotal"] == LogicalType("bytes", "org.apache.kafka.connect.data.Decimal", 2)
    assert found["updated_at"].name == "io.debezium.time.MicroTimestamp"
    flat = b'{"type":"struct","fields":[{"type":"int64","field":"id"},{"type":"string","field":"__op"}]}'
    assert logical_types(flat)["id"] == LogicalType("int64")
    assert logical_types(b"null") == {}
