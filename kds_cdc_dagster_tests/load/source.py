"""A source table that changes and tells: the changes it emits, and its own rows as the oracle.

It behaves as PostgreSQL with Debezium does: an unchanged large column is a placeholder, a delete carries only
the key and names no tenant, a key change is a delete and a create at one position, sent to different groups.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from kds_cdc_dagster.catalogue import parse_catalogue
from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.core.position import fixed, row_order

CATALOGUE: Catalogue = parse_catalogue("""
version: 1
sources: [{name: kdsprod, contract: debezium, connector: postgresql}]
entities:
  - name: dish
    sources: [{source: kdsprod, schema: kds, table: dish}]
    primary_key: [dish_id]
    account: account_id
    columns:
      - {name: dish_id, type: bigint}
      - {name: account_id, type: varchar(160)}
      - {name: title, type: varchar(320)}
      - {name: recipe, type: text}
      - {name: photo, type: text}
targets: [{name: dish, from: [dish]}]
""")
DISH = CATALOGUE.entity_by_name["dish"]
LARGE = ("recipe", "photo")
_SENT_AT = datetime(2026, 11, 1, 10, tzinfo=UTC)
_VALUES = ("account_id", "title", *LARGE)

SCHEMA = pa.schema(
    [
        ("dish_id", pa.int64()),
        *((name, pa.string()) for name in _VALUES),
        *(
            (name, pa.string())
            for name in ("_source", "_relation", "_op", "_row_order", "_row_position", "_identity", "_content_hash")
        ),
        *((name, pa.string()) for name in ("_company", "_tenant", "_missing", "_extra")),
        ("_occurred_at", pa.timestamp("us", "UTC")),
        ("_sent_at", pa.timestamp("us", "UTC")),
        ("_record", pa.int32()),
    ]
)
"""As `load.typed` makes it."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Emitted:
    """One change: the operation, its key, its known values, and where it stands."""

    op: str
    dish_id: int | None
    values: Row
    position: str
    order: str
    missing: tuple[str, ...] = ()

    def row(self) -> Row:
        """As a typed row."""
        tenant = self.values.get("account_id")
        return {
            "dish_id": self.dish_id,
            **{name: self.values.get(name) for name in _VALUES},
            "_source": "kdsprod",
            "_relation": "kds.dish",
            "_op": self.op,
            "_row_order": self.order,
            "_row_position": self.position,
            "_identity": f"{hash((self.op, self.dish_id, self.position)) & (1 << 64) - 1:032x}",
            "_content_hash": f"{hash(tuple(sorted(self.values.items()))) & (1 << 64) - 1:016x}",
            "_company": tenant,
            "_tenant": tenant,
            "_missing": f",{','.join(self.missing)}," if self.missing else "",
            "_extra": None,
            "_occurred_at": _SENT_AT,
            "_sent_at": _SENT_AT,
        }


