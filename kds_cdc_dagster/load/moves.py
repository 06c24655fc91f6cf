"""Key changes: the create half's unavailable columns come from the row under the old key.

A key change arrives as delete(old) and create(new) at one source position, perhaps in two groups and two
batches, in either order; the create's large unchanged columns are placeholders. Each such create is
remembered as a *move*. Whenever a batch brings a half of one, or an older change of its old key, the move
and all moves chained to it are resolved again, from everything known of the old keys below the delete:
staged changes, the stored row, and the stored rows that re-created keys have replaced (`past`).
"""

from __future__ import annotations

from kds_cdc_dagster.core.change import Phase
from kds_cdc_dagster.core.position import EPOCH_DIGITS, POSITION_DIGITS
from kds_cdc_dagster.load.evidence import (
    EVIDENCE,
    FIRST_ADDED,
    evidence_columns,
    is_known,
    partial_columns,
    setter_order,
    staged_select,
)
from kds_cdc_dagster.load.fold import WORK
from kds_cdc_dagster.load.layout import KEY_META, Layout, listed, same
from kds_cdc_dagster.ports import Transaction

_TOUCHED = "kds_moves"
_SOURCES = "kds_move_sources"
_FOUND = "kds_move_values"
_TABLE = [name for name, _ in KEY_META]
_COMMIT_DIGITS = 17
"""Leading digits of a PostgreSQL position: the last completed commit, 0 before the first (`core.position`)."""


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


def resolve(tx: Transaction, layout: Layout) -> None:
    """Fill the create halves in the evidence, adding those of earlier batches that can be filled now."""
    _register(tx, layout)
    if not tx.rows(f"SELECT 1 FROM {layout.moves} LIMIT 1"):
        return
    _touch(tx, layout)
    if not tx.rows(f"SELECT 1 FROM {_TOUCHED} LIMIT 1"):
        return
    _add_creates(tx, layout)
    _collect_sources(tx, layout)
    columns = partial_columns(tx, layout, "_op = 'c'")
    unknown = -1
    # One turn resolves one link of a chain; each goes on only while the last one filled something.
    while (left := _unknown(tx)) != unknown:
        unknown = left
        for column in columns:
            _fill(tx, layout, column)


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
    old = [f"e.{name} = m.old_{name}" for name in layout.entity.primary_key]
    table = same(_TABLE, "e", "m")
    reasons = (
        f"{same([*layout.key, '_row_order'], 'e', 'm')}",
        f"{table} AND e._op = 'd' AND e._row_position = m._row_position",
        f"{table} AND {' AND '.join(old)} AND e._row_order < m.old_row_order",
    )
    parts = " UNION ".join(f"SELECT {move} FROM {layout.moves} m JOIN {EVIDENCE} e ON {reason}" for reason in reasons)
    tx.execute(f"DROP TABLE IF EXISTS {_TOUCHED}")
    tx.execute(f"CREATE TEMP TABLE {_TOUCHED} AS {parts}")
    _pair(tx, layout)
    while _touch_chained(tx, layout):
        pass


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


def _staged(layout: Layout) -> str:
    """All staged changes of the target, whatever their batch."""
    names = listed([*layout.key, "_op", "_row_position", "_row_order"])
    parts = " UNION ALL ".join(f"SELECT {names} FROM {layout.schemas.staging}.{name}" for name in layout.target.from_)
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


def _collect_sources(tx: Transaction, layout: Layout) -> None:
    """What is known of the old keys, beside the create halves that are to be filled."""
    olds = f"SELECT DISTINCT {listed([*_TABLE, *(f'old_{n}' for n in layout.entity.primary_key)])} FROM {{0}} o"
    keys = olds.format(_touched_moves(layout)) + " WHERE o.old_row_order <> ''"
    on = " AND ".join([same(_TABLE, "x", "k"), *(f"x.{name} = k.old_{name}" for name in layout.entity.primary_key)])
    columns = listed([*layout.columns, *_TABLE, "_image_order", "_missing", "_kept", "_op"])
    staged = " UNION ALL ".join(
        staged_select(
            layout, f"{layout.schemas.staging}.{name}", "s._op <> 'd' AND NOT (s._op = 'c' AND s._missing <> '')"
        )
        for name in layout.target.from_
    )
    stored = listed([*layout.columns, *_TABLE, "_image_order", "_missing", "_kept"])
    tx.execute(f"DROP TABLE IF EXISTS {_SOURCES}")
    tx.execute(
        f"CREATE TEMP TABLE {_SOURCES} AS SELECT x.* FROM (SELECT {columns} FROM ({staged}) s "
        f"UNION ALL SELECT {stored}, 's' AS _op FROM {layout.rows} "
        f"UNION ALL SELECT {stored}, 's' AS _op FROM {layout.past}) x JOIN ({keys}) k ON {on}"
    )


