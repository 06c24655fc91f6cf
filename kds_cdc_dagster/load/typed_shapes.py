"""Shapes: what the column names of an image say about every row that has them: drift, and which values it knows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from kds_cdc_dagster.core.catalogue import Policies

SHAPES_MAX = 256
"""Sets of column names remembered per part; a table has one or two at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The same for every row of that shape. Compared by identity: they are counted over all rows."""

    pick: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    """The values of the entity's columns, in order; None where the image has none."""
    missing: tuple[str, ...]
    """Columns that such a row does not know."""
    extra: tuple[str, ...] = ()
    """Columns that the catalogue does not list."""
    refusal: str = ""
    dropped: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()


class Shapes:
    """Shapes of one entity's rows from one source. `names`: the entity's columns, in order."""

    def __init__(self, names: tuple[str, ...], key: Collection[str], policy: Policies, widened: set[str]) -> None:
        self._names = names
        self._policy = policy
        self._widened = widened
        self._known: dict[tuple[str, ...], Shape] = {}
        key = frozenset(key)
        self.of_delete = Shape(self._picker(key), self.in_order(frozenset(names) - key))
        """Of a delete's image only the key is real."""
        self.of_truncate = Shape(self._picker(frozenset()), names)

    def of(self, present: tuple[str, ...]) -> Shape:
        """The shape of an image with these columns."""
        found = self._known.get(present)
        if found is None:
            if len(self._known) >= SHAPES_MAX:
                self._known.clear()
            found = self._known[present] = self._new(frozenset(present))
        return found

    def in_order(self, names: Collection[str]) -> tuple[str, ...]:
        """The entity's columns among `names`, in the entity's order."""
        return tuple(name for name in self._names if name in names)

    def _new(self, present: frozenset[str]) -> Shape:
        policy, columns = self._policy, frozenset(self._names)
        dropped, new = self.in_order(columns - present), tuple(sorted(present - columns))
        widened = self.in_order(self._widened & present)
        refusals = {
            f"column {', '.join(dropped)}: dropped by the source": dropped and policy.dropped_column == "quarantine",
            f"column {', '.join(widened)}: wider in the source": widened and policy.widened == "quarantine",
            f"column {', '.join(new)}: not in the catalogue": new and policy.new_column == "quarantine",
        }
        refusal = "; ".join(text for text, is_refused in refusals.items() if is_refused)
        unknown = () if policy.dropped_column == "evolve" else dropped
        return Shape(self._picker(present), unknown, new, refusal, dropped, widened)

    def _picker(self, present: Collection[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
        if len(self._names) > 1 and all(name in present for name in self._names):
            return itemgetter(*self._names)
        names = tuple(name if name in present else None for name in self._names)
        return lambda row: tuple(None if name is None else row.get(name) for name in names)
