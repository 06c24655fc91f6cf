"""Sealed batches made of records, for the tests of raw, staging and quarantine."""

from __future__ import annotations

from typing import Any

from kds_cdc_dagster.core.position import counter, row_order
from kds_cdc_dagster.journal import keys, manifest, segment
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.ports import ObjectStore

Record = dict[str, Any]


def record(position: int, **fields: Any) -> Record:
    """An accepted change of dish, with everything else derived from its position."""
    known = {
        "outcome": "accepted",
        "source": "mock",
        "entity": "dish",
        "table_name": "dish",
        "op": "u",
        "stream": "acct-1:s",
        "tenant": "acct-1",
        "company": "acct-1",
        "row_order": row_order(0, 1, counter(position), 1, str(position)),
        "row_position": counter(position),
        "identity": f"{position:032x}",
        "content_hash": f"{position:016x}",
        "sequence_number": str(position),
        "sent_at_ms": 1_793_520_000_000,
        "received_at_ms": 1_793_520_000_500,
        "receive_count": 1,
        "body": f"body {position}".encode(),
    }
    texts = {field.name: "" for field in segment.SCHEMA if str(field.type) == "string"}
    return {**dict.fromkeys(segment.SCHEMA.names), **texts, **known, **fields}


def sealed(store: ObjectStore, *rounds: list[Record], claim: str = "w1", first_slot: int = 1) -> Manifest:
    """Put each round as a segment, and seal them as one batch."""
    records = [found for round_ in rounds for found in round_]
    for slot, round_ in enumerate(rounds, first_slot):
        columns = {name: [found[name] for found in round_] for name in segment.SCHEMA.names}
        store.create(keys.segment(SegmentId(claim, slot)), segment.encode(columns, {}))
    outcomes = [found["outcome"] for found in records]
    found = Manifest(
        batch=keys.batch_id(SegmentId(claim, first_slot)),
        claim=claim,
        first_slot=first_slot,
        last_slot=first_slot + len(rounds) - 1,
        lanes=(),
        slices=(),
        entities=tuple(sorted({row["entity"] for row in records if row["outcome"] == "accepted"})),
        accepted=outcomes.count("accepted"),
        rejected=outcomes.count("rejected"),
        parked=outcomes.count("parked"),
        counts={},
        size_bytes=0,
        close_reason="drain",
        first_received_ms=0,
        last_received_ms=0,
        sealed_at_ms=0,
        worker="w1",
    )
    assert manifest.write(store, found)
    return found
