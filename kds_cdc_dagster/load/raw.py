"""Raw artifacts: one immutable Parquet object per batch and entity, the truth that replays start from."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kds_cdc_dagster.errors import InvariantBroken, ObjectExists
from kds_cdc_dagster.journal import keys, parquet, segment
from kds_cdc_dagster.load.batch import DICTIONARIES, SCHEMA, Batch, plain
from kds_cdc_dagster.ports import ObjectStore

_REPEATING = [name for name in SCHEMA.names if name not in segment.UNIQUE | {"segment_row"}]
_SORTED_BY = ["company", "tenant", "stream", "row_order", "sequence_number"]
_SAME_BY = ["identity", "content_hash"]


_KEPT, _KEPT_BYTES_MAX = 4, 64 << 20
_just_written: dict[str, pa.Table] = {}
"""Checksum -> rows of the last artifacts of this process, each until it is read: staging follows at once, and need
not decode again what it has just seen (a twentieth of a load). What is stored is checked all the same."""


class RawSlice(msgspec.Struct, frozen=True):
    """Company × tenant part of a raw artifact: rows `offset` to `offset + rows`."""

    company: str
    tenant: str
    offset: int
    rows: int


class RawArtifact(msgspec.Struct, frozen=True):
    """The sidecar: what the Parquet object holds, and how to prove it."""

    entity: str
    batch: str
    key: str
    sha256: str
    size_bytes: int
    rows: int
    repeats: int
    """Deliveries of a change that the batch holds already (same identity and content), left out."""
    slices: tuple[RawSlice, ...]
    version: int = 1


def write_raw(store: ObjectStore, entity: str, batch: Batch) -> RawArtifact:
    """Write the entity's changes as received: sorted by company, tenant, stream and row order.

    Repeating it gives the same artifact. Raises InvariantBroken if the stored one holds other rows.
    """
    accepted = batch.places(entity)
    rows = batch.rows.take(_ordered(batch.rows, accepted))
    key = keys.raw(entity, batch.manifest.batch)
    body = _put(store, key, rows)
    artifact = RawArtifact(
        entity=entity,
        batch=batch.manifest.batch,
        key=key,
        sha256=sha256(body).hexdigest(),
        size_bytes=len(body),
        rows=rows.num_rows,
        repeats=len(accepted) - rows.num_rows,
        slices=tuple(_slices(rows)),
    )
    _keep(artifact.sha256, rows)
    sidecar = keys.raw_sidecar(entity, batch.manifest.batch)
    try:
        store.create(sidecar, msgspec.json.encode(artifact))
    except ObjectExists:
        return msgspec.json.decode(store.get(sidecar), type=RawArtifact)
    return artifact


def read_raw(store: ObjectStore, entity: str, batch: str) -> tuple[RawArtifact, pa.Table]:
    """An artifact and its rows (as `Batch.rows`). Raises ObjectMissing; InvariantBroken if the checksum is wrong."""
    artifact = msgspec.json.decode(store.get(keys.raw_sidecar(entity, batch)), type=RawArtifact)
    body = store.get(artifact.key)
    if sha256(body).hexdigest() != artifact.sha256:
        raise InvariantBroken("a raw artifact is not what was written", key=artifact.key, hint="restore this object")
    rows = _just_written.pop(artifact.sha256, None)
    return artifact, parquet.read(body, DICTIONARIES) if rows is None else rows


def _keep(checksum: str, rows: pa.Table) -> None:
    if rows.nbytes <= _KEPT_BYTES_MAX:
        _just_written[checksum] = rows
    for oldest in list(_just_written)[:-_KEPT]:
        _just_written.pop(oldest, None)


def _put(store: ObjectStore, key: str, rows: pa.Table) -> bytes:
    """The object's bytes: ours, or those of an earlier attempt, which another version may have encoded."""
    body = parquet.written(rows, _REPEATING, has_arrow_schema=False)
    try:
        store.create(key, body)
    except ObjectExists:
        stored = store.get(key)
        if stored != body and not parquet.read(stored).cast(SCHEMA).equals(plain(rows)):
            raise InvariantBroken("a raw artifact exists with other rows", key=key) from None
        return stored
    return body


def _ordered(rows: pa.Table, places: pa.Array) -> pa.Array:
    """The places by company, tenant, stream and row order: of each identity and content hash the first delivery.

    Rows are wide: only the columns that this asks for are moved before it is known where each row goes.
    """
    keyed = plain(rows.select([*_SORTED_BY, *_SAME_BY]).take(places))
    order = pc.sort_indices(keyed.select(_SORTED_BY), sort_keys=[(name, "ascending") for name in _SORTED_BY])
    if pc.count_distinct(keyed["identity"]).as_py() == len(places):
        return places.take(order)
    ranked = keyed.select(_SAME_BY).take(order).append_column("rank", pa.array(range(len(order)), pa.int64()))
    first = ranked.group_by(_SAME_BY, use_threads=False).aggregate([("rank", "min")])["rank_min"]
    return places.take(order.take(first.sort()))


def _slices(rows: pa.Table) -> Iterator[RawSlice]:
    named = plain(rows.select(["company", "tenant"]))
    owners = pa.table({name: named[name].fill_null("") for name in named.column_names})
    counted = owners.group_by(["company", "tenant"], use_threads=False).aggregate([([], "count_all")])
    # Nulls sort last, as the rows do; key-only deletes are the slice without an owner.
    offset = 0
    for row in sorted(counted.to_pylist(), key=lambda row: (not row["company"], *row.values())):
        yield RawSlice(row["company"], row["tenant"], offset, row["count_all"])
        offset += row["count_all"]
