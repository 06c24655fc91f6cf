"""The catalogue: which sources, tables and targets exist and how their columns are encoded.

Pure model; `kds_cdc_dagster.catalogue` reads the YAML file. Everything a message does not say itself
(primary keys, column types, modes of the connector) is said here, so a wrong entry is refused at start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
"""Lower snake case, at most 63 characters: the same identifier on every warehouse."""

Connector = Literal["postgresql", "mysql", "mariadb", "sqlserver", "oracle", "db2"]
DriftPolicy = Literal["evolve", "ignore", "quarantine"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tenant(_Model):
    """Where an account's rows belong."""

    tenant: str
    company: str


class Tenants(_Model):
    """`identity`: tenant = company = account id. `explicit`: an account not listed is quarantined."""

    mode: Literal["identity", "explicit"] = "identity"
    accounts: dict[str, Tenant] = {}

    def resolve(self, account: str) -> Tenant | None:
        """The account's tenant, or None if it is unmapped."""
        if self.mode == "identity":
            return Tenant.model_construct(tenant=account, company=account)
        return self.accounts.get(account)


class StreamRule(_Model):
    """How the ordering scope is found: the queue's group, or fields of the row image."""

    from_: Literal["group", "payload"] = Field("group", alias="from")
    key: tuple[str, ...] = ("account", "store")
    """With `payload`: which columns (or the words account, store) make the stream key."""


class Policies(_Model):
    """What to do, per source, when something is not as it should be."""

    gap: Literal["accept", "quarantine", "hold"] = "accept"
    out_of_order: Literal["accept", "quarantine", "hold"] = "quarantine"
    new_epoch: Literal["hold", "auto"] = "hold"
    truncate: Literal["apply", "quarantine"] = "apply"
    new_column: DriftPolicy = "evolve"
    dropped_column: DriftPolicy = "ignore"
    widened: DriftPolicy = "evolve"
    incompatible: DriftPolicy = "quarantine"


class Source(_Model):
    """One publisher: a Debezium connector with its modes, or the mock."""

    name: str
    """Debezium's topic prefix (`source.name`)."""
    id: str = ""
    """Unique name in this catalogue; `name` unless two sources share it."""
    contract: Literal["debezium", "kds-cdc-mock/v1"] = "debezium"
    connector: Connector | None = None
    database: str | None = None
    """Database (and `schema`) of flattened rows, whose messages may not name them. Tells sources of one connector and
    `name` apart: positions of two SQL Server databases do not compare, so each is a source of its own."""
    flattened_schema: str | None = None
    stream: StreamRule = StreamRule.model_construct(from_="group", key=("account", "store"))
    positions: Literal["sparse", "dense"] | None = None
    """`dense`: each stream position is the successor of the last, so gaps can be seen. Mock: dense."""
    decimal_handling_mode: Literal["precise", "string", "double"] = "precise"
    time_precision_mode: Literal[
        "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"
    ] = "adaptive"
    binary_handling_mode: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    bigint_unsigned_handling_mode: Literal["long", "precise"] = "long"
    unavailable_value_placeholder: str = "__debezium_unavailable_value"
    infinity: Literal["null", "quarantine"] = "null"
    """What PostgreSQL's infinite timestamps and dates become."""
    signal_tables: tuple[str, ...] = ("dbz_signal", "debezium_signal")
    """Tables whose rows steer the connector: counted and acknowledged, never loaded."""
    on: Policies = Policies()

    @model_validator(mode="before")
    @classmethod
    def _yaml_on(cls, values: object) -> object:
        """YAML 1.1 reads the bare key `on` as true."""
        if isinstance(values, dict) and True in values:
            values = {("on" if key is True else key): value for key, value in values.items()}
        return values

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.id:
            object.__setattr__(self, "id", self.name)
        if self.contract == "debezium" and self.connector is None:
            raise ValueError(f"source {self.id}: a debezium source needs `connector`")
        return self

    @property
    def is_dense(self) -> bool:
        """Whether a skipped stream position is a gap."""
        return (self.positions or ("dense" if self.contract != "debezium" else "sparse")) == "dense"


class EntitySource(_Model):
    """Where an entity's rows come from."""

    source: str
    schema_: str | None = Field(None, alias="schema")
    """Schema (MySQL and MariaDB: the database); not used by the mock."""
    database: str | None = None
    table: str | None = None
    """Table name; the entity's name if absent."""


TYPES = (
    *("smallint", "integer", "bigint", "double", "decimal(p,s)", "boolean", "varchar(n)", "text"),
    *("date", "time", "timestamp", "timestamptz", "json", "uuid", "binary"),
)
"""Types of the warehouse, as the catalogue writes them."""
_TYPE = re.compile(
    r"smallint|integer|bigint|double|decimal\(\d+, ?\d+\)|boolean|varchar\(\d+\)|text"
    r"|date|time|timestamp|timestamptz|json|uuid|binary"
)


class Column(_Model):
    """One column: the warehouse's type and how each source declares it."""

    name: Name
    type: str
    """smallint, integer, bigint, double, decimal(p,s), boolean, varchar(n), text, date, time, timestamp,
    timestamptz, json, uuid, binary."""
    source_type: str | dict[str, str] | None = None
    """The source's declared type, or one per source id or connector. None: as `type`."""

    @field_validator("type")
    @classmethod
    def _known_type(cls, declared: str) -> str:
        if not _TYPE.fullmatch(declared):
            raise ValueError(f"unknown column type {declared}; one of {', '.join(TYPES)}")
        return declared

    def declared(self, source: Source) -> str:
        """Source type of this column in `source`."""
        declared = self.source_type
        if isinstance(declared, dict):
            declared = declared.get(source.id) or declared.get(source.connector or "mock")
        return declared or self.type


class Entity(_Model):
    """A kind of row, read from one table of one or more sources."""

    name: Name
    sources: tuple[EntitySource, ...]
    primary_key: tuple[Name, ...]
    account: Name | None = None
    store: Name | None = None
    deleted: Name | None = None
    """Column of a soft delete; such rows stay visible, as in the source."""
    columns: tuple[Column, ...]
    description: str = ""
    owners: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _named_columns_exist(self) -> Self:
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise ValueError(f"entity {self.name}: a column is named twice")
        if not self.primary_key:
            raise ValueError(f"entity {self.name}: `primary_key` is empty; tables without a key cannot be merged")
        wanted = (*self.primary_key, *filter(None, (self.account, self.store, self.deleted)))
        for name in wanted:
            if name not in names:
                raise ValueError(f"entity {self.name}: column {name} is named but not listed")
        return self

    @cached_property
    def column_by_name(self) -> dict[str, Column]:
        """Columns by name."""
        return {column.name: column for column in self.columns}


class ExportRule(_Model):
    """How often a target's export is rewritten at most; None: the profile's default."""

    every_seconds: float | None = None


class Target(_Model):
    """A curated table."""

    name: Name
    from_: tuple[Name, ...] = Field(alias="from")
    export: ExportRule | None = ExportRule()
    description: str = ""
    owners: tuple[str, ...] = ()


_OF_ITS_OWN = "another database is a source of its own: the same `name`, another `id`, its `database`"


class Binding(_Model):
    """An entity as one source delivers it."""

    model_config = ConfigDict(arbitrary_types_allowed=True, frozen=True)

    source: Source
    entity: Entity
    database: str | None
    schema_: str | None
    table: str


class Catalogue(_Model):
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
