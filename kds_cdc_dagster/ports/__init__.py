"""The ports: what the intake and the load need from the outside, in a few atomic verbs each.

All cleverness sits above them and is written once. One contract suite per port
(`kds_cdc_dagster_tests/contracts`) runs against every adapter.
"""

from __future__ import annotations

from kds_cdc_dagster.ports.clock import Clock
from kds_cdc_dagster.ports.queue import Acknowledgement, DeadLetter, DeadLetters, Inbox, Message, Outbound, QueueDepth
from kds_cdc_dagster.ports.state import Marker, StateStore, StreamRecord
from kds_cdc_dagster.ports.store import ObjectInfo, ObjectStore
from kds_cdc_dagster.ports.warehouse import Dialect, ExportFile, LoadArtifact, Transaction, Warehouse

__all__ = [
    "Acknowledgement",
    "Clock",
    "DeadLetter",
    "DeadLetters",
    "Dialect",
    "ExportFile",
    "Inbox",
    "LoadArtifact",
    "Marker",
    "Message",
    "ObjectInfo",
    "ObjectStore",
    "Outbound",
    "QueueDepth",
    "StateStore",
    "StreamRecord",
    "Transaction",
    "Warehouse",
]
