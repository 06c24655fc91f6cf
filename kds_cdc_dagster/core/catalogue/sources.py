"""Sources: who publishes, in which contract, with which modes, and what to do when it is not as it should be."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from kds_cdc_dagster.core.catalogue.model import Model

Connector = Literal["postgresql", "mysql", "mariadb", "sqlserver", "oracle", "db2"]
DriftPolicy = Literal["evolve", "ignore", "quarantine"]


class StreamRule(Model):
    """How the ordering scope is found: the queue's group, or fields of the row image."""

    from_: Literal["group", "payload"] = Field("group", alias="from")
    key: tuple[str, ...] = ("account", "store")
    """With `payload`: which columns (or the words account, store) make the stream key."""


class Policies(Model):
    """What to do, per source, when something is not as it should be."""

    gap: Literal["accept", "quarantine", "hold"] = "accept"
    out_of_order: Literal["accept", "quarantine", "hold"] = "quarantine"
    new_epoch: Literal["hold", "auto"] = "hold"
    truncate: Literal["apply", "quarantine"] = "apply"
    new_column: DriftPolicy = "evolve"
    dropped_column: DriftPolicy = "ignore"
    widened: DriftPolicy = "evolve"
    incompatible: DriftPolicy = "quarantine"


class Source(Model):
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
