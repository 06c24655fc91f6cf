"""The short way of parsing gives what the long way gives, for every message that it does not decline."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kds_cdc_dagster.catalogue import load_catalogue
from kds_cdc_dagster.core import identity
from kds_cdc_dagster.core.change import Change, Delivery, Parsed
from kds_cdc_dagster.core.contracts import Limits, Parser
from kds_cdc_dagster.core.contracts.rows import COLUMNS_MAX, Rows, as_written
from kds_cdc_dagster_tests.captures import CAPTURES, capture, delivery, samples
from kds_cdc_dagster_tests.core.debezium_messages import GROUP, STORE, body, parser

LIMITS = Limits(5, 1 << 20, frozenset({"debezium"}))
COLUMNS = [column.name for column in load_catalogue(None).entity_by_name["kitchen_ticket"].columns]

numbers = st.one_of(
    st.integers(-(1 << 70), 1 << 70).map(str),
    st.sampled_from(("1.50", "-0", "0.1e-7", "1E5", "12345678901234567890.0")),
)
leaves = st.one_of(
    st.text(max_size=6).map(json.dumps), numbers, st.sampled_from(("null", "true", "false", '"\\u0041\\/"'))
)
"""JSON values as they are written: numbers keep their digits, texts their escapes."""


def _object(fields: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{json.dumps(name)} :{value}" for name, value in fields) + "}"


values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda found: "[" + ",".join(found) + "]"),
        st.lists(st.tuples(st.text(max_size=3), inner), max_size=3).map(_object),
    ),
    max_leaves=5,
)
OWN = ("ticket_id", "account_id", "store_guid")
names = st.sampled_from([*(name for name in COLUMNS if name not in OWN), "zz_new", "Order No", "größe", "", "Zz"])
any_names = st.one_of(names, st.sampled_from((*OWN, 'say "so"', "a\\b", "\x01")))
rows = st.lists(st.tuples(names, values), max_size=8)
own_fields = {
    "ticket_id": (*["7"] * 9, '"7"', "null"),
    "account_id": (*['"acct-001"'] * 5, '""', "0"),
    "store_guid": (json.dumps(STORE), json.dumps(STORE), json.dumps(STORE.upper()), '""'),
}
own = st.tuples(*(st.tuples(st.just(name), st.sampled_from(written)) for name, written in own_fields.items()))
keyed = st.builds(lambda before, own, after: _object([*before, *own, *after]), rows, own, rows)
"""Images with a key, in which a name may come twice: the last one counts."""
images = st.one_of(*[keyed] * 5, st.just("null"), values)
sources = st.fixed_dictionaries(
    {},
    optional={
        "connector": st.sampled_from(("mysql", None)),
        "table": st.sampled_from(("station", "invoice", "dbz_signal", None)),
        "sequence": st.sampled_from(('["1","2"]', '[null,"9"]', "[]", None)),
        "lsn": st.sampled_from((0, 1 << 63, 1 << 64, -1, "200", None)),
        "snapshot": st.sampled_from(("first", "incremental")),
        "ts_ms": st.sampled_from((1, "12", None)),
    },
)


def ways() -> tuple[Callable[[Delivery], Parsed | None], Callable[[Delivery], Parsed]]:
    """Both ways of one parser."""
    one = Parser(load_catalogue(None), LIMITS)
    assert one._short_way is not None
    return one._short_way.parse, one._parsed


def _result(parse: Callable[[Delivery], Parsed | None], one: Delivery) -> object:
    try:
        return parse(one)
    except Exception as error:  # noqa: BLE001  what the long way refuses
        return type(error)


SHORT, LONG = ways()


@given(
    op=st.sampled_from("ccuuddrtx"),
    before=st.one_of(st.just("null"), images, images),
    after=images,
    source=st.one_of(st.just({}), st.just({}), sources),
    group=st.sampled_from((GROUP, GROUP, "a:b")),
)
def test_both_ways_agree(op: str, before: str, after: str, source: dict[str, Any], group: str) -> None:
    """Absent and extra columns, old images, repeated names, odd numbers and texts, refusals: same change, same hash."""
    block = json.dumps(body(**source)["source"])
    text = f'{{"before":{before},"after":{after},"source":{block},"op":"{op}","ts_ms":1}}'
    one = delivery(text.encode("utf-8", "replace"), group)
    short = _result(SHORT, one)
    assert short is None or short == _result(LONG, one)


@given(fields=st.lists(st.tuples(any_names, values), max_size=8), known=st.sets(st.sampled_from(COLUMNS)))
def test_a_row_read_as_a_struct_hashes_like_its_dict(fields: list[tuple[str, str]], known: set[str]) -> None:
    """Whatever columns the catalogue lists, and in whichever order they come."""
    image = msgspec.Raw(_object(fields).encode("utf-8", "replace"))
    as_dict: Any = msgspec.json.Decoder(float_hook=as_written)
    try:
        row = Rows(known, ()).read(image)
    except (msgspec.MsgspecError, ValueError):
        return  # declined
    assert identity.content_hash("u", "[7]", None, row) == identity.content_hash(
        "u", "[7]", None, as_dict.decode(image)
    )


@pytest.mark.parametrize("name", [*CAPTURES, "samples"])
def test_captures_parse_the_same(name: str) -> None:
    """What real engines sent, also under a group that is not the row's."""
    short, long = ways()
    bodies = samples().values() if name == "samples" else filter(None, capture(name).bodies)
    for number, found in enumerate(bodies, 1):
        for group in ("acct-001:elsewhere", "kdsprod:station") if name == "samples" else ("", "acct-001:elsewhere"):
            one = delivery(found, group, number)
            taken = short(one)
            assert taken is None or taken == long(one)


