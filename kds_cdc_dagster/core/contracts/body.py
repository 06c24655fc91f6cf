"""Bodies: from bytes to one of the forms a message can have, without knowing any table.

The order of the questions is that of Debezium's own output: bare envelope, wrapper, CloudEvents, the
messages without a row, flattened rows. Numbers with a fraction go through `float_hook`, so that they
are never floats on the way to a decimal or a hash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kds_cdc_dagster.core.change import Control, Reason

Numbers = Callable[[str], object]


class Refused(Exception):
    """A message that must be quarantined; never leaves the package. Carries no row data."""

    def __init__(self, reason: Reason, detail: str, *, source: str = "", entity: str = "") -> None:
        self.reason = reason
        self.detail = detail
        self.source = source
        self.entity = entity
        super().__init__(detail)


class ShortBlock(msgspec.Struct, gc=False):
    """The parts of Debezium's `source` that tell where a change of PostgreSQL, MySQL or MariaDB stands, unchecked:
    null, text or number.

    First those of PostgreSQL in the order in which they come: a field that stands where it is looked for is found
    at once. No more than the short way reads: every name that is not among them is compared with all of them.
    """

    connector: Any = None
    name: Any = None
    ts_ms: Any = None
    db: Any = None
    sequence: Any = None
    schema: Any = None
    table: Any = None
    lsn: Any = None
    server_id: Any = None
    gtid: Any = None
    file: Any = None
    pos: Any = None
    row: Any = None


class SourceBlock(ShortBlock, gc=False):
    """The parts that matter of any connector's `source`."""

    snapshot: Any = None
    commit_lsn: Any = None
    change_lsn: Any = None
    scn: Any = None
    commit_scn: Any = None
    lcr_position: Any = None
    rs_id: Any = None
    row_id: Any = None
    txId: Any = None  # noqa: N815 Debezium's spelling
    txSeq: Any = None  # noqa: N815 Debezium's spelling


class RowMessage(msgspec.Struct, gc=False):
    """A row-level message in any of its Debezium forms."""

    op: str
    source: SourceBlock
    before: Any = None
    after: Any = None
    schema: bytes | None = None
    """Raw JSON of the wrapper's schema, if there was one."""
    has_sequence: bool = True
    """False where the form may have lost PostgreSQL's `sequence` (flattened rows, CloudEvents)."""


class MockMessage(msgspec.Struct, gc=False):
    """A message of a `contract_version`; its fields are checked by the contract."""

    fields: dict[str, Any]


class _Envelope(msgspec.Struct, gc=False):
    op: str
    source: SourceBlock
    before: Any = msgspec.UNSET
    after: Any = msgspec.UNSET


