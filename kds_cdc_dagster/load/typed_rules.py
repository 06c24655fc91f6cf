"""Rules: how the columns of one entity are read from one source, compiled once and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from kds_cdc_dagster.core.catalogue import Entity, Source
from kds_cdc_dagster.core.contracts.tables import FOLDED, SCHEMAS_MAX, folded
from kds_cdc_dagster.core.values import logical_types
from kds_cdc_dagster.load import drift
from kds_cdc_dagster.load.typed_columns import ColumnReader
from kds_cdc_dagster.load.typed_images import WholeImages
from kds_cdc_dagster.load.typed_result import typed_schema
from kds_cdc_dagster.load.typed_shapes import Shapes

BytesMax = Callable[[str], int | None]
"""Declared type -> longest value in bytes (`ports.Dialect.bytes_max`)."""


class Rules:
    """Of one entity, one source and one wrapper schema (or none)."""

    def __init__(self, entity: Entity, source: Source, schema: bytes | None, bytes_max: BytesMax) -> None:
        logical = {} if schema is None else folded(logical_types(schema), source)
        self.source = source
        self.schema = typed_schema(entity)
        self.key = frozenset(entity.primary_key)
        self.readers = {
            c.name: ColumnReader(c, source, logical.get(c.name), bytes_max=bytes_max(c.type)) for c in entity.columns
        }
        self.names = tuple(self.readers)
        self.widened = {c.name for c in entity.columns if drift.is_widened(c, source, logical.get(c.name))}
        self.extra_bytes_max = bytes_max("text")
        self.shapes = Shapes(self.names, entity.primary_key, source.on, self.widened)
        self.whole = self.shapes.of(self.names)
        floats = {name for name, reader in self.readers.items() if reader.is_float}
        self._images = None if source.connector in FOLDED else WholeImages(self.names, self.key, floats)

    def whole_images(self, ops: Sequence[str], bodies: Sequence[bytes]) -> Sequence[tuple[Any, ...] | None]:
        """See `WholeImages.read`. Where columns have the database's own names no image can be taken as it stands."""
        return [None] * len(bodies) if self._images is None else self._images.read(ops, bodies)


def rules(entity: Entity, source: Source, schema: bytes | None, bytes_max: BytesMax) -> Rules:
    """The rules; those of the last entities and schemas are kept: they cost more than a hundred rows."""
    return _kept(_Same(entity), _Same(source), schema, bytes_max)


class _Same:
    """A model as a key: models do not hash, and stay the same for as long as a process uses them."""

    def __init__(self, model: Entity | Source) -> None:
        self.model = model

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.model is other.model

    def __hash__(self) -> int:
        return id(self.model)


@lru_cache(maxsize=SCHEMAS_MAX)
def _kept(entity: _Same, source: _Same, schema: bytes | None, bytes_max: BytesMax) -> Rules:
    return Rules(entity.model, source.model, schema, bytes_max)  # type: ignore[arg-type]
