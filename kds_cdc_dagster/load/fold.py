"""The fold: all changes of a key in a batch, and the key's stored row, become one row. SQL text and order.

Every change is a *setter* of columns at its row order. A create or a read sets all of them, an update those
it carries, a delete none. Per key the newest image wins, per column the newest setter; a setter that a
delete or a truncate lies above says nothing about the live row. This is a join of what is known, not a
sequence of steps: any order of batches, any repetition and any cut ends in the same row.

A stored row is the sum of setters seen so far: its image set each column at `_image_order`, except those
named in `_kept`, which it took from the order written there, and those in `_missing`, which are unknown.
An unknown column with an order in `_kept` was set there by a create half whose old row is not known yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from kds_cdc_dagster.load.layout import ORDER_DIGITS, Columns, Layout, listed, literal, same
from kds_cdc_dagster.ports import Transaction

EVIDENCE = "kds_evidence"
"""Temp table: changes of the batch (`_from_batch` 1) and stored rows of the same keys (0, `_op` 's')."""
CHOICE = "kds_choice"
"""Temp table: per key, which evidence rows win."""
WORK = "kds_work"
"""Temp table: the new rows, only where the batch changes something."""

_PLAIN = ("_source", "_relation", "_row_order", "_row_position", "_content_hash", "_extra")
_TAIL = ("_company", "_tenant", "_occurred_at", "_sent_at")
_ORDERS = ("_image_order", "_deleted_order", "_missing", "_kept")


def evidence_columns(layout: Layout) -> list[str]:
    """Columns of the evidence in its order, without `_n`."""
    return [*layout.columns, *_PLAIN, *_TAIL, *_ORDERS, "_op", "_from_batch", "_barrier"]


def collect_changes(tx: Transaction, layout: Layout, batch: str) -> None:
    """Make the evidence of the batch's changes, without truncates and what lies at or below one."""
    parts = " UNION ALL ".join(
        staged_select(layout, f"{layout.schemas.staging}.{name}", f"s._batch_id = {literal(batch)}")
        for name in layout.target.from_
    )
    tx.execute(f"DROP TABLE IF EXISTS {EVIDENCE}")
    tx.execute(f"CREATE TEMP TABLE {EVIDENCE} AS SELECT ROW_NUMBER() OVER () AS _n, u.* FROM ({parts}) u")


def staged_select(layout: Layout, table: str, where: str) -> str:
    """Evidence rows of a staging table (alias `s`), marked as the batch's own."""
    schema, target = (literal(value) for value in layout.scope)
    return (
        f"SELECT {listed([*layout.columns, *_PLAIN, *_TAIL], 's')}, "
        "CASE WHEN s._op = 'd' THEN '' ELSE s._row_order END AS _image_order, "
        "CASE WHEN s._op = 'd' THEN s._row_order ELSE '' END AS _deleted_order, "
        "CASE WHEN s._op = 'd' THEN '' ELSE s._missing END AS _missing, "
        "'' AS _kept, s._op, 1 AS _from_batch, COALESCE(t._row_order, '') AS _barrier "
        f"FROM {table} s LEFT JOIN {layout.schemas.op('truncates')} t "
        f"ON t._source = s._source AND t._relation = s._relation AND t.schema_name = {schema} AND t.target = {target} "
        f"WHERE s._op <> 't' AND s._row_order > COALESCE(t._row_order, '') AND {where}"
    )


def collect_stored(tx: Transaction, layout: Layout) -> None:
    """Add the stored rows of the evidence's keys."""
    key = listed(layout.key)
    columns = [*layout.columns, *_PLAIN, *_TAIL, *_ORDERS]
    tx.execute(
        f"INSERT INTO {EVIDENCE} (_n, {listed(columns)}, _op, _from_batch, _barrier) "
        f"SELECT -ROW_NUMBER() OVER (), {listed(columns, 'r')}, 's', 0, '' FROM {layout.rows} r "
        f"JOIN (SELECT DISTINCT {key} FROM {EVIDENCE}) k ON {same(layout.key, 'k', 'r')}"
    )


def partial_columns(tx: Transaction, layout: Layout, where: str = "1 = 1") -> list[str]:
    """Columns that some evidence row does not set by itself; the others follow the newest image."""
    marks = ", ".join(
        f"MAX(CASE WHEN POSITION(',{name},' IN _missing) > 0 OR POSITION(',{name}:' IN _kept) > 0 THEN 1 ELSE 0 END)"
        for name in layout.values
    )
    if not marks:
        return []
    (found,) = tx.rows(f"SELECT {marks} FROM {EVIDENCE} WHERE (_missing <> '' OR _kept <> '') AND {where}")
    return [name for name, mark in zip(layout.values, found, strict=True) if mark]


def setter_order(column: str) -> str:
    """Expression: the order at which an evidence row sets `column`; '' if it does not."""
    start = f"POSITION(',{column}:' IN _kept)"
    return (
        f"CASE WHEN {start} > 0 THEN SUBSTRING(_kept, {start} + {len(column) + 2}, {ORDER_DIGITS}) "
        f"WHEN _op <> 'c' AND POSITION(',{column},' IN _missing) > 0 THEN '' ELSE _image_order END"
    )


def is_known(column: str) -> str:
    """Expression: 1 if the evidence row has the value that it sets."""
    return f"CASE WHEN _image_order = '' OR POSITION(',{column},' IN _missing) > 0 THEN 0 ELSE 1 END"


def choose(tx: Transaction, layout: Layout, partial: Sequence[str]) -> None:
    """Pick, per key, the newest version, the newest image, and each partial column's newest setter."""
    key = listed(layout.key)
    ranks = [("latest", "_row_order DESC"), ("image", "_image_order DESC")]
    ranks += [(f"v{i}", f"_p{i} DESC, _k{i} DESC") for i, _ in enumerate(partial)]
    ranked = ", ".join(
        f"ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY {order}, _from_batch DESC, _n) AS _r_{name}"
        for name, order in ranks
    )
    setters = "".join(
        f", {setter_order(column)} AS _p{i}, {is_known(column)} AS _k{i}" for i, column in enumerate(partial)
    )
    picked = ", ".join(
        ["MAX(CASE WHEN _r_latest = 1 THEN _n END) AS _latest"]
        + ["MAX(CASE WHEN _r_image = 1 AND _image_order <> '' THEN _n END) AS _image"]
        + [
            f"MAX(CASE WHEN _r_v{i} = 1 THEN {name}{i} END) AS {name}{i}"
            for i, _ in enumerate(partial)
            for name in ("_n_v", "_p", "_k")
        ]
    ).replace("THEN _n_v", "THEN _n ")
    picked = _n_columns(picked, len(partial))
    newest = "MAX(CASE WHEN _from_batch = {} THEN _deleted_order ELSE '' END)"
    tx.execute(f"DROP TABLE IF EXISTS {CHOICE}")
    tx.execute(
        f"CREATE TEMP TABLE {CHOICE} AS SELECT {key}, {picked}, MAX(_deleted_order) AS _deleted_order, "
        f"GREATEST(MAX(_deleted_order), MAX(_barrier)) AS _cut, "
        f"CASE WHEN {newest.format(1)} > {newest.format(0)} THEN 1 ELSE 0 END AS _is_new_delete "
        f"FROM (SELECT e.*, {ranked} FROM (SELECT {EVIDENCE}.*{setters} FROM {EVIDENCE}) e) ranked GROUP BY {key}"
    )