class _Wrapped(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    schema: msgspec.Raw
    payload: _Envelope


Message = RowMessage | MockMessage | Control

_BINLOG_CLUES = ("file", "pos", "gtid", "server_id")
_CLUES = {
    "commit_lsn": "lsn-text",
    "change_lsn": "lsn-text",
    "lsn": "postgresql",
    "xmin": "postgresql",
    "commit_scn": "oracle",
    "scn": "oracle",
    "lcr_position": "oracle",
    **dict.fromkeys(_BINLOG_CLUES, "binlog"),
}
"""Position field of a flattened row -> the connectors that have it (`core.contracts.sources`)."""
_CLOUD_EVENTS = {
    "tsms": "ts_ms",
    "serverid": "server_id",
    "commitlsn": "commit_lsn",
    "changelsn": "change_lsn",
    "commitscn": "commit_scn",
    "lcrposition": "lcr_position",
    "rsid": "rs_id",
    "rowid": "row_id",
    "txid": "txId",
    "txseq": "txSeq",
}
_FIELDS = frozenset(SourceBlock.__struct_fields__)


class BodyReader:
    """Reads bodies; `float_hook` makes a number with a fraction of its written text."""

    def __init__(self, float_hook: Numbers) -> None:
        self._envelope = msgspec.json.Decoder(_Envelope, float_hook=float_hook)
        self._wrapped = msgspec.json.Decoder(_Wrapped, float_hook=float_hook)
        self._any = msgspec.json.Decoder(float_hook=float_hook)

    def read(self, body: bytes) -> Message:
        """The message in `body`. Raises Refused, or any error of a decoder that met garbage."""
        try:
            if body.startswith(b'{"schema"'):
                wrapped = self._wrapped.decode(body)
                return _bare(wrapped.payload, bytes(wrapped.schema))
            if b'"source"' in body:
                return _bare(self._envelope.decode(body))
        except msgspec.ValidationError:
            pass  # valid JSON of another form
        return classified(self._any.decode(body)) if body.strip() else Control("tombstone")


def _bare(envelope: _Envelope, schema: bytes | None = None) -> Message:
    before, after = envelope.before, envelope.after
    if before is msgspec.UNSET and after is msgspec.UNSET:
        if envelope.op == "m":
            return Control("logical_message")
        raise Refused(Reason.MISSING_FIELD, "neither before nor after")
    return RowMessage(
        envelope.op,
        envelope.source,
        None if before is msgspec.UNSET else before,
        None if after is msgspec.UNSET else after,
        None if schema == b"null" else schema,
    )


def classified(document: object, schema: bytes | None = None) -> Message:
    """The message in a decoded document of any form but the usual one. Raises Refused."""
    if document is None:
        return Control("null")
    if isinstance(document, str) and not document.strip():
        return Control("tombstone")
    if not isinstance(document, dict):
        raise Refused(Reason.UNREADABLE, "the body is no JSON object")
    if "contract_version" in document:
        return MockMessage(document)
    if schema is None and _is_wrapper(document):
        return classified(document["payload"], msgspec.json.encode(document["schema"]))
    if "specversion" in document and "data" in document:
        return _cloud_event(document)
    return _debezium(document, schema)


def _is_wrapper(document: dict[str, Any]) -> bool:
    schema = document.get("schema")
    return len(document) == 2 and {"schema", "payload"} == document.keys() and (schema is None or "type" in schema)


def _debezium(document: dict[str, Any], schema: bytes | None) -> Message:
    keys = document.keys()
    if "source" in keys and not keys.isdisjoint({"op", "before", "after"}):
        return _odd_envelope(document, schema)
    if "source" in keys and ("ddl" in keys or "tableChanges" in keys):
        return Control("schema_change")
    if document.get("status") in {"BEGIN", "END"} and "id" in keys:
        return Control("transaction")
    if "aggregate_type" in keys and "type" in keys:
        return Control("notification")
    if keys == {"ts_ms"}:
        return Control("heartbeat")
    if not keys.isdisjoint({"__op", "__deleted", "__table"}):
        return _flattened(document, schema)
    raise Refused(Reason.UNREADABLE, "no form of a Debezium message")


def _odd_envelope(document: dict[str, Any], schema: bytes | None) -> Message:
    """An envelope that the fast path did not take: wrapped the other way round, or incomplete."""
    for name, kind in (("op", str), ("source", dict)):
        if not isinstance(document.get(name), kind):
            raise Refused(Reason.MISSING_FIELD, f"envelope without {name}")
    return _bare(msgspec.convert(document, _Envelope), schema)


def _flattened(row: dict[str, Any], schema: bytes | None) -> RowMessage:
    """ExtractNewRecordState: added fields as `__lsn` or, asked for as source.lsn, `__source_lsn`."""
    added: dict[str, Any] = {}
    image: dict[str, Any] = {}
    for name, value in row.items():
        if name.startswith("__"):
            added[name[2:]] = value
        else:
            image[name] = value
    added |= {name[7:]: value for name, value in added.items() if name.startswith("source_")}
    op = "d" if added.get("deleted") in {"true", True} else added.get("op")
    if not isinstance(op, str):
        raise Refused(Reason.MISSING_FIELD, "flattened row without __op")
    source = SourceBlock(**{name: value for name, value in added.items() if name in _FIELDS})
    if source.connector is None:
        source.connector = next((_CLUES[name] for name in added if name in _CLUES), "")
    before, after = (image, None) if op == "d" else (None, image)
    return RowMessage(op, source, before, after, schema, has_sequence=False)


def _cloud_event(event: dict[str, Any]) -> Message:
    """CloudEvents: the images in `data`, the source block as `iodebezium…` attributes, all of them text."""
    names = {name.removeprefix("iodebezium"): value for name, value in event.items() if name.startswith("iodebezium")}
    data, schema = event["data"], None
    if isinstance(data, dict) and _is_wrapper(data):
        data, schema = data["payload"], msgspec.json.encode(data["schema"])
    if not isinstance(data, dict) or not isinstance(names.get("op"), str):
        raise Refused(Reason.UNREADABLE, "CloudEvents message without a row")
    block = {_CLOUD_EVENTS.get(name, name): value for name, value in names.items()}
    source = SourceBlock(**{name: value for name, value in block.items() if name in _FIELDS})
    return RowMessage(names["op"], source, data.get("before"), data.get("after"), schema, has_sequence=False)