def _unknown(tx: Transaction) -> int:
    ((size,),) = tx.rows(f"SELECT COALESCE(SUM(LENGTH(_missing)), 0) FROM {EVIDENCE} WHERE _op = 'c'")
    return int(size)


def _later_read(order: str, delete: str) -> tuple[str, str]:
    """Conditions: `order` is of a snapshot read that stands after the delete; positions do not tell.

    Snapshot reads rank below all changes, but one made after the delete may show another life of the key. Before
    PostgreSQL's first commit (and in flattened rows, which do not carry it) the initial snapshot stands after
    transactions that overlapped it: then the oldest read is as good as one before.
    """
    read, gone = (f"SUBSTRING({text}, {EPOCH_DIGITS + 2}, {POSITION_DIGITS})" for text in (order, delete))
    none = "0" * _COMMIT_DIGITS
    is_open = " AND ".join(f"SUBSTRING({text}, 1, {_COMMIT_DIGITS}) = '{none}'" for text in (read, gone))
    same_epoch = f"SUBSTRING({order}, 1, {EPOCH_DIGITS}) = SUBSTRING({delete}, 1, {EPOCH_DIGITS})"
    is_read = f"SUBSTRING({order}, {EPOCH_DIGITS + 1}, 1) = '{Phase.SNAPSHOT}'"
    return f"{is_read} AND {same_epoch} AND {read} > {gone}", is_open


def _fill(tx: Transaction, layout: Layout, column: str) -> None:
    """Give the create halves the value that the old key's newest setter below the delete has."""
    ids = [*layout.key, "_row_order"]
    # A stored row of a create half's order has what was found for it so far, which may be of an earlier life.
    ranked = (
        f"SELECT k.*, ROW_NUMBER() OVER (PARTITION BY {listed(ids, 'k')} ORDER BY k._later, "
        "CASE WHEN k._later = 0 THEN k._p END DESC, k._p, k._is_half DESC, k._k DESC) AS _place "
        f"FROM ({_setters_below(layout, column)}) k"
    )
    tx.execute(f"DROP TABLE IF EXISTS {_FOUND}")
    tx.execute(f"CREATE TEMP TABLE {_FOUND} AS SELECT * FROM ({ranked}) r WHERE _place = 1 AND _k = 1")
    rest = f"REPLACE({EVIDENCE}._missing, ',{column},', ',')"
    tx.execute(
        f"UPDATE {EVIDENCE} SET {column} = f._value, _from_batch = 2, "
        f"_missing = CASE WHEN {rest} = ',' THEN '' ELSE {rest} END "
        f"FROM {_FOUND} f WHERE {same(ids, EVIDENCE, 'f')} AND {EVIDENCE}._op = 'c' "
        f"AND POSITION(',{column},' IN {EVIDENCE}._missing) > 0"
    )


def _setters_below(layout: Layout, column: str) -> str:
    """Query: per touched move, what sets the column of its old key below the delete half."""
    on = " AND ".join([same(_TABLE, "x", "m"), *(f"x.{name} = m.old_{name}" for name in layout.entity.primary_key)])
    columns = listed([*_TABLE, *layout.entity.primary_key, column, "_image_order", "_missing", "_kept", "_op"])
    setters = (
        f"SELECT x.*, {setter_order(column)} AS _p, {is_known(column)} AS _k FROM "
        f"(SELECT {columns}, 0 AS _is_half FROM {_SOURCES} "
        f"UNION ALL SELECT {columns}, 1 AS _is_half FROM {EVIDENCE} WHERE _op = 'c') x"
    )
    is_later, is_open = _later_read("x._p", "m.old_row_order")
    return (
        f"SELECT {listed([*layout.key, '_row_order'], 'm')}, x.{column} AS _value, x._k, x._p, x._is_half, "
        f"CASE WHEN {is_later} THEN 1 ELSE 0 END AS _later "
        f"FROM {_touched_moves(layout)} m JOIN ({setters}) x ON {on} "
        f"WHERE x._p <> '' AND x._p < m.old_row_order AND NOT ({is_later} AND NOT ({is_open}))"
    )
