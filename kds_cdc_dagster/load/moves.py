"""Key changes: the create half's unavailable columns come from the row under the old key.

A key change arrives as delete(old) and create(new) at one source position, perhaps in two groups and two
batches, in either order; the create's large unchanged columns are placeholders. Each such create is
remembered as a *move*. Whenever a batch brings a half of one, or an older change of its old key, the move
and all moves chained to it are resolved again, from everything known of the old keys below the delete:
staged changes, the stored row, and the stored rows that re-created keys have replaced (`past`).
"""

from __future__ import annotations

from kds_cdc_dagster.load.evidence import EVIDENCE, FIRST_ADDED, evidence_columns, staged_select
from kds_cdc_dagster.load.fold import WORK
from kds_cdc_dagster.load.layout import KEY_META, Layout, listed, literal, same
from kds_cdc_dagster.load.move_values import fill
from kds_cdc_dagster.ports import Transaction

_TOUCHED = "kds_moves"
_TABLE = [name for name, _ in KEY_META]


def keep_past(tx: Transaction, layout: Layout) -> None:
    """Keep the stored row of a key that a create of the batch begins anew: a move may still ask for it."""
    if not tx.rows(f"SELECT 1 FROM {EVIDENCE} WHERE _from_batch = 0 LIMIT 1"):
        return  # no key of the batch has a stored row
    columns = [name for name, _ in layout.row_columns]
    tx.execute(
        f"INSERT INTO {layout.past} ({listed(columns)}) SELECT {listed(columns, 'r')} FROM {layout.rows} r "
        f"JOIN {WORK} w ON {same(layout.key, 'w', 'r')} "
        "WHERE w._is_reborn = 1 AND r._image_order <> '' AND r._image_order < w._image_order"
    )


def is_touched(tx: Transaction, layout: Layout, batch: str) -> bool:
    """Whether `resolve` would have anything to do with the batch, apart from moves that begin in it."""
    changes = _staged(layout, f" WHERE _batch_id = {literal(batch)}")
    parts = " UNION ALL ".join(f"SELECT 1 FROM {joined}" for joined in _reasons(layout, changes))
    return bool(tx.rows(f"SELECT 1 FROM ({parts}) t LIMIT 1"))


def resolve(tx: Transaction, layout: Layout) -> None:
    """Fill the create halves in the evidence, adding those of earlier batches that can be filled now."""
    _register(tx, layout)
    if not tx.rows(f"SELECT 1 FROM {layout.moves} LIMIT 1"):
        return
    _touch(tx, layout)
    if not tx.rows(f"SELECT 1 FROM {_TOUCHED} LIMIT 1"):
        return
    _add_creates(tx, layout)
    fill(tx, layout, _touched_moves(layout))


def _register(tx: Transaction, layout: Layout) -> None:
    if not tx.rows(f"SELECT 1 FROM {EVIDENCE} WHERE _op = 'c' AND _missing <> '' LIMIT 1"):
        return
    names = [*layout.key, "_row_position", "_row_order"]
    tx.execute(
        f"INSERT INTO {layout.moves} ({listed(names)}, old_row_order) SELECT DISTINCT {listed(names, 'e')}, '' "
        f"FROM {EVIDENCE} e LEFT JOIN {layout.moves} m ON {same([*layout.key, '_row_order'], 'm', 'e')} "
        "WHERE e._op = 'c' AND e._missing <> '' AND m._row_order IS NULL"
    )


def _touch(tx: Transaction, layout: Layout) -> None:
    """Moves of which the batch has a half or an older change, and all that are chained to them."""
    move = listed([*layout.key, "_row_order"], "m")
    parts = " UNION ".join(f"SELECT {move} FROM {joined}" for joined in _reasons(layout, EVIDENCE))
    tx.execute(f"DROP TABLE IF EXISTS {_TOUCHED}")
    tx.execute(f"CREATE TEMP TABLE {_TOUCHED} AS {parts}")
    _pair(tx, layout)
    while _touch_chained(tx, layout):
        pass


def _reasons(layout: Layout, changes: str) -> list[str]:
    """Joins of the moves (alias `m`) with the changes that bring a half of one, or an older change of its old key."""
    old = [f"e.{name} = m.old_{name}" for name in layout.entity.primary_key]
    table = same(_TABLE, "e", "m")
    conditions = (
        f"{same([*layout.key, '_row_order'], 'e', 'm')}",
        f"{table} AND e._op = 'd' AND e._row_position = m._row_position",
        f"{table} AND {' AND '.join(old)} AND e._row_order < m.old_row_order",
    )
    return [f"{layout.moves} m JOIN {changes} e ON {condition}" for condition in conditions]


