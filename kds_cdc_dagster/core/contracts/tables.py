"""Tables as the catalogue binds them, compiled: key, account, store and stream of a row image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from kds_cdc_dagster.core.catalogue import Binding, Entity, Source
from kds_cdc_dagster.core.change import Delivery, Reason
from kds_cdc_dagster.core.contracts.body import Refused
from kds_cdc_dagster.core.identity import canonical
from kds_cdc_dagster.core.values import UNAVAILABLE, LogicalType, Undecodable, compile_decoder, logical_types

SCHEMAS_MAX = 256
"""Wrapper schemas kept compiled per table; a table has one, and another after each change of its columns."""
WORDS_MAX = 10_000
"""Account or store texts kept decoded per column."""
FOLDED = frozenset({"oracle", "db2", "sqlserver"})
"""Connectors whose column names come in the database's own case, mostly upper."""

Decoder = Callable[[object], object]


class Word:
    """A column that routes rows, as text. There are few accounts and stores, so answers are kept."""

    def __init__(self, name: str, decode: Decoder) -> None:
        self.name = name
        self._decode = decode
        self._known: dict[object, str | None] = {}

    def of(self, image: Mapping[str, Any], *, has_fillers: bool) -> str | None:
        """The text; None where the image does not really have the column. Raises Refused."""
        value = image.get(self.name)
        if type(value) is not str:
            return None if value is None or (has_fillers and value == 0) else self._text(value)
        if value in self._known:
            return self._known[value]
        if len(self._known) >= WORDS_MAX:
            self._known.clear()
        found = self._known[value] = self._text(value) if value else None
        return found

    def _text(self, value: object) -> str | None:
        try:
            decoded = self._decode(_exact(value))
        except Undecodable as error:
            raise Refused(Reason.UNDECODABLE_VALUE, str(error)) from None
        return None if decoded is None or decoded is UNAVAILABLE else str(decoded)


class Columns(NamedTuple):
    """Decoders of the columns that make the key, the account, the store and the stream of a row."""

    key: tuple[tuple[str, Decoder], ...]
    account: Word | None
    store: Word | None
    stream: tuple[Word, ...]


class Scope(msgspec.Struct, frozen=True, gc=False):
    """The stream a row belongs to, and the account and store its image names (None: it does not)."""

    stream: str
    account: str | None
    store: str | None


class BoundTable:
    """One table of one source."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.source: Source = binding.source
        self.entity: Entity = binding.entity
        # Read for every message: an attribute of our own costs a third of one two models away.
        self.source_id, self.entity_name = binding.source.id, binding.entity.name
        self.connector = binding.source.connector or ""
        self.is_grouped = binding.source.stream.from_ == "group"
        store = binding.entity.store
        self.has_uuid_stores = store is not None and binding.entity.column_by_name[store].type == "uuid"
        self._is_folded = self.source.connector in FOLDED
        self._plain = self._compiled({})
        self._by_schema: dict[bytes, Columns] = {}

    def columns(self, schema: bytes | None) -> Columns:
        """Decoders by the catalogue, or by the wrapper's schema where there is one."""
        if schema is None:
            return self._plain
        found = self._by_schema.get(schema)
        if found is None:
            if len(self._by_schema) >= SCHEMAS_MAX:
                self._by_schema.clear()
            found = self._by_schema[schema] = self._compiled(folded(logical_types(schema), self.source))
        return found

    def _compiled(self, logical: Mapping[str, LogicalType]) -> Columns:
        def decoder(name: str) -> Decoder:
            return compile_decoder(self.entity.column_by_name[name], self.source, logical.get(name))

        def word(name: str | None) -> Word | None:
            return None if name not in self.entity.column_by_name else Word(name, decoder(name))

        entity = self.entity
        account, store = word(entity.account), word(entity.store)
        named = {"account": account, "store": store}
        stream = [named.get(name) or word(name) for name in self.source.stream.key]
        return Columns(
            tuple((name, decoder(name)) for name in entity.primary_key), account, store, tuple(filter(None, stream))
        )

    def image(self, image: object, part: str) -> Mapping[str, Any]:
        """The row image with the catalogue's column names. Raises Refused if it is no object."""
        if type(image) is not dict:
            raise Refused(Reason.MISSING_FIELD, f"{part} holds no row")
        return folded(image, self.source) if self._is_folded else image

    def key(self, image: Mapping[str, Any], columns: Columns) -> str:
        """Canonical JSON array of the decoded key. Raises Refused."""
        return key_text([image.get(name) for name, _ in columns.key], columns)

    def scope(self, image: Mapping[str, Any], columns: Columns, delivery: Delivery, *, has_fillers: bool) -> Scope:
        """Stream, account and store. `has_fillers`: zeros and empty texts may be invented."""
        account = None if columns.account is None else columns.account.of(image, has_fillers=has_fillers)
        store = None if columns.store is None else columns.store.of(image, has_fillers=has_fillers)
        if self.is_grouped:
            return Scope(delivery.group_id, account, store)
        words = [word.of(image, has_fillers=has_fillers) for word in columns.stream]
        named = list(filter(None, words))
        is_whole = len(named) == len(self.source.stream.key)
        return Scope(":".join(named) if is_whole else delivery.group_id, account, store)


def folded(names: Mapping[str, Any], source: Source) -> Mapping[str, Any]:
    """`names` in the catalogue's lower case, for connectors that send the database's own."""
    return {name.lower(): value for name, value in names.items()} if source.connector in FOLDED else names


def key_text(values: Sequence[object], columns: Columns) -> str:
    """Canonical JSON array of the decoded key, of its values in catalogue order. Raises Refused."""
    if len(values) == 1:  # by far the most keys: no list is made for them
        ((name, decode),) = columns.key
        only = _key_value(values[0], name, decode)
        return f"[{only}]" if type(only) is int else canonical((only,))
    return canonical([_key_value(v, name, decode) for v, (name, decode) in zip(values, columns.key, strict=True)])


def _key_value(value: object, name: str, decode: Decoder) -> object:
    if value is None:
        raise Refused(Reason.MISSING_KEY, f"key column {name} is missing or null")
    if isinstance(value, str) and "\0" in value:
        raise Refused(Reason.UNDECODABLE_KEY, f"column {name}: NUL in a key")
    try:
        decoded = decode(_exact(value) if type(value) is msgspec.Raw else value)
    except Undecodable as error:
        raise Refused(Reason.UNDECODABLE_KEY, str(error)) from None
    if decoded is None or decoded is UNAVAILABLE:
        raise Refused(Reason.UNDECODABLE_KEY, f"column {name}: no value")
    return decoded


def _exact(value: object) -> object:
    return Decimal(bytes(value).decode()) if type(value) is msgspec.Raw else value
