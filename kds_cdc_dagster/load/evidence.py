"""Evidence: everything known of the keys that a batch touches, as one temp table of setters.

Every change is a *setter* of columns at its row order. A create or a read sets all of them, an update those
it carries, a delete none. Per key the newest image wins, per column the newest setter; a setter that a
delete or a truncate lies above says nothing about the live row. This is a join of what is known, not a
sequence of steps: any order of batches, any repetition and any cut ends in the same row.

A stored row is the sum of setters seen so far: its image set each column at `_image_order`, except those
named in `_kept`, which it took from the order written there, and those in `_missing`, which are unknown.
An unknown column with an order in `_kept` was set there by a create half whose old row is not known yet.
"""

from __future__ import annotations

from kds_cdc_dagster.load.layout import ORDER_DIGITS, Layout, listed, literal, same
from kds_cdc_dagster.ports import Transaction

EVIDENCE = "kds_evidence"
"""Temp table: changes of the batch (`_from_batch` 1; 2: a create half that `load.moves` has filled), and
stored rows of the same keys (0, `_op` 's')."""
FIRST_ADDED, FIRST_STORED = 1 << 41, 1 << 42
"""Evidence rows are numbered; those added to the batch's own begin above any batch."""

_PLAIN = ("_source", "_relation", "_row_order", "_row_position", "_content_hash", "_extra")
_TAIL = ("_company", "_tenant", "_occurred_at", "_sent_at")
_ORDERS = ("_image_order", "_deleted_order", "_missing", "_kept")


def evidence_columns(layout: Layout) -> list[str]:
    """Columns of the evidence in its order, without `_n`."""
    return [*layout.columns, *_PLAIN, *_TAIL, *_ORDERS, "_op", "_from_batch", "_barrier"]


def collect_changes(tx: Transaction, layout: Layout, batch: str, where: str = "1 = 1") -> None:
    """Make the evidence of the batch's changes (those of `where`), without truncates and what lies at or below one."""
    parts = " UNION ALL ".join(
        staged_select(layout, f"{layout.schemas.staging}.{name}", f"s._batch_id = {literal(batch)} AND {where}")
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
        # Redshift makes a bare '' one byte wide, and stored rows are added to this table.
        "CAST('' AS VARCHAR(65535)) AS _kept, s._op, 1 AS _from_batch, COALESCE(t._row_order, '') AS _barrier "
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
        f"SELECT ROW_NUMBER() OVER () + {FIRST_STORED}, {listed(columns, 'r')}, 's', 0, '' FROM {layout.rows} r "
        f"JOIN (SELECT DISTINCT {key} FROM {EVIDENCE}) k ON {same(layout.key, 'k', 'r')}"
    )


def partial_columns(tx: Transaction, layout: Layout, where: str = "1 = 1") -> list[str]:
    """Columns that some evidence row does not set by itself; the others follow the newest image."""
    marks = ", ".join(
        f"MAX(CASE WHEN POSITION(',{name},' IN _missing) > 0 OR POSITION(',{name}:' IN _kept) > 0 THEN 1 ELSE 0 END)"
        for name in layout.values
    )
    which = f"FROM {EVIDENCE} WHERE (_missing <> '' OR _kept <> '') AND {where}"
    # Asked first whether there is any: the wide question costs ten times as much, and is rarely needed.
    if not marks or not tx.rows(f"SELECT 1 {which} LIMIT 1"):
        return []
    (found,) = tx.rows(f"SELECT {marks} {which}")
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
