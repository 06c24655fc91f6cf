"""The usual keys: newest image wins, newest delete wins, told from orders alone and written once.

Most changes say all there is to say of their row. For a key of which every image is whole, and which is not out
of order with what is stored, the fold of `load.fold` comes down to comparing orders. So all keys of a batch are
first looked at narrowly, as one temp table of orders; the usual ones are then copied from staging straight into
the target (`load.newest_rows`). The others, `Kind.FOLDED`, go through the evidence. Both ways end in the same
rows (a test holds them equal).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any

import msgspec

from kds_cdc_dagster.load.counts import Counts, Sent
from kds_cdc_dagster.load.layout import Layout, listed, literal, same
from kds_cdc_dagster.ports import Transaction

NEWEST = "kds_newest"
"""Temp table: per key of the batch its newest orders, those stored of it, whose row it is, and its `_kind`."""


class Kind(StrEnum):
    """What a batch's changes of one key come down to."""

    IMAGE = "i"
    """Its newest image is the row."""
    ENDED = "e"
    """Its newest image is the last known one of a tombstone: the batch deletes the key after it."""
    DELETED = "d"
    """The stored row becomes a tombstone."""
    STALE = "s"
    """The target knows all of it, or newer."""
    FOLDED = "f"
    """Needs the evidence: unavailable columns, out of order, re-created, of several tenants."""
    TRUNCATE = "t"
    """No key: truncates of a table."""


WRITTEN = (Kind.IMAGE, Kind.ENDED, Kind.DELETED)
"""Kinds of keys whose row is written."""
_STATED = ("_op", "_row_order", "_missing", "_tenant", "_sent_at")
"""What is read of a change beside its key."""


class _Level(IntEnum):
    """What the images of a key need; the highest counts."""

    WHOLE = 0
    CREATED = 1
    """Begins the key, perhaps anew."""
    PARTIAL = 2
    """Lacks columns."""
    HALF = 3
    """A create that lacks columns: half of a key change."""
    TRUNCATE = 4
    """No key at all."""


class Found(msgspec.Struct, frozen=True):
    """What the keys of one batch are."""

    keys: dict[Kind, int]
    written: Counts
    """Of all keys but the folded ones."""
    replaced: int
    """Stored rows that newest images replace."""
    has_many: bool
    """Some key has several changes."""
    has_halves: bool
    """Some create lacks columns: it is half of a key change (`load.moves`)."""

    def count(self, *kinds: Kind) -> int:
        """Keys of these kinds."""
        return sum(self.keys.get(kind, 0) for kind in kinds)


def look(tx: Transaction, layout: Layout, batch: str, *, is_barred: bool) -> Found:
    """Make `NEWEST` of the batch and count it. `is_barred`: truncates are known, so leave out what they cover."""
    select, batches = _keys(layout, is_barred), [batch] * len(layout.target.from_)
    tx.execute(f"CREATE TEMP TABLE {NEWEST} AS {select}", batches)
    rows = tx.rows(
        "SELECT _kind, COUNT(*), SUM(_changes), COUNT(_stored_order), MAX(_changes), MAX(_level), "
        "MIN(EXTRACT(EPOCH FROM _sent_at)), SUM(EXTRACT(EPOCH FROM _sent_at)), COUNT(_sent_at) "
        f"FROM {NEWEST} GROUP BY _kind"
    )
    by_kind = {Kind(row[0]): row for row in rows}
    return Found(
        keys={kind: int(row[1]) for kind, row in by_kind.items()},
        written=sum((_counts(kind, row) for kind, row in by_kind.items()), Counts()),
        replaced=sum(int(by_kind[kind][3]) for kind in (Kind.IMAGE, Kind.ENDED) if kind in by_kind),
        has_many=any(row[4] > 1 for row in rows),
        has_halves=any(row[5] == _Level.HALF for row in rows),
    )


def _counts(kind: Kind, row: tuple[Any, ...]) -> Counts:
    """Of the keys of one kind: (kind, keys, changes, …, first sent, sum of sent, how many of them)."""
    if kind in {Kind.FOLDED, Kind.TRUNCATE}:
        return Counts()
    keys, changes = int(row[1]), int(row[2])
    if kind is Kind.STALE:
        return Counts(changes=changes, keys=keys)
    deleted = 0 if kind is Kind.IMAGE else keys
    return Counts(changes=changes, keys=keys, applied=keys, deleted=deleted, sent=Sent.of(*row[6:9]))


def has_twins(tx: Transaction, layout: Layout, batch: str) -> bool:
    """Whether two changes of one key have one order (one was delivered twice): then orders alone pick no row."""
    key = listed(layout.key)
    found = f"SELECT {key} FROM ({_staged(layout)}) s GROUP BY {key}, _row_order HAVING COUNT(*) > 1 LIMIT 1"
    return bool(tx.rows(found, [batch] * len(layout.target.from_)))


def of(*kinds: Kind) -> str:
    """Condition: the key is of one of these kinds."""
    return f"_kind IN ({', '.join(literal(kind) for kind in kinds)})"