def typed_table(changes: list[Emitted]) -> pa.Table:
    """Changes as the typed table of one batch."""
    rows = [{**change.row(), "_record": index} for index, change in enumerate(changes)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@dataclass
class SourceTable:
    """The table; every method is one statement."""

    dice: random.Random = field(default_factory=lambda: random.Random(7))
    rows: dict[int, Row] = field(default_factory=dict)
    emitted: list[Emitted] = field(default_factory=list)
    _position: int = 100
    _epoch: int = 0
    _phase: int = 1

    def insert(self, dish_id: int, title: str, **values: str) -> None:
        """A new row."""
        row = {"account_id": "acct-1", "recipe": f"recipe of {title}", "photo": f"photo of {title}", **values}
        self.rows[dish_id] = {**row, "title": title}
        self._emit("c", dish_id, self.rows[dish_id])

    def update(self, dish_id: int, **values: str) -> None:
        """Change the named columns; large ones that are not named come as placeholders."""
        self.rows[dish_id] = {**self.rows[dish_id], **values}
        self._emit("u", dish_id, self.rows[dish_id], unchanged=[name for name in LARGE if name not in values])

    def delete(self, dish_id: int) -> None:
        """Only the key is told."""
        del self.rows[dish_id]
        self._emit("d", dish_id, {})

    def rekey(self, old: int, new: int, **values: str) -> None:
        """Move a row to another key: two changes of one position."""
        self.rows[new] = {**self.rows.pop(old), **values}
        self._emit("d", old, {})
        self._position -= 1
        self._emit("c", new, self.rows[new], unchanged=[name for name in LARGE if name not in values])

    def truncate(self) -> None:
        """Remove all rows."""
        self.rows.clear()
        self._emit("t", None, {})

    def read(self, dish_id: int) -> None:
        """An incremental snapshot read: it ranks below a streaming change of its position."""
        self._position -= 1
        self._emit("r", dish_id, self.rows[dish_id], rank=0)

    def snapshot(self) -> None:
        """A new epoch: all rows are read again, then streaming goes on from another position."""
        self._epoch += 1
        self._position = self.dice.randint(100, 5000)
        self._phase = 0
        for dish_id in sorted(self.rows):
            self._emit("r", dish_id, self.rows[dish_id])
        self._phase = 1

    def _emit(
        self, op: str, dish_id: int | None, row: Row, *, unchanged: list[str] | None = None, rank: int = 1
    ) -> None:
        self._position += 1
        position = fixed((0, 17), (self._position, 16))
        # Changes travel in many groups, whose sequence numbers say nothing of each other.
        order = row_order(self._epoch, self._phase, position, rank, str(self.dice.randrange(10**6)))
        missing = tuple(_VALUES) if op in "dt" else tuple(unchanged or ())
        values = {name: value for name, value in row.items() if name not in missing}
        self.emitted.append(Emitted(op, dish_id, values, position, order, missing))


def play(
    dice: random.Random, steps: int, *, with_snapshots: bool = True, kind: type[SourceTable] = SourceTable
) -> SourceTable:
    """A random history over few keys, so that they are deleted, reused and swapped often.

    Each history has its own mix of statements (swarm testing): some only update, some only move keys.
    """
    table = kind(dice)
    keys = dice.choice((2, 3, 6))
    mix = {kind: dice.choice((0, 1, 6)) for kind in ("update", "delete", "rekey", "read", "snapshot")}
    mix |= {"insert": 3, "truncate": dice.choice((0, 0, 1))}
    if not with_snapshots:
        mix |= {"read": 0, "snapshot": 0}
    for step in range(steps):
        _step(table, dice, step, [key for key in range(keys) if key not in table.rows], mix)
    return table


def _step(table: SourceTable, dice: random.Random, step: int, free: list[int], mix: dict[str, int]) -> None:
    live = sorted(table.rows)
    changed = {name: f"{name} {step}" for name in dice.sample(["title", *LARGE], dice.choice([0, 0, 1, 2]))}
    possible = ([] if not free else ["insert"]) + (
        [] if not live else ["update", "delete", "read", "snapshot", "truncate"]
    )
    kinds = [*possible, *(["rekey"] if free and live else [])]
    if not sum(mix[kind] for kind in kinds):
        return
    match dice.choices(kinds, [mix[kind] for kind in kinds])[0]:
        case "insert":
            table.insert(dice.choice(free), f"dish {step}", account_id=f"acct-{dice.randrange(3)}")
        case "update":
            table.update(dice.choice(live), **changed)
        case "rekey":
            table.rekey(dice.choice(live), dice.choice(free), **changed)
        case "delete":
            table.delete(dice.choice(live))
        case "read":
            table.read(dice.choice(live))
        case "snapshot":
            table.snapshot()
        case "truncate":
            table.truncate()


def cut(dice: random.Random, changes: list[Emitted], longest: int = 8) -> list[list[Emitted]]:
    """Cut changes into batches at random."""
    batches: list[list[Emitted]] = []
    at = 0
    while at < len(changes):
        size = dice.randint(1, longest)
        batches.append(changes[at : at + size])
        at += size
    return batches


def reworded(change: Emitted, **values: str) -> Emitted:
    """The same change as a repaired decoder would read it."""
    return replace(change, values={**change.values, **values})
