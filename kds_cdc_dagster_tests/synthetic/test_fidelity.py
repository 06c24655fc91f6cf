"""The model against recorded captures of a real engine: the same fields in the same order, of the same JSON types."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from kds_cdc_dagster_tests.captures import capture
from kds_cdc_dagster_tests.synthetic.mode import Mode
from kds_cdc_dagster_tests.synthetic.player import Player
from kds_cdc_dagster_tests.synthetic.schemas import envelope_schema
from kds_cdc_dagster_tests.synthetic.tables import tables

Document = dict[str, Any]
RECORDED = {
    "pg-envelope": Mode(),
    "mysql-envelope": Mode(connector="mysql", times="adaptive_time_microseconds"),
    "pg-unwrapped": Mode(form="flattened"),
}


@cache
def played(name: str) -> list[Document]:
    """Row-level events of a few synthetic lives."""
    bodies = [m.body for seed in range(3) for m in Player(RECORDED[name], seed).play(40).messages]
    return _rows([json.loads(body) for body in bodies])


@cache
def recorded(name: str) -> list[Document]:
    """Row-level events of the capture."""
    return _rows([json.loads(body) for body in capture(name).bodies if body is not None])


def _rows(documents: list[Document | None]) -> list[Document]:
    found = [document for document in documents if document and ("op" in document or "__op" in document)]
    return [document for document in found if _table(document) != "dbz_signal"]


def _table(event: Document) -> str:
    return str(event["__table"] if "__table" in event else event["source"]["table"])


def _types(event: Document, types: dict[str, set[str]], path: str) -> None:
    for name, value in event.items():
        if value is not None:
            types.setdefault(f"{path}.{name}", set()).add(type(value).__name__)
            if name in {"before", "after", "source"}:
                _types(value, types, f"{path}.{name}")


def _shapes(events: list[Document]) -> set[tuple[str, ...]]:
    """Names in order, of whole events and of their parts."""
    found = set()
    for event in events:
        parts = {name: event[name] for name in ("before", "after", "source") if event.get(name)}
        found |= {(_table(event), name, *part) for name, part in {"event": event, **parts}.items()}
    return found


@pytest.mark.parametrize("name", RECORDED)
def test_names_and_their_order_are_those_of_the_engine(name: str) -> None:
    """No event, source block or row image has other fields, or another order of them, than the recorded ones."""
    before = {shape for shape in _shapes(played(name)) if shape[1] == "before"}
    assert _shapes(played(name)) - before == {s for s in _shapes(recorded(name)) if s[1] != "before"}
    images = {(shape[0], *shape[2:]) for shape in _shapes(recorded(name)) if shape[1] == "after"}
    assert {(shape[0], *shape[2:]) for shape in before} <= images


@pytest.mark.parametrize("name", RECORDED)
def test_json_types_are_those_of_the_engine(name: str) -> None:
    """Every value has a JSON type that the recorded capture shows for its column."""
    ours: dict[str, set[str]] = {}
    theirs: dict[str, set[str]] = {}
    for events, types in ((played(name), ours), (recorded(name), theirs)):
        for event in events:
            _types(event, types, _table(event))
    shown = {path.replace(".before.", ".after.") for path in theirs}
    for path, found in ours.items():
        known = theirs.get(path) or theirs.get(path.replace(".before.", ".after."), set())
        assert found <= known or path.replace(".before.", ".after.") not in shown, (path, found, known)


def test_key_only_deletes_carry_the_engine_s_own_fillers() -> None:
    """Beside the key, an old row under the default replica identity holds exactly the invented values recorded."""
    for table in ("kitchen_ticket", "kitchen_ticket_item"):
        key = tables("postgresql")[table].key[0]
        images = [
            [
                {n: v for n, v in e["before"].items() if n != key}
                for e in events
                if e["op"] == "d" and _table(e) == table
            ]
            for events in (played("pg-envelope"), recorded("pg-envelope"))
        ]
        assert images[0]
        assert all(image == images[1][0] for found in images for image in found)


def test_wrapper_schemas_are_those_of_the_engine() -> None:
    """Types, logical names and optionality of the row structs equal the recorded ones."""
    wanted = {}
    for body in capture("pg-schemas").bodies:
        document = json.loads(body) if body is not None else None
        if document:
            wanted[document["payload"]["source"]["table"]] = document["schema"]
    assert wanted.keys() == tables("postgresql").keys()
    for table, schema in wanted.items():
        ours = envelope_schema(tables("postgresql")[table], Mode(form="wrapped", decimals="string"))
        assert _row_fields(ours) == _row_fields(schema)


def _row_fields(schema: Document) -> list[tuple[object, ...]]:
    row = next(field for field in schema["fields"] if field["field"] == "after")
    return [(f["field"], f["type"], f.get("name"), f["optional"], f.get("items")) for f in row["fields"]]


def test_a_life_has_every_kind_of_event() -> None:
    """No life lacks what makes the tests hard: key changes, placeholders, snapshots, truncates, repeats."""
    bodies = [message.body for message in Player(Mode(), 0).play(40).messages]
    joined = "".join(bodies)
    for mark in (
        "__debezium_unavailable_value",
        '"op":"t"',
        '"op":"d"',
        '"snapshot":"incremental"',
        '"first"',
        "3.7.0",
    ):
        assert mark in joined, mark
    documents = played("pg-envelope")
    streamed = [json.loads(d["source"]["sequence"]) for d in documents if d["op"] in "cud"]
    overtaken = [own for last, own in streamed if last is not None and int(own) < int(last)]
    assert overtaken, "no transaction was overtaken by another"
    places = [(d["source"]["lsn"], d["op"]) for d in documents if d["op"] in "cd"]
    assert {(lsn, "c") for lsn, op in places if op == "d"} & set(places), "no key was changed"