@pytest.mark.parametrize("name", ["pg-envelope", "mysql-envelope"])
def test_nearly_all_of_a_plain_capture_goes_the_short_way(name: str) -> None:
    """Else it would be of no use: all but the snapshot's reads."""
    short, long = ways()
    found = [delivery(body, number=number) for number, body in enumerate(filter(None, capture(name).bodies), 1)]
    changes = [(short(one), long(one)) for one in found]
    assert all(taken for taken, change in changes if isinstance(change, Change) and change.op in {"c", "u", "d"})


def test_a_column_that_the_catalogue_does_not_list_is_learned() -> None:
    """A source with more columns than are loaded must not be parsed the long way for ever."""
    short, long = ways()
    for image in ({"zz_new": 1.50}, {"zz_new": None, "Aa": {"b": 1, "a": [2]}}, {}):
        one = delivery(_envelope(body(image=image)), GROUP)
        assert isinstance(short(one), Change)
        assert short(one) == long(one)


def test_columns_without_end_are_declined() -> None:
    """What is remembered of a table is bounded."""
    found = Rows(("a",), ())
    with pytest.raises(msgspec.ValidationError):
        found.read(msgspec.Raw(json.dumps({f"c{n}": n for n in range(COLUMNS_MAX)}).encode()))
    assert found.read(msgspec.Raw(b'{"a":1,"b":2}')) is not None


def test_a_tenant_is_not_remembered_across_groups_or_deletes() -> None:
    """What a group, account and store lead to is kept for just these: another group is a mismatch all the same."""
    by = parser()
    good = delivery(_envelope(body()), GROUP)
    assert isinstance(by.parse(good), Change)
    other = by.parse(delivery(_envelope(body()), "acct-002:x"))
    assert getattr(other, "reason", "") == "group_mismatch"
    empty = body("d", image={"account_id": "", "store_guid": ""})
    deleted = by.parse(delivery(_envelope(empty), GROUP))
    assert isinstance(deleted, Change)
    assert (deleted.account, deleted.tenant) == (None, None)
    created = by.parse(delivery(_envelope(body(image={"account_id": "", "store_guid": ""})), GROUP))
    assert getattr(created, "reason", "") == "unmapped_tenant"


def _envelope(document: dict[str, Any]) -> bytes:
    """In Debezium's order of fields."""
    ordered = {name: document[name] for name in ("before", "after", "source", "op", "ts_ms")}
    return json.dumps(ordered, separators=(",", ":")).encode()
