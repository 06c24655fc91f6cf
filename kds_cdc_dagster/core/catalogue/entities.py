"""Entities: kinds of rows, their columns and keys, and the tables that they are read from."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Self

from pydantic import Field, field_validator, model_validator

from kds_cdc_dagster.core.catalogue.model import Model, Name
from kds_cdc_dagster.core.catalogue.sources import Source


class EntitySource(Model):
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


class Column(Model):
    """One column: the warehouse's type and how each source declares it."""

    name: Name
    type: str
    """smallint, integer, bigint, double, decimal(p,s), boolean, varchar(n), text, date, time, timestamp,
    timestamptz, json, uuid, binary."""
    description: str = ""
    """Shown in the UI."""
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


class Entity(Model):
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
