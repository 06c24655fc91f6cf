"""Images taken as they stand, and images read one by one, end as the same rows."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kds_cdc_dagster.catalogue import load_catalogue
from kds_cdc_dagster.core.contracts import Limits, Parser
from kds_cdc_dagster.load import typed as typed_module
from kds_cdc_dagster.load.typed import Typed, typed
from kds_cdc_dagster.load.typed_images import WholeImages
from kds_cdc_dagster_tests.captures import delivery
from kds_cdc_dagster_tests.core.debezium_messages import GROUP, STORE, body
from kds_cdc_dagster_tests.load.recorded import records

CATALOGUE = load_catalogue()
PARSER = Parser(CATALOGUE, Limits(5, 1 << 20, frozenset({"debezium", "kds-cdc-mock/v1"})))
ITEM = CATALOGUE.entity_by_name["kitchen_ticket_item"]
NUMBERS = [
    "0",
    "-0",
    "-0.0",
    "7",
    "0.1",
    "1e5",
    "1E400",
    "-1e-400",
    "1" * 30,
    "9007199254740993",
    "0.30000000000000004",
]
NUMBERS += ["123456789012345678901234567890.5", "5e-324", '"NaN"', '"x"', "true", "null", "[]"]
IMAGES = st.fixed_dictionaries(
    {
        "prep_seconds": st.sampled_from(NUMBERS) | st.floats(allow_nan=False, allow_infinity=False).map(repr),
        "quantity": st.sampled_from(['"FQ=="', "null", '"!"', "1.5"]),
        "unit_price": st.sampled_from(['{"scale":2,"value":"FQ=="}', "null", "{}", '{"scale":11,"value":"FQ=="}']),
        "modifiers": st.sampled_from(['"[1]"', "null", '"__debezium_unavailable_value"', "[1.50]"]),
        "recipe": st.sampled_from(['"x"', r'"a\u0000b"', '"__debezium_unavailable_value"']),
    },
    optional={"lane": st.just("1.50")},
)
OPS = st.sampled_from("ccurd")


def message(number: int, image: dict[str, str], op: str, lacks: str | None) -> bytes:
    """A change of one item; the image's values are JSON text."""
    fixed: dict[str, Any] = dict.fromkeys(column.name for column in ITEM.columns)
    fixed |= {"item_id": number, "account_id": "acct-001", "store_guid": STORE} | {name: f"@{name}" for name in image}
    if lacks is not None:
        del fixed[lacks]
    envelope = body(op, table="kitchen_ticket_item")
    images = {"before": fixed, "after": None} if op == "d" else {"before": None, "after": fixed}
    text = json.dumps({**images, "source": envelope["source"], "op": op, "ts_ms": 1}, separators=(",", ":"))
    for name, value in image.items():
        text = text.replace(f'"@{name}"', value)
    return text.encode()


def rows(table: pa.Table) -> Typed:
    """The items' typed rows."""
    return typed(table, ITEM, CATALOGUE)


def shown(found: Typed) -> tuple[Any, ...]:
    """In a form in which -0.0 is not 0.0."""
    return str(found.table.to_pylist()), found.refused, dict(found.drift)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(IMAGES, OPS, st.sampled_from([None, None, None, "recipe", "updated_at"])), max_size=6))
def test_whole_images_and_single_ones_give_the_same_rows(changes: list[tuple[dict[str, str], str, str | None]]) -> None:
    """Values, refusals, unknown columns and drift do not depend on the way a body took, nor on the portions.

    A leading blank changes no JSON, but is not how a whole image begins: those bodies are read one by one.
    """
    bodies = [message(n, *change) for n, change in enumerate(changes, 1)]
    table = records(PARSER, [delivery(text, GROUP, n) for n, text in enumerate(bodies, 1)])
    accepted = table.column("body").to_pylist()
    slow = table.set_column(
        table.schema.get_field_index("body"), "body", pa.array([b" " + text for text in accepted], pa.binary())
    )
    with mock.patch.object(typed_module, "PORTION", 2):
        in_portions = shown(rows(slow))
    assert shown(rows(table)) == in_portions


def test_a_whole_image_is_one() -> None:
    """The comparison above compares something: the usual body is taken as it stands."""
    usual = message(1, {"prep_seconds": "0.1"}, "c", None)
    deleted = message(1, {}, "d", None)
    images = WholeImages([column.name for column in ITEM.columns], ITEM.primary_key, {"prep_seconds"})
    assert None not in images.read(["c", "d"], [usual, deleted])
    assert images.read(["c", "d"], [b" " + usual, b" " + deleted]) == [None, None]


def test_only_whole_images_are_taken_as_they_stand() -> None:
    """One column too many or too few, another form, a mock's message, no row: not for this reader."""
    images = WholeImages(["a", "b"], {"a"}, {"b"})
    whole = b'{"before":null,"after":{"a":"x","b":1.5},"op":"c"}'
    others = [
        whole.replace(b',"b":1.5', b""),
        whole.replace(b',"b":1.5', b',"b":1.5,"c":1'),
        whole.replace(b"1.5", b'"1.5"'),
        whole.replace(b'"op"', b'"primary_key":{},"op"'),
        b" " + whole,
        whole[:-1],
        b"",
    ]
    assert images.read(["c"] * 8, [whole, *others]) == [("x", 1.5), *[None] * 7]
    assert images.read(["d", "u", "t"], [whole] * 3) == [None, ("x", 1.5), None]


def test_of_a_delete_only_the_key_is_taken() -> None:
    """Whatever else its image holds is nobody's value; without its key, or an image, it is read one by one."""
    images = WholeImages(["a", "b", "c"], {"b"})
    whole = b'{"before":{"a":1,"b":"x","d":{}},"after":null,"op":"d"}'
    without_key = whole.replace(b'"b"', b'"e"')
    without_image = whole.replace(b'{"a":1,"b":"x","d":{}}', b"null")
    found = images.read(["d"] * 3, [whole, without_key, without_image])
    assert found == [(None, "x", None), None, None]
