"""The whole catalogue: its parts, and that they fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Literal, Self

from pydantic import ConfigDict, model_validator

from kds_cdc_dagster.core.catalogue.entities import Entity, EntitySource
from kds_cdc_dagster.core.catalogue.model import Model
from kds_cdc_dagster.core.catalogue.sources import Source
from kds_cdc_dagster.core.catalogue.targets import Target
from kds_cdc_dagster.core.catalogue.tenants import Tenants

_OF_ITS_OWN = "another database is a source of its own: the same `name`, another `id`, its `database`"


class Binding(Model):
    """An entity as one source delivers it."""

    model_config = ConfigDict(arbitrary_types_allowed=True, frozen=True)

    source: Source
    entity: Entity
    database: str | None
    schema_: str | None
    table: str


class Catalogue(Model):
    """The whole file."""

    version: Literal[1] = 1
    tenants: Tenants = Tenants()
    sources: tuple[Source, ...]
    entities: tuple[Entity, ...]
    targets: tuple[Target, ...]

    @model_validator(mode="after")
    def _references_resolve(self) -> Self:
        _refuse_twins("source", [source.id for source in self.sources])
        _refuse_twins("entity", [entity.name for entity in self.entities])
        _refuse_twins("target", [target.name for target in self.targets])
        for entity in self.entities:
            for reference in entity.sources:
                self._referenced(entity, reference)
        for target in self.targets:
            self._check_target(target)
        self._refuse_mixed_sources()
        self._refuse_mixed_tables()
        return self

    def _referenced(self, entity: Entity, reference: EntitySource) -> Source:
        found = [s for s in self.sources if s.id == reference.source]
        found = found or [s for s in self.sources if s.name == reference.source]
        if len(found) != 1:
            raise ValueError(
                f"entity {entity.name}: source {reference.source} names {len(found)} sources; use a source's `id`"
            )
        return found[0]

    def _refuse_mixed_sources(self) -> None:
        """Sources of one connector and name must differ by database, or no message could be told to be of one."""
        by_name: dict[tuple[str, str], list[str | None]] = {}
        for source in self.sources:
            if source.connector:
                by_name.setdefault((source.connector, source.name), []).append(source.database)
        for (connector, name), databases in by_name.items():
            if len(databases) > 1 and (None in databases or len(set(databases)) < len(databases)):
                raise ValueError(
                    f"{len(databases)} {connector} sources are named {name}; each needs its own `database`"
                )

    def _refuse_mixed_tables(self) -> None:
        """A source has a table once, and one database where positions are counted per database.

        Source: Debezium's SQL Server connector, LSNs are of one database.
        """
        seen: dict[tuple[str, str, str], Binding] = {}
        databases: dict[str, str] = {}
        for binding in self._all_bindings():
            source, place = binding.source, (binding.schema_ or binding.database or "", binding.table)
            other = seen.setdefault((source.id, *place), binding)
            database = binding.database or source.database
            if other is not binding:
                raise ValueError(
                    f"entities {other.entity.name} and {binding.entity.name} both read {'.'.join(place)} of source "
                    f"{source.id}; {_OF_ITS_OWN}"
                )
            if source.connector == "sqlserver" and database and databases.setdefault(source.id, database) != database:
                raise ValueError(f"source {source.id}: entities read several SQL Server databases; {_OF_ITS_OWN}")

    def _check_target(self, target: Target) -> None:
        for name in target.from_:
            if name not in self.entity_by_name:
                raise ValueError(f"target {target.name}: no entity {name}")
        shapes = {
            tuple((c.name, c.type) for c in self.entity_by_name[name].columns) + self.entity_by_name[name].primary_key
            for name in target.from_
        }
        if len(shapes) != 1:
            raise ValueError(f"target {target.name}: its entities differ in columns, types or key")

    @cached_property
    def entity_by_name(self) -> dict[str, Entity]:
        """Entities by name."""
        return {entity.name: entity for entity in self.entities}

    @cached_property
    def source_by_id(self) -> dict[str, Source]:
        """Sources by id."""
        return {source.id: source for source in self.sources}

    @cached_property
    def target_by_name(self) -> dict[str, Target]:
        """Targets by name."""
        return {target.name: target for target in self.targets}

    @cached_property
    def targets_of(self) -> dict[str, tuple[Target, ...]]:
        """Entity name -> targets it feeds."""
        return {e.name: tuple(t for t in self.targets if e.name in t.from_) for e in self.entities}

    def target_entity(self, target: Target) -> Entity:
        """The entity whose columns and key a target has (all of its entities agree)."""
        return self.entity_by_name[target.from_[0]]

    @cached_property
    def bindings(self) -> Mapping[str, Mapping[tuple[str, str], Binding]]:
        """Source id -> (schema or database or "", table or entity) -> binding."""
        found: dict[str, dict[tuple[str, str], Binding]] = {source.id: {} for source in self.sources}
        for binding in self._all_bindings():
            found[binding.source.id][binding.schema_ or binding.database or "", binding.table] = binding
        return found

    def _all_bindings(self) -> Iterator[Binding]:
        for entity in self.entities:
            for reference in entity.sources:
                yield Binding.model_construct(
                    source=self._referenced(entity, reference),
                    entity=entity,
                    database=reference.database,
                    schema_=reference.schema_,
                    table=reference.table or entity.name,
                )


def _refuse_twins(kind: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{kind} {name} stands twice in the catalogue")
