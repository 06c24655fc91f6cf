"""The short way: the change in a message of the usual form, for half of what the long way costs.

No dict is made of a row image, nothing is sorted for its hash (`core.contracts.rows`), and what a group, account and
store lead to is kept. Whatever is unusual (another form, a read, a truncate, an unknown table, anything that may have
to be refused) is declined: the long way (`core.contracts.debezium`) judges it. Tests hold the two equal.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kds_cdc_dagster.core import identity
from kds_cdc_dagster.core.change import Change, Delivery, Op, Phase, Rank, Rejection
from kds_cdc_dagster.core.contracts.admission import Admission
from kds_cdc_dagster.core.contracts.body import ShortBlock
from kds_cdc_dagster.core.contracts.coordinates import USUAL, WITH_LINEAGE, lineage
from kds_cdc_dagster.core.contracts.debezium import milliseconds
from kds_cdc_dagster.core.contracts.rows import Rows
from kds_cdc_dagster.core.contracts.sources import Route, Sources
from kds_cdc_dagster.core.contracts.tables import key_text

SEATS_MAX = 16_384
"""Streams of a table whose account, store and tenant are kept: some 10 MB."""
_DELETE = Op.DELETE.value
_OPERATIONS = (Op.CREATE.value, Op.UPDATE.value, _DELETE)
_STREAMING, _RANK = Phase.STREAMING, Rank.STREAMING
_BEGINNING = b'{"before":'
"""Of every envelope that Debezium writes without a schema around it."""
_NULL = msgspec.Raw(b"null")
_Seat = tuple[str, str | None, str | None, str | None, str | None]
"""Stream, account, store, tenant, company."""


class _Envelope(msgspec.Struct, gc=False):
    op: str
    source: ShortBlock
    before: msgspec.Raw = _NULL
    after: msgspec.Raw = _NULL


_envelope_in = msgspec.json.Decoder(_Envelope).decode


class ShortWay:
    """Changes of every Debezium source of a catalogue, where their messages are of the usual form."""

    def __init__(self, sources: Sources, admission: Admission) -> None:
        self._sources = sources
        self._admission = admission
        self._tables: dict[tuple[object, ...], _ShortTable] = {}

    def parse(self, delivery: Delivery) -> Change | Rejection | None:
        """The change, or its rejection by group or tenant; None: the long way must judge the delivery."""
        body = delivery.body
        if not body.startswith(_BEGINNING):
            return None
        try:
            if not body.isascii():
                body.decode()  # skipped parts must be as readable as they are on the long way
            envelope = _envelope_in(body)
            source = envelope.source
            place = (source.table, source.schema, source.db, source.name, source.connector)
            table = self._tables.get(place) or self._found(place, source)
            return table.parse(envelope, delivery) if table else None
        except Exception:  # noqa: BLE001  the long way meets it again and says what is wrong
            return None

    def _found(self, place: tuple[object, ...], source: ShortBlock) -> _ShortTable | None:
        route = self._sources.route(source, is_partial=False)
        if route is None or route.table.connector not in USUAL:
            return None
        found = self._tables[place] = _ShortTable(route, self._admission)  # bounded by the catalogue's tables
        return found


class _ShortTable:
    """One table of one source."""

    def __init__(self, route: Route, admission: Admission) -> None:
        self._admission = admission
        self._table = table = route.table
        self._connector = table.connector
        self._columns = columns = table.columns(None)
        words = dict.fromkeys(word.name for word in (columns.account, columns.store, *columns.stream) if word)
        self._rows = Rows([column.name for column in table.entity.columns], words)
        self._words, self._word_names = self._rows.getter(words), tuple(words)
        self._key = self._rows.getter([name for name, _ in columns.key])
        self._decode_key = columns.key[0][1] if len(columns.key) == 1 else None
        self._coordinates, self._has_lineage = USUAL[table.connector], table.connector in WITH_LINEAGE
        self._names = (table.source_id, table.entity_name, *route.place)
        origin = (identity.PRODUCTION, table.source_id, *route.place)
        self._stems = {op: identity.stem(*origin, op) for op in _OPERATIONS}
        self._seats: dict[tuple[object, ...], _Seat] = {}

    def parse(self, envelope: _Envelope, delivery: Delivery) -> Change | Rejection | None:
        """See `ShortWay.parse`. Raises what decoders raise."""
        op, source, read = envelope.op, envelope.source, self._rows.read
        before = None if envelope.before == _NULL else read(envelope.before)
        after = None if envelope.after == _NULL else read(envelope.after)
        row = before if op == _DELETE else after
        found = self._coordinates(op, source)
        if row is None or found is None:
            return None
        place, key, group_id = found.row_position, self._key_text(self._key(row)), delivery.group_id
        own = identity.identity_after(self._stems[op], key, *found.identity)
        content_hash = identity.content_hash(op, key, before, after)
        about = (group_id, op == _DELETE, self._words(row))
        seat = self._seats.get(about)
        source_id, entity, database, schema, table = self._names
        stream, account, store, tenant, company = seat or self._scope(row, delivery, op)
        history = lineage(self._connector, op, source) if self._has_lineage else ""
        at_ms = source.ts_ms if type(source.ts_ms) is int else milliseconds(source.ts_ms)
        change = Change(  # by place: twenty-two names cost a microsecond
            source_id, entity, database, schema, table, op, key, stream, account, store, tenant, company,
            own, content_hash, place, place, _STREAMING, _RANK, history, False, at_ms,
        )  # fmt: skip
        return change if seat else self._seated(change, about, group_id)

    def _key_text(self, values: Any) -> str:
        """Text of the key of these values, or of this value of a key of one column: mostly a whole number."""
        if self._decode_key is None:
            return key_text(values, self._columns)
        number = self._decode_key(values) if type(values) is int else None
        return f"[{number}]" if type(number) is int else key_text((values,), self._columns)

    def _scope(self, row: Any, delivery: Delivery, op: str) -> _Seat:
        """Stream, account and store; no tenant and company yet."""
        values = self._words(row)
        named = zip(self._word_names, values if len(self._word_names) > 1 else (values,), strict=False)
        image = {name: value for name, value in named if value is not msgspec.UNSET}
        has_fillers = op == _DELETE and self._connector == "postgresql"
        scope = self._table.scope(image, self._columns, delivery, has_fillers=has_fillers)
        return scope.stream, scope.account, scope.store, None, None

    def _seated(self, change: Change, about: tuple[object, ...], group_id: str) -> Change | Rejection:
        """The change with its tenant, which then is known of all that are about the same; or its rejection."""
        admitted = self._admission.admit(change, self._table, group_id)
        if isinstance(admitted, Change):
            if len(self._seats) >= SEATS_MAX:
                self._seats.clear()
            self._seats[about] = (change.stream, change.account, change.store, change.tenant, change.company)
        return admitted
