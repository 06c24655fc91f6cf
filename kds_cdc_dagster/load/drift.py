"""Schema drift: what a source's table has that the catalogue does not say, and what becomes of it.

====================  ==================================  ============================  ======================
Kind                  evolve                              ignore                        quarantine
====================  ==================================  ============================  ======================
new_column            its values go to `_extra`           left out                      the row is refused
dropped_column        null from now on                    the last known value stays    the row is refused
widened               what fits is loaded, a value that   the last known value stays    refused where a value
                      does not fit refuses its row        where it does not fit         does not fit or the
                                                                                        schema shows it wider
incompatible          the last known value stays, the     the last known value stays    the row is refused
                      new one goes to `_extra`
====================  ==================================  ============================  ======================

A renamed column is a dropped and a new one. Whatever the policy says, drift is counted (`Typed.drift`), kept in
`ops.staged` and shown by asset metadata and `kds-cdc doctor`; raw artifacts keep every value, so that a replay
under a corrected catalogue fills a column that it gained: from the messages, not from `_extra`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import msgspec

from kds_cdc_dagster.core.catalogue import Catalogue, Column, Source
from kds_cdc_dagster.core.values import LogicalType, Oversize, Undecodable, declared_type
from kds_cdc_dagster.load.layout import Schemas
from kds_cdc_dagster.load.present import is_fit, is_wider, present_tables, type_of
from kds_cdc_dagster.ports import Transaction, Warehouse

BATCHES_SHOWN_MAX = 1000
"""Newest staged batches that `drift_seen` sums up."""
_BITS = {
    **dict.fromkeys(("int2", "smallint", "tinyint"), 16),
    **dict.fromkeys(("int4", "integer", "int", "mediumint", "serial", "year"), 32),
    **dict.fromkeys(("int8", "bigint"), 64),
    "tinyint unsigned": 16,
    **dict.fromkeys(("smallint unsigned", "mediumint unsigned"), 32),
    "int unsigned": 64,
}
_WIRE_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def kind_of(error: Undecodable) -> str:
    """Which drift a value that its column cannot hold shows."""
    return "widened" if isinstance(error, Oversize) else "incompatible"


def is_refused(source: Source, kind: str) -> bool:
    """Whether a value that does not fit refuses its row; otherwise the column keeps its last known value."""
    return getattr(source.on, kind) == "quarantine" or (kind == "widened" and source.on.widened == "evolve")


def is_widened(column: Column, source: Source, logical: LogicalType | None) -> bool:
    """Whether the wrapper's schema says that the source's column holds more than the catalogue declares."""
    if logical is None or source.contract != "debezium":
        return False
    declared = declared_type(column.declared(source))
    if logical.scale is not None and declared.scale is not None:
        return logical.scale > declared.scale
    is_plain = not logical.name and declared.name in _BITS
    return is_plain and _WIRE_BITS.get(logical.type, 0) > _BITS[declared.name]


def narrowed(warehouse: Warehouse, catalogue: Catalogue, schemas: Schemas) -> Catalogue:
    """The catalogue with the warehouse's own types, where those are narrower and could not be widened.

    Rows are typed by it, so that a value that fits is loaded and another is quarantined, not the batch failed.
    """
    names = [f"{schemas.curated}.{target.name}_rows" for target in catalogue.targets]
    holders = {entity.name: [f"{schemas.staging}.{entity.name}"] for entity in catalogue.entities}
    for target, name in zip(catalogue.targets, names, strict=True):
        for entity in target.from_:
            holders[entity].append(name)
    tables = warehouse.run(lambda tx: present_tables(tx, schemas))
    dialect = warehouse.dialect

    def fitted(column: Column, entity: str) -> Column:
        found, wanted = [column.type], type_of(dialect.column_type(column.type))
        for table in holders[entity]:
            present = tables.get(table, {}).get(column.name)
            if present is not None and not is_fit(present, wanted) and is_wider(wanted, present):
                found.append(str(present))
        return column if len(found) == 1 else column.model_copy(update={"type": found[-1]})

    entities = [_with(e, columns=tuple(fitted(c, e.name) for c in e.columns)) for e in catalogue.entities]
    return catalogue if entities == list(catalogue.entities) else _with(catalogue, entities=tuple(entities))


def _with(model: Any, **changed: Any) -> Any:
    """A copy without what the original has cached."""
    return type(model).model_construct(**{name: getattr(model, name) for name in type(model).model_fields} | changed)


class Seen(NamedTuple):
    """Drift of one column of one entity, over the newest staged batches."""

    entity: str
    kind: str
    column: str
    rows: int
    batches: int


def drift_seen(warehouse: Warehouse, schemas: Schemas) -> list[Seen]:
    """What staging has met, most rows first."""

    def body(tx: Transaction) -> list[tuple[Any, ...]]:
        query = (
            f"SELECT entity, drift FROM {schemas.op('staged')} WHERE drift IS NOT NULL "
            f"ORDER BY staged_at DESC LIMIT {BATCHES_SHOWN_MAX}"
        )
        return tx.rows(query)

    rows: Counter[tuple[str, str, str]] = Counter()
    batches: Counter[tuple[str, str, str]] = Counter()
    for entity, text in warehouse.run(body):
        for name, count in msgspec.json.decode(text, type=dict[str, int]).items():
            kind, _, column = name.partition(" ")
            rows[entity, kind, column] += count
            batches[entity, kind, column] += 1
    return [Seen(*what, rows=count, batches=batches[what]) for what, count in rows.most_common()]
