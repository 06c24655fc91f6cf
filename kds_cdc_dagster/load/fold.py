"""The fold: all evidence of a key becomes one row, in two statements.

Per key the newest image wins, per column the newest setter (`load.evidence`). A column is *partial* in a
fold if some evidence row does not set it; all others simply follow the newest image, so the usual batch
costs one ranking and one join.
"""

from __future__ import annotations

from collections.abc import Sequence

from kds_cdc_dagster.load.evidence import EVIDENCE, is_known, setter_order
from kds_cdc_dagster.load.layout import ORDER_DIGITS, Layout, listed, literal
from kds_cdc_dagster.ports import Transaction

CHOICE = "kds_choice"
"""Temp table: per key, the numbers of the evidence rows that win."""
WORK = "kds_work"
"""Temp table: the new rows, only where the batch changes something (`_is_reborn`: a create won)."""

_NO_ORDER = "0" * ORDER_DIGITS
"""Stands for no order where texts are compared as a whole: below every order."""
_NUMBER_DIGITS = 15

FOLDED = (
    "_row_order",
    "_image_order",
    "_deleted_order",
    "_row_position",
    "_content_hash",
    "_is_deleted",
    "_missing",
    "_kept",
    "_extra",
    "_company",
    "_tenant",
    "_occurred_at",
    "_sent_at",
)
"""What the fold says of a row beside its key and columns."""


def fold(tx: Transaction, layout: Layout, partial: Sequence[str], *, is_replay: bool) -> None:
    """Make `CHOICE` and `WORK` from the evidence; `partial`: its partial columns.

    At equal orders the stored row stays, except in a replay, whose typed values may be better ones.
    """
    for table, select in ((CHOICE, _choice(layout, partial, is_replay)), (WORK, _work(layout, partial))):
        tx.execute(f"DROP TABLE IF EXISTS {table}")
        tx.execute(f"CREATE TEMP TABLE {table} AS {select}")


def _choice(layout: Layout, partial: Sequence[str], is_replay: bool) -> str:  # noqa: FBT001  (passed on)
    """Per key: newest version, newest image, newest delete, and each partial column's newest setter.

    One hash aggregation and no sort: the greatest of (order, known, preference, number) as one text.
    """
    key = listed(layout.key)
    setters = [f"{setter_order(name)} AS _p{i}, {is_known(name)} AS _k{i}" for i, name in enumerate(partial)]
    preference = "_from_batch" if is_replay else "CASE _from_batch WHEN 0 THEN 1 WHEN 1 THEN 0 ELSE _from_batch END"
    number = f"LPAD(CAST(_n AS VARCHAR(20)), {_NUMBER_DIGITS}, '0')"
    setters.append(f"CAST({preference} AS VARCHAR(1)) || {number} AS _place")
    greatest = [
        f"MAX({_padded('_row_order')} || '1' || _place) AS _latest",
        f"MAX(CASE WHEN _image_order <> '' THEN {_padded('_image_order')} || '1' || _place END) AS _image",
        *(f"MAX({_padded(f'_p{i}')} || CAST(_k{i} AS VARCHAR(1)) || _place) AS _v{i}" for i, _ in enumerate(partial)),
    ]
    newest_delete = "MAX(CASE WHEN _from_batch = {} THEN _deleted_order ELSE '' END)"
    found = (
        f"SELECT {key}, {', '.join(greatest)}, MAX(_deleted_order) AS _deleted_order, "
        "GREATEST(MAX(_deleted_order), MAX(_barrier)) AS _cut, "
        f"CASE WHEN {newest_delete.format(1)} > {newest_delete.format(0)} THEN 1 ELSE 0 END AS _is_new_delete "
        f"FROM (SELECT {', '.join(['e.*', *setters])} FROM {EVIDENCE} e) s GROUP BY {key}"
    )
    picks = [f"{_number('_latest')} AS _latest", f"{_number('_image')} AS _image"]
    for i, _ in enumerate(partial):
        picks.append(f"{_number(f'_v{i}')} AS _n{i}")
        order = f"SUBSTRING(_v{i}, 1, {ORDER_DIGITS})"
        picks.append(f"CASE WHEN {order} = {literal(_NO_ORDER)} THEN '' ELSE {order} END AS _p{i}")
        picks.append(f"CASE WHEN SUBSTRING(_v{i}, {ORDER_DIGITS + 1}, 1) = '1' THEN 1 ELSE 0 END AS _k{i}")
    return f"SELECT {key}, {', '.join(picks)}, _deleted_order, _cut, _is_new_delete FROM ({found}) f"