def tenants(found: Found) -> str:
    """Query: whose rows change, owners of the new rows and of those they replace (one column `tenant`)."""
    written = f"FROM {NEWEST} WHERE {of(*WRITTEN)}"
    new = f"SELECT DISTINCT _owner AS tenant {written}"
    if not (found.replaced or found.count(Kind.DELETED)):
        return new
    return f"{new} UNION SELECT COALESCE(_stored_tenant, '') AS tenant {written} AND _stored_order IS NOT NULL"


def is_folded(layout: Layout) -> str:
    """Condition: the staged change (alias `s`) is of a folded key."""
    return f"EXISTS (SELECT 1 FROM {NEWEST} n WHERE {same(layout.key, 'n', 's')} AND n.{of(Kind.FOLDED)})"


def _staged(layout: Layout) -> str:
    """Takes the batch as a parameter, for each entity."""
    names = listed([*layout.key, *_STATED])
    return " UNION ALL ".join(
        f"SELECT {names} FROM {layout.schemas.staging}.{name} WHERE _batch_id = ?" for name in layout.target.from_
    )


def _grouped(layout: Layout, is_barred: bool) -> str:  # noqa: FBT001  (passed on)
    """Per key of the batch: newest orders, and what tells whether they suffice."""
    barrier = where = ""
    if is_barred:
        schema, target = (literal(value) for value in layout.scope)
        barrier = (
            f" LEFT JOIN {layout.schemas.op('truncates')} t ON t._source = s._source AND t._relation = s._relation "
            f"AND t.schema_name = {schema} AND t.target = {target}"
        )
        where = " WHERE s._row_order > COALESCE(t._row_order, '')"
    level = (
        f"CASE WHEN s._op = 't' THEN {_Level.TRUNCATE} WHEN s._op = 'd' THEN {_Level.WHOLE} "
        f"WHEN s._missing = '' THEN CASE WHEN s._op = 'c' THEN {_Level.CREATED} ELSE {_Level.WHOLE} END "
        f"WHEN s._op = 'c' THEN {_Level.HALF} ELSE {_Level.PARTIAL} END"
    )
    key = listed(layout.key, "s")
    return (
        f"SELECT {key}, COUNT(*) AS _changes, MAX({level}) AS _level, "
        "MAX(CASE WHEN s._op = 'd' THEN '' ELSE s._row_order END) AS _image, "
        "MAX(CASE WHEN s._op = 'd' THEN s._row_order ELSE '' END) AS _delete, "
        "MIN(CASE WHEN s._op <> 'd' THEN COALESCE(s._tenant, '') END) AS _least_tenant, "
        "MAX(COALESCE(s._tenant, '')) AS _most_tenant, MAX(s._sent_at) AS _sent_at "
        f"FROM ({_staged(layout)}) s{barrier}{where} GROUP BY {key}"
    )


def _keys(layout: Layout, is_barred: bool) -> str:  # noqa: FBT001  (passed on)
    """The temp table. All of a stored row (alias `r`) is null where there is none, and what is compared with it."""
    newest = "GREATEST(g._image, g._delete)"
    return (
        f"SELECT {listed(layout.key, 'g')}, {_kind(newest)} AS _kind, {newest} AS _newest_order, "
        "r._row_order AS _stored_order, GREATEST(g._image, COALESCE(r._image_order, '')) AS _image_order, "
        "GREATEST(g._delete, COALESCE(r._deleted_order, '')) AS _deleted_order, "
        "COALESCE(CASE WHEN g._image <= r._image_order THEN r._tenant END, g._most_tenant) AS _owner, "
        "r._tenant AS _stored_tenant, g._changes, g._level, g._sent_at "
        f"FROM ({_grouped(layout, is_barred)}) g LEFT JOIN {layout.rows} r ON {same(layout.key, 'r', 'g')}"
    )


def _kind(newest: str) -> str:
    """Expression: the key's kind, the first that fits."""
    cases: tuple[tuple[str, Kind], ...] = (
        (f"g._level = {_Level.TRUNCATE}", Kind.TRUNCATE),
        (f"g._level > {_Level.CREATED} OR r._missing <> '' OR r._kept <> ''", Kind.FOLDED),
        (
            f"{newest} <= r._row_order AND g._image <= r._image_order AND g._delete <= r._deleted_order",
            Kind.STALE,
        ),
        # Out of order; at one position; of several tenants; a create that begins a stored key anew (`load.moves`).
        (f"{newest} <= r._row_order OR g._image = g._delete", Kind.FOLDED),
        (f"g._least_tenant <> g._most_tenant OR (g._level = {_Level.CREATED} AND r._image_order <> '')", Kind.FOLDED),
        ("g._image > g._delete", Kind.IMAGE),
        ("g._image > COALESCE(r._image_order, '')", Kind.ENDED),
        ("r._image_order <> '' AND (r._tenant IS NOT NULL OR g._most_tenant = '')", Kind.DELETED),
    )
    whens = " ".join(f"WHEN {condition} THEN '{kind}'" for condition, kind in cases)
    # The rest are deletes of which no image is known, or whose owner could be either's.
    return f"CASE {whens} ELSE '{Kind.FOLDED}' END"
