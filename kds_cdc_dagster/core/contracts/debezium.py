"""The `debezium` contract: a row-level message to a change."""

from __future__ import annotations

from kds_cdc_dagster.core import identity
from kds_cdc_dagster.core.change import Change, Control, Delivery, Op, Parsed, Phase, Rank, Reason
from kds_cdc_dagster.core.contracts.admission import Admission
from kds_cdc_dagster.core.contracts.body import Refused, RowMessage
from kds_cdc_dagster.core.contracts.coordinates import Coordinates, coordinates, lineage
from kds_cdc_dagster.core.contracts.sources import Place, Sources
from kds_cdc_dagster.core.contracts.tables import BoundTable, Scope
from kds_cdc_dagster.core.position import arrival

OPERATIONS = frozenset(op.value for op in Op)
# Plain texts: reading a member off an Enum class costs more than all comparisons with it.
_DELETE, _READ, _TRUNCATE = Op.DELETE.value, Op.READ.value, Op.TRUNCATE.value


class DebeziumContract:
    """Changes of every Debezium source of a catalogue."""

    def __init__(self, sources: Sources, admission: Admission) -> None:
        self._sources = sources
        self._admission = admission

    def parse(self, message: RowMessage, delivery: Delivery) -> Parsed:
        """The change in a row-level message. Raises Refused."""
        route = self._sources.route(message.source, is_partial=not message.has_sequence)
        if route is None:
            return Control("signal")
        table = route.table
        try:
            change = _change(message, delivery, table, route.place)
        except Refused as refused:
            refused.source, refused.entity = table.source.id, table.entity.name
            raise
        return self._admission.admit(change, table, delivery.group_id)


def _change(message: RowMessage, delivery: Delivery, table: BoundTable, place: Place) -> Change:
    source, op = table.source, message.op
    if op not in OPERATIONS:
        raise Refused(Reason.UNSUPPORTED_OPERATION, f"operation {op[:20]}")
    if op == _TRUNCATE:
        if source.on.truncate == "quarantine":
            raise Refused(Reason.TRUNCATE_REFUSED, "the source's policy refuses truncates")
        key, scope = "", Scope(delivery.group_id, None, None)
    else:
        key, scope = _routed(message, delivery, table)
    found = coordinates(table.connector, op, message.source, has_sequence=message.has_sequence)
    content_hash = identity.content_hash(op, key, message.before, message.after)
    stream_position, row_position, phase, rank = _order(message, delivery, found)
    return Change(
        source=table.source_id,
        entity=table.entity_name,
        database=place.database,
        schema=place.schema,
        table=place.table,
        op=op,
        primary_key=key,
        stream=scope.stream,
        account=scope.account,
        store=scope.store,
        tenant=None,
        company=None,
        identity=identity.identity(
            identity.PRODUCTION, table.source_id, *place, op, key, *_identifying(message, found, content_hash)
        ),
        content_hash=content_hash,
        stream_position=stream_position,
        row_position=row_position,
        phase=phase,
        rank=rank,
        lineage=lineage(table.connector, op, message.source),
        is_snapshot_start=op == _READ and message.source.snapshot == "first",
        occurred_at_ms=milliseconds(message.source.ts_ms),
    )


def _routed(message: RowMessage, delivery: Delivery, table: BoundTable) -> tuple[str, Scope]:
    """Key and scope of a row. Of a delete only the key is trusted, and what is not empty besides."""
    is_delete = message.op == _DELETE
    part = "before" if is_delete else "after"
    if is_delete and message.before is None:
        raise Refused(Reason.MISSING_KEY, "a delete without its old row")
    image = table.image(message.before if is_delete else message.after, part)
    columns = table.columns(message.schema)
    has_fillers = is_delete and table.connector == "postgresql"
    return table.key(image, columns), table.scope(image, columns, delivery, has_fillers=has_fillers)


def _order(
    message: RowMessage, delivery: Delivery, found: Coordinates | None
) -> tuple[str | None, str | None, int, int]:
    """(stream position, row position, phase, rank). Reads prove nothing about the stream's order."""
    row_position = None if found is None else found.row_position
    if message.op == _READ:
        is_incremental = found is None or message.source.snapshot == "incremental"
        if is_incremental:
            return None, row_position, Phase.STREAMING, Rank.INCREMENTAL
        return None, row_position, Phase.SNAPSHOT, Rank.STREAMING
    if found is not None and found.is_arrival:
        return arrival(delivery.sequence_number), row_position, Phase.STREAMING, Rank.STREAMING
    return row_position, row_position, Phase.STREAMING, Rank.STREAMING


def _identifying(message: RowMessage, found: Coordinates | None, content_hash: str) -> tuple[object, ...]:
    """Coordinates; of a read, which has no stable ones, also its content and (without any) its time."""
    if message.op != _READ:
        return found.identity if found is not None else ()
    return (*(found.identity if found is not None else (str(message.source.ts_ms),)), content_hash)


def milliseconds(value: object) -> int | None:
    """A time of a source block, which may be text (CloudEvents); None if it is none."""
    if type(value) is int:
        return value
    if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()):
        return int(value)
    return None
