"""The parser: everything between a received delivery and a change that may be decided."""

from __future__ import annotations

from typing import NamedTuple

from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.core.change import Control, Delivery, Parsed, Reason, Rejection
from kds_cdc_dagster.core.contracts.admission import Admission
from kds_cdc_dagster.core.contracts.body import BodyReader, MockMessage, Refused
from kds_cdc_dagster.core.contracts.debezium import DebeziumContract
from kds_cdc_dagster.core.contracts.mock import VERSION, MockContract
from kds_cdc_dagster.core.contracts.rows import as_written
from kds_cdc_dagster.core.contracts.short_way import ShortWay
from kds_cdc_dagster.core.contracts.sources import Sources

DEBEZIUM = "debezium"


class Limits(NamedTuple):
    """What is let in at all."""

    receives_max: int
    """A message handed over more often is quarantined unparsed: it may be what kills the worker."""
    body_bytes_max: int
    contracts: frozenset[str]


class Parser:
    """Parses deliveries under one catalogue. Thread-safe enough to share: its caches only ever grow anew."""

    def __init__(self, catalogue: Catalogue, limits: Limits) -> None:
        sources, admission = Sources(catalogue), Admission(catalogue)
        self._limits = limits
        self._reader = BodyReader(as_written)
        self._short_way = ShortWay(sources, admission) if DEBEZIUM in limits.contracts else None
        self._debezium = DebeziumContract(sources, admission)
        self._mock = MockContract(catalogue, sources, admission)

    def parse(self, delivery: Delivery) -> Parsed:
        """The change, control message or rejection in a delivery. Never raises."""
        try:
            number = delivery.sequence_number
            is_suspect = (
                delivery.receive_count > self._limits.receives_max
                or len(delivery.body) > self._limits.body_bytes_max
                or not (delivery.group_id and number.isascii() and number.isdecimal())
            )
            if is_suspect:
                return self._turned_away(delivery)
            found = self._short_way.parse(delivery) if self._short_way else None
            return found or self._parsed(delivery)
        except Refused as refused:
            return Rejection(refused.reason, refused.detail, refused.source, refused.entity, delivery.group_id)
        except Exception as error:  # noqa: BLE001 one poisonous body must not stop the round
            return Rejection(Reason.UNREADABLE, f"{type(error).__name__} while parsing", stream=delivery.group_id)

    def _turned_away(self, delivery: Delivery) -> Rejection:
        """The rejection of a delivery whose body must not be looked at."""
        limits, size_bytes = self._limits, len(delivery.body)
        if delivery.receive_count > limits.receives_max:
            detail = f"received {delivery.receive_count} times, at most {limits.receives_max}"
            return Rejection(Reason.TOO_MANY_RECEIVES, detail, stream=delivery.group_id)
        number = delivery.sequence_number
        if not delivery.group_id or not (number.isascii() and number.isdecimal()):
            return Rejection(Reason.MISSING_QUEUE_METADATA, "no message group id or sequence number")
        detail = f"body of {size_bytes} bytes, at most {limits.body_bytes_max}"
        return Rejection(Reason.OVERSIZE, detail, stream=delivery.group_id)

    def _parsed(self, delivery: Delivery) -> Parsed:
        message = self._reader.read(delivery.body)
        if isinstance(message, Control):
            return message
        if isinstance(message, MockMessage):
            version = message.fields["contract_version"]
            self._let_in(version if version == VERSION else "")
            return self._mock.parse(message, delivery)
        self._let_in(DEBEZIUM)
        return self._debezium.parse(message, delivery)

    def _let_in(self, contract: str) -> None:
        if contract not in self._limits.contracts:
            raise Refused(Reason.UNKNOWN_CONTRACT, f"contract {contract or 'of another version'} is not let in")