def _padded(order: str) -> str:
    return f"CASE WHEN {order} = '' THEN {literal(_NO_ORDER)} ELSE {order} END"


def _number(place: str) -> str:
    """The evidence row's number, from the end of the greatest text."""
    return f"CAST(SUBSTRING({place}, {ORDER_DIGITS + 3}, {_NUMBER_DIGITS}) AS BIGINT)"


def _work(layout: Layout, partial: Sequence[str]) -> str:
    """The new rows of keys for which the batch wins anything."""
    number = {name: i for i, name in enumerate(partial)}
    values = [
        f"CASE WHEN {_is_value_known(number[name])} THEN v{number[name]}.{name} END AS {name}"
        if name in number
        else f"i.{name} AS {name}"
        for name in layout.values
    ]
    joins = "".join(f" LEFT JOIN {EVIDENCE} v{i} ON v{i}._n = c._n{i}" for i in number.values())
    wins = ["l._from_batch > 0", "i._from_batch > 0", "c._is_new_delete = 1"]
    wins += [f"(v{i}._from_batch > 0 AND c._p{i} <> '')" for i in number.values()]
    return (
        f"SELECT {listed(layout.key, 'c')}, {', '.join([*values, ''])}"
        "l._row_order, COALESCE(i._image_order, '') AS _image_order, c._deleted_order, "
        "l._row_position, l._content_hash, COALESCE(i._image_order, '') < c._deleted_order AS _is_deleted, "
        f"{_texts(_missing(partial))} AS _missing, {_texts(_kept(partial))} AS _kept, i._extra, "
        "COALESCE(i._company, l._company) AS _company, COALESCE(i._tenant, l._tenant) AS _tenant, "
        "l._occurred_at, l._sent_at, "
        "CASE WHEN i._from_batch > 0 AND i._op = 'c' THEN 1 ELSE 0 END AS _is_reborn "
        f"FROM {CHOICE} c JOIN {EVIDENCE} l ON l._n = c._latest LEFT JOIN {EVIDENCE} i ON i._n = c._image{joins} "
        f"WHERE {' OR '.join(wins)}"
    )


def _is_value_known(i: int) -> str:
    """A live row takes nothing from before its newest delete or truncate; a tombstone keeps what it had."""
    return f"c._k{i} = 1 AND NOT (i._image_order > c._cut AND c._p{i} < c._cut)"


def _missing(partial: Sequence[str]) -> list[str]:
    return [f"CASE WHEN {_is_value_known(i)} THEN '' ELSE '{name},' END" for i, name in enumerate(partial)]


def _kept(partial: Sequence[str]) -> list[str]:
    """Values of another order than the image's; unknown values that a create half has set."""
    return [
        f"CASE WHEN (c._k{i} = 0 AND c._p{i} <> '') OR ({_is_value_known(i)} AND c._p{i} <> i._image_order) "
        f"THEN '{name}:' || c._p{i} || ',' ELSE '' END"
        for i, name in enumerate(partial)
    ]


def _texts(entries: list[str]) -> str:
    """`,a,b,`, or '' without entries; a row without any image lists nothing: all of it is unknown."""
    if not entries:
        return "''"
    joined = " || ".join(entries)
    return f"CASE WHEN i._image_order IS NULL OR {joined} = '' THEN '' ELSE ',' || {joined} END"
