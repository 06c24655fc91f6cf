"""The rows of the usual keys (`load.newest`): copied from staging, or for a delete from the row that it ends."""

from __future__ import annotations

from datetime import datetime

from kds_cdc_dagster.load.fold import FOLDED
from kds_cdc_dagster.load.layout import Layout, listed, same
from kds_cdc_dagster.load.newest import NEWEST, WRITTEN, Found, Kind, of
from kds_cdc_dagster.ports import Transaction

_ENDS = ("_row_position", "_content_hash", "_occurred_at", "_sent_at")
"""What a tombstone takes from the delete, beside its order."""


def write(tx: Transaction, layout: Layout, batch: str, found: Found, *, loaded_at: datetime) -> None:
    """Write the rows of all keys but the folded ones.

    Inserts before it deletes: a tombstone takes its values from the row that it replaces, which is then known by
    its lower order.
    """
    ended, loaded = found.count(Kind.ENDED, Kind.DELETED), (loaded_at, batch)
    of_each = len(layout.target.from_)
    if found.count(Kind.IMAGE, Kind.ENDED):
        _insert(tx, layout, _images(layout), (*loaded, batch) * of_each)
    if ended:
        _insert(tx, layout, _tombstones(layout), (*loaded, *[batch] * of_each))
    if ended or found.replaced:
        bare = layout.rows.rpartition(".")[2]
        tx.execute(
            f"DELETE FROM {layout.rows} USING {NEWEST} WHERE {same(layout.key, bare, NEWEST)} "
            f"AND {NEWEST}.{of(*WRITTEN)} AND {bare}._row_order < {NEWEST}._newest_order"
        )


def _insert(tx: Transaction, layout: Layout, select: str, loaded: tuple[object, ...]) -> None:
    columns = listed([*layout.key, *layout.values, *FOLDED, "_loaded_at", "_batch_id"])
    tx.execute(f"INSERT INTO {layout.rows} ({columns}) {select}", loaded)


def _images(layout: Layout) -> str:
    """The newest images as live rows, whatever deletes come after."""
    own = {
        "_image_order": "s._row_order",
        "_deleted_order": "n._deleted_order",
        "_is_deleted": "FALSE",
        "_missing": "''",
        "_kept": "''",
    }
    columns = [own.get(name, f"s.{name}") for name in (*layout.key, *layout.values, *FOLDED)]
    return " UNION ALL ".join(
        f"SELECT {listed(columns)}, ?, ? FROM {layout.schemas.staging}.{name} s JOIN {NEWEST} n "
        f"ON {same(layout.key, 'n', 's')} AND n._image_order = s._row_order "
        f"WHERE s._batch_id = ? AND n.{of(Kind.IMAGE, Kind.ENDED)}"
        for name in layout.target.from_
    )


def _tombstones(layout: Layout) -> str:
    """The last known rows of deleted keys, with what their newest delete says."""
    own = {
        "_row_order": "d._row_order",
        "_deleted_order": "d._row_order",
        "_is_deleted": "TRUE",
        "_company": "COALESCE(r._company, d._company)",
        "_tenant": "COALESCE(r._tenant, d._tenant)",
    }
    own |= {name: f"d.{name}" for name in _ENDS}
    columns = [own.get(name, f"r.{name}") for name in (*layout.key, *layout.values, *FOLDED)]
    names = listed([*layout.key, "_row_order", "_company", "_tenant", *_ENDS])
    deletes = " UNION ALL ".join(
        f"SELECT {names} FROM {layout.schemas.staging}.{name} WHERE _batch_id = ? AND _op = 'd'"
        for name in layout.target.from_
    )
    return (
        f"SELECT {listed(columns)}, ?, ? FROM {NEWEST} n JOIN ({deletes}) d "
        f"ON {same(layout.key, 'd', 'n')} AND d._row_order = n._newest_order "
        f"JOIN {layout.rows} r ON {same(layout.key, 'r', 'n')} AND r._image_order = n._image_order "
        f"WHERE n.{of(Kind.ENDED, Kind.DELETED)}"
    )
