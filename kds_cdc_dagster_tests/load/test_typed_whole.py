"""Images taken as they stand, and images read one by one, end as the same rows."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kds_cdc_dagster.catalogue import load_catalogue
from kds_cdc_dagster.core.contracts import Limits, Parser
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
    """Values, refusals, unknown columns and drift do not depend on the way a body took.

    A leading blank changes no JSON, but is not how a whole image begins: those bodies are read one by one.
    """
    bodies = [message(n, *change) for n, change in enumerate(changes, 1)]
    table = records(PARSER, [delivery(text, GROUP, n) for n, text in enumerate(bodies, 1)])
    accepted = table.column("body").to_pylist()
    slow = table.set_column(
        table.schema.get_field_index("body"), "body", pa.array([b" " + text for text in accepted], pa.binary())
    )
    assert shown(rows(table)) == shown(rows(slow))


def test_a_whole_image_is_one() -> None:
    """The comparison above compares something: the usual body is taken as it stands."""
    usual = message(1, {"prep_seconds": "0.1"}, "c", None)
    images = WholeImages([column.name for column in ITEM.columns], {"prep_seconds"})
    assert images.read(["c"], [usual]) != [None]
    assert images.read(["c"], [b" " + usual]) == [None]


def test_only_whole_images_are_taken_as_they_stand() -> None:
    """One column too many or too few, another form, a delete, a mock's message: not for this reader."""
    images = WholeImages(["a", "b"], {"b"})
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
    assert images.read(["d", "u"], [whole, whole]) == [None, ("x", 1.5)]
