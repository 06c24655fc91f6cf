"""A warehouse that breaks at the n-th step, before it or after it, to show that a repetition converges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kds_cdc_dagster.ports import Dialect, ExportFile, LoadArtifact, Transaction, Warehouse

T = TypeVar("T")


class Broken(Exception):
    """The order to break."""


class BreakingWarehouse:
    """Counts statements and commits; raises at the `at`-th of them (a commit: after it took effect)."""

    def __init__(self, inner: Warehouse) -> None:
        self.inner = inner
        self.at = 0
        self.steps = 0

    @property
    def dialect(self) -> Dialect:
        """See the port."""
        return self.inner.dialect

    def run(self, body: Callable[[Transaction], T], *, lock: str = "") -> T:
        """See the port."""
        answer = self.inner.run(lambda tx: body(_Breaking(tx, self)), lock=lock)
        self.step()
        return answer

    def alter(self, statement: str) -> None:
        """See the port."""
        self.inner.alter(statement)

    def step(self) -> None:
        """One more step."""
        self.steps += 1
        if self.steps == self.at:
            raise Broken

    def close(self) -> None:
        """See the port."""
        self.inner.close()


class _Breaking:
    def __init__(self, tx: Transaction, warehouse: BreakingWarehouse) -> None:
        self._tx = tx
        self._warehouse = warehouse

    @property
    def dialect(self) -> Dialect:
        return self._tx.dialect

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> None:
        self._warehouse.step()
        self._tx.execute(sql, parameters)

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        self._warehouse.step()
        return self._tx.rows(sql, parameters)

    def copy(self, table: str, artifact: LoadArtifact) -> None:
        self._warehouse.step()
        self._tx.copy(table, artifact)

    def land(self, name: str, columns: Sequence[tuple[str, str]], artifact: LoadArtifact) -> None:
        self._warehouse.step()
        self._tx.land(name, columns, artifact)

    def unland(self, name: str) -> None:
        self._warehouse.step()
        self._tx.unland(name)

    def unload(self, select: str, prefix: str, *, partition: str) -> list[ExportFile]:
        found = self._tx.unload(select, prefix, partition=partition)
        self._warehouse.step()
        return found
