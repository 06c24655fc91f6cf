"""The `kds-cdc-mock/v1` contract: every field mandatory, its own dense counter as coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kds_cdc_dagster.core import identity
from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.core.change import Change, Delivery, Op, Parsed, Phase, Rank, Reason
from kds_cdc_dagster.core.contracts.admission import Admission
from kds_cdc_dagster.core.contracts.body import MockMessage, Refused
from kds_cdc_dagster.core.contracts.sources import Sources
from kds_cdc_dagster.core.contracts.tables import BoundTable
from kds_cdc_dagster.core.position import counter

VERSION = "kds-cdc-mock/v1"
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "entity": str,
    "operation": str,
    "primary_key": dict,
    "source_account_id": str,
    "store_guid": str,
    "is_deleted": bool,
    "occurred_at": str,
    "sequence": dict,
    "before": (dict, type(None)),
    "after": (dict, type(None)),
}


class MockContract:
    """Changes of the catalogue's mock source."""

    def __init__(self, catalogue: Catalogue, sources: Sources, admission: Admission) -> None:
        self._sources = sources
        self._admission = admission
        self._source = next((source for source in catalogue.sources if source.contract == VERSION), None)

    def parse(self, message: MockMessage, delivery: Delivery) -> Parsed:
        """The change in a mock message. Raises Refused."""
        if self._source is None:
            raise Refused(Reason.UNKNOWN_SOURCE, f"no source of contract {VERSION} in the catalogue")
        fields = message.fields
        for name, kinds in _TYPES.items():
            if name not in fields or not isinstance(fields[name], kinds):
                raise Refused(Reason.MISSING_FIELD, f"{name} is missing or of another type", source=self._source.id)
        table = self._sources.entity(self._source, fields["entity"])
        try:
            change = _change(fields, delivery, table)
        except Refused as refused:
            refused.source, refused.entity = table.source.id, table.entity.name
            raise
        return self._admission.admit(change, table, delivery.group_id)


def _change(fields: Mapping[str, Any], delivery: Delivery, table: BoundTable) -> Change:
    op, before, after = fields["operation"], fields["before"], fields["after"]
    if op not in {Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ}:
        raise Refused(Reason.UNSUPPORTED_OPERATION, f"operation {op[:20]}")
    if op != Op.DELETE and after is None:
        raise Refused(Reason.MISSING_FIELD, "after holds no row")
    key = table.key(fields["primary_key"], table.columns(None))
    account, store = fields["source_account_id"], _store(fields["store_guid"], table)
    stream, number = _sequence(fields, delivery, table, account=account, store=store)
    content_hash = identity.content_hash(op, key, before, after)
    parts = (identity.MOCK, table.source.id, table.entity.name, key, stream, number)
    is_read = op == Op.READ
    return Change(
        source=table.source.id,
        entity=table.entity.name,
        database="",
        schema="",
        table=table.entity.name,
        op=op,
        primary_key=key,
        stream=stream,
        account=account,
        store=store,
        tenant=None,
        company=None,
        identity=identity.identity(*parts, content_hash) if is_read else identity.identity(*parts),
        content_hash=content_hash,
        stream_position=None if is_read else counter(number),
        row_position=counter(number),
        phase=Phase.SNAPSHOT if is_read else Phase.STREAMING,
        rank=Rank.STREAMING,
        lineage="",
        is_snapshot_start=False,  # the mock's counter belongs to the stream: it knows no snapshots of a source
        occurred_at_ms=_milliseconds(fields["occurred_at"]),
    )


def _sequence(
    fields: Mapping[str, Any], delivery: Delivery, table: BoundTable, *, account: str, store: str
) -> tuple[str, int]:
    """Stream and position; the stream key is account:store and, where groups make streams, the group."""
    stream, number = fields["sequence"].get("stream_key"), fields["sequence"].get("stream_position")
    if not isinstance(stream, str) or type(number) is not int or number < 0:
        raise Refused(Reason.MISSING_COORDINATES, "sequence needs stream_key and a stream_position from 0 on")
    if not account or not store:
        raise Refused(Reason.MISSING_FIELD, "source_account_id or store_guid is empty")
    is_named = _folded(stream, table) == _folded(f"{account}:{store}", table)
    if not is_named or (table.source.stream.from_ == "group" and stream != delivery.group_id):
        raise Refused(Reason.GROUP_MISMATCH, "stream key, account:store and message group are not the same")
    return stream, number


def _store(text: str, table: BoundTable) -> str:
    return text.lower() if table.has_uuid_stores else text


def _folded(stream: str, table: BoundTable) -> str:
    account, _, store = stream.rpartition(":")
    return f"{account}:{_store(store, table)}"


def _milliseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(Reason.MISSING_FIELD, "occurred_at is no ISO time") from None
    if moment.tzinfo is None:
        raise Refused(Reason.MISSING_FIELD, "occurred_at has no zone")
    return int(moment.timestamp() * 1000)
