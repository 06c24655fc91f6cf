"""Manifests: what a sealed batch holds, with the evidence for each lane.

A batch is a run of consecutive settled segments of one claim's log. The key is (claim, first slot), so
whatever two workers think, each segment is in one batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kds_cdc_dagster.errors import ObjectExists
from kds_cdc_dagster.journal import keys
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.ports import ObjectStore


class Lane(msgspec.Struct, frozen=True):
    """One stream's part of a batch, with the evidence of its order."""

    source: str
    stream: str
    changes: int
    first_order: str
    """First stream order among in-order changes; empty if the lane holds snapshot reads only."""
    last_order: str
    first_sequence: str
    last_sequence: str
    row_position: str = ""
    """Highest row position, with its epoch in front: with `last_order` enough to rebuild the stream's state."""
    lineage: str = ""
    flagged: int = 0
    """Changes that a policy let in although their order was not proven."""


class Slice(msgspec.Struct, frozen=True):
    """Company × tenant × entity part of a batch."""

    company: str
    tenant: str
    entity: str
    changes: int


class Manifest(msgspec.Struct, frozen=True):
    """A sealed batch."""

    batch: str
    claim: str
    first_slot: int
    last_slot: int
    """Inclusive."""
    lanes: tuple[Lane, ...]
    slices: tuple[Slice, ...]
    entities: tuple[str, ...]
    """Entities with accepted changes, sorted."""
    accepted: int
    rejected: int
    parked: int
    counts: dict[str, int]
    """Sum of the segments' counts."""
    size_bytes: int
    close_reason: str
    """count | age | bytes | drain | adopted"""
    first_received_ms: int
    last_received_ms: int
    sealed_at_ms: int
    worker: str
    held: str = ""
    """Why the batch must not be handed on; empty if it may."""
    version: int = 1

    @property
    def segments(self) -> Iterator[SegmentId]:
        """Segments of the batch in order; an END only ever closes a log."""
        return (SegmentId(self.claim, slot) for slot in range(self.first_slot, self.last_slot + 1))


def write(store: ObjectStore, manifest: Manifest) -> bool:
    """Create the manifest; False if the batch was sealed by somebody else."""
    try:
        store.create(keys.manifest(manifest.batch), msgspec.json.encode(manifest))
    except ObjectExists:
        return False
    return True


def read(store: ObjectStore, batch: str) -> Manifest:
    """The manifest of `batch`. Raises ObjectMissing."""
    return msgspec.json.decode(store.get(keys.manifest(batch)), type=Manifest)
