"""Values of key changes: what is known of the old key below the delete half goes into the create half."""

from __future__ import annotations

from kds_cdc_dagster.core.change import Phase
from kds_cdc_dagster.core.position import EPOCH_DIGITS, POSITION_DIGITS
from kds_cdc_dagster.load.evidence import EVIDENCE, is_known, partial_columns, setter_order, staged_select
from kds_cdc_dagster.load.layout import KEY_META, Layout, listed, same
from kds_cdc_dagster.ports import Transaction

_SOURCES = "kds_move_sources"
_FOUND = "kds_move_values"
_TABLE = [name for name, _ in KEY_META]
_COMMIT_DIGITS = 17
"""Leading digits of a PostgreSQL position: the last completed commit, 0 before the first (`core.position`)."""


def fill(tx: Transaction, layout: Layout, moves: str) -> None:
    """Fill the create halves in the evidence of these `moves` (a subquery of the moves table)."""
    _collect_sources(tx, layout, moves)
    columns = partial_columns(tx, layout, "_op = 'c'")
    unknown = -1
    # One turn resolves one link of a chain; each goes on only while the last one filled something.
    while (left := _unknown(tx)) != unknown:
        unknown = left
        for column in columns:
            _fill(tx, layout, moves, column)


def _collect_sources(tx: Transaction, layout: Layout, moves: str) -> None:
    """What is known of the old keys, beside the create halves that are to be filled."""
    olds = f"SELECT DISTINCT {listed([*_TABLE, *(f'old_{n}' for n in layout.entity.primary_key)])} FROM {{0}} o"
    keys = olds.format(moves) + " WHERE o.old_row_order <> ''"
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


def _fill(tx: Transaction, layout: Layout, moves: str, column: str) -> None:
    """Give the create halves the value that the old key's newest setter below the delete has."""
    ids = [*layout.key, "_row_order"]
    # A stored row of a create half's order has what was found for it so far, which may be of an earlier life.
    ranked = (
        f"SELECT k.*, ROW_NUMBER() OVER (PARTITION BY {listed(ids, 'k')} ORDER BY k._later, "
        "CASE WHEN k._later = 0 THEN k._p END DESC, k._p, k._is_half DESC, k._k DESC) AS _place "
        f"FROM ({_setters_below(layout, moves, column)}) k"
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


def _setters_below(layout: Layout, moves: str, column: str) -> str:
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
        f"FROM {moves} m JOIN ({setters}) x ON {on} "
        f"WHERE x._p <> '' AND x._p < m.old_row_order AND NOT ({is_later} AND NOT ({is_open}))"
    )