def _touch_chained(tx: Transaction, layout: Layout) -> int:
    """Add moves whose old key is a touched one's new key, or the other way round; returns how many."""
    ids = [*layout.key, "_row_order"]
    table = same(_TABLE, "m", "k")
    downstream = " AND ".join(f"m.old_{name} = k.{name}" for name in layout.entity.primary_key)
    upstream = " AND ".join(f"m.{name} = k.old_{name}" for name in layout.entity.primary_key)
    ((before,),) = tx.rows(f"SELECT COUNT(*) FROM {_TOUCHED}")
    tx.execute(
        f"INSERT INTO {_TOUCHED} ({listed(ids)}) SELECT DISTINCT {listed(ids, 'm')} "
        f"FROM {layout.moves} m JOIN {_touched_moves(layout)} k ON {table} AND ("
        f"({downstream} AND k._row_order < m.old_row_order) OR ({upstream} AND m._row_order < k.old_row_order)) "
        f"LEFT JOIN {_TOUCHED} have ON {same(ids, 'have', 'm')} WHERE have._row_order IS NULL"
    )
    ((after,),) = tx.rows(f"SELECT COUNT(*) FROM {_TOUCHED}")
    return int(after - before)


def _touched_moves(layout: Layout) -> str:
    ids = [*layout.key, "_row_order"]
    return f"(SELECT a.* FROM {layout.moves} a JOIN {_TOUCHED} b ON {same(ids, 'a', 'b')})"


def _pair(tx: Transaction, layout: Layout) -> None:
    """Find the delete halves of the touched moves among all staged changes.

    A delete of another key at the same position: the only one, if the create is the only one too (their
    sequence numbers may come from two groups); else the last before the create, with no create between.
    """
    pk = layout.entity.primary_key
    ids = [*layout.key, "_row_order"]
    olds = ", ".join(f"d.{name} AS old_{name}" for name in pk)
    staged = _staged(layout)
    other = " OR ".join(f"{{0}}.{name} <> m.{name}" for name in pk)
    at = same([*_TABLE, "_row_position"], "{0}", "m")
    deletes = (
        f"SELECT {listed(ids, 'm')}, {olds}, MIN(d._row_order) AS old_row_order "
        f"FROM {_touched_moves(layout)} m JOIN {staged} d ON {at.format('d')} AND d._op = 'd' "
        f"AND ({other.format('d')}) GROUP BY {listed(ids, 'm')}, {listed(pk, 'd')}"
    )
    creates = (
        f"SELECT {listed(ids, 'm')}, COUNT(*) AS others, "
        "COALESCE(MAX(CASE WHEN c._row_order < m._row_order THEN c._row_order END), '') AS before "
        f"FROM {_touched_moves(layout)} m JOIN {staged} c ON {at.format('c')} AND c._op = 'c' "
        f"AND ({other.format('c')}) GROUP BY {listed(ids, 'm')}"
    )
    ranked = (
        f"SELECT d.*, COALESCE(c.others, 0) AS others, COALESCE(c.before, '') AS before, "
        f"COUNT(*) OVER (PARTITION BY {listed(ids, 'd')}) AS deletes, "
        f"ROW_NUMBER() OVER (PARTITION BY {listed(ids, 'd')} ORDER BY "
        "CASE WHEN d.old_row_order < d._row_order THEN 0 ELSE 1 END, d.old_row_order DESC) AS place "
        f"FROM ({deletes}) d LEFT JOIN ({creates}) c ON {same(ids, 'c', 'd')}"
    )
    sets = ", ".join(f"old_{name} = p.old_{name}" for name in (*pk, "row_order"))
    bare = layout.moves.rpartition(".")[2]
    tx.execute(
        f"UPDATE {layout.moves} SET {sets} FROM ({ranked}) p WHERE {same(ids, bare, 'p')} AND p.place = 1 "
        "AND ((p.deletes = 1 AND p.others = 0) OR (p.old_row_order < p._row_order AND p.old_row_order > p.before))"
    )


def _staged(layout: Layout, where: str = "") -> str:
    """All staged changes of the target, whatever their batch, or those of `where`."""
    names = listed([*layout.key, "_op", "_row_position", "_row_order"])
    parts = " UNION ALL ".join(
        f"SELECT {names} FROM {layout.schemas.staging}.{name}{where}" for name in layout.target.from_
    )
    return f"({parts})"


def _add_creates(tx: Transaction, layout: Layout) -> None:
    """Add the touched create halves of earlier batches to the evidence, as if this batch had them."""
    ids = [*layout.key, "_row_order"]
    columns = evidence_columns(layout)
    parts = " UNION ALL ".join(
        staged_select(layout, f"{layout.schemas.staging}.{name}", "s._op = 'c' AND s._missing <> ''")
        for name in layout.target.from_
    )
    tx.execute(
        f"INSERT INTO {EVIDENCE} (_n, {listed(columns)}) SELECT ROW_NUMBER() OVER () + {FIRST_ADDED}, "
        f"{listed(columns, 'u')} FROM ({parts}) u JOIN {_TOUCHED} m ON {same(ids, 'm', 'u')} "
        f"LEFT JOIN {EVIDENCE} have ON {same(ids, 'have', 'u')} WHERE have._n IS NULL"
    )
