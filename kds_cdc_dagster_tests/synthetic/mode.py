"""How a connector is set up: what decides the form of its events and the catalogue that explains them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import yaml

from kds_cdc_dagster.catalogue import packaged_text

Connector = Literal["postgresql", "mysql", "mariadb"]
Form = Literal["bare", "wrapped", "flattened", "flattened_rich"]


@dataclass(frozen=True)
class Mode:
    """One set-up. Defaults are Debezium's own for PostgreSQL."""

    connector: Connector = "postgresql"
    form: Form = "bare"
    decimals: Literal["precise", "string", "double"] = "precise"
    times: str = "adaptive"
    binaries: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    intervals: Literal["numeric", "string"] = "numeric"
    unsigned: Literal["long", "precise"] = "long"
    is_identity_full: bool = False
    """REPLICA IDENTITY FULL; always so on MySQL and MariaDB."""
    has_gtid: bool = False
    has_transactions: bool = False
    """provide.transaction.metadata."""
    grouping: Literal["store", "static"] = "store"
    """One queue group per store, or the stock sink's single group."""

    @property
    def is_binlog(self) -> bool:
        """MySQL or MariaDB."""
        return self.connector != "postgresql"

    @property
    def has_old_rows(self) -> bool:
        """Whether updates and deletes carry the whole old row."""
        return self.is_binlog or self.is_identity_full

    @property
    def is_flattened(self) -> bool:
        """Whether ExtractNewRecordState rewrote the events."""
        return self.form.startswith("flattened")

    @property
    def has_sequence(self) -> bool:
        """Whether PostgreSQL's `sequence` is in the events."""
        return self.form != "flattened"

    @property
    def source_id(self) -> str:
        """Id of the source in the catalogue."""
        return "kdsprod-mysql" if self.is_binlog else "kdsprod-pg"

    def __str__(self) -> str:
        """Connector and whatever is not the default: names a test case."""
        default = Mode()
        said = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "connector"}
        odd = [name if value is True else str(value) for name, value in said.items() if value != getattr(default, name)]
        return "-".join([self.connector, *odd])


def catalogue_text(mode: Mode, **changes: Any) -> str:
    """The packaged catalogue as a user would edit it for `mode`; `changes` are further fields of its source."""
    document = yaml.safe_load(packaged_text())
    source = next(source for source in document["sources"] if source["id"] == mode.source_id)
    source |= {
        "connector": mode.connector,
        "decimal_handling_mode": mode.decimals,
        "time_precision_mode": mode.times,
        "binary_handling_mode": mode.binaries,
        "bigint_unsigned_handling_mode": mode.unsigned,
    }
    if mode.grouping == "static":
        source["stream"] = {"from": "payload", "key": ["account_id", "store_guid"]}
    source |= changes
    for entity in document["entities"]:
        for column in entity["columns"]:
            declared = column.get("source_type")
            if isinstance(declared, dict) and mode.connector not in declared:
                declared[mode.connector] = declared["mysql"]
    return yaml.safe_dump({("on" if key is True else key): value for key, value in document.items()}, sort_keys=False)
