"""The catalogue: which sources, tables and targets exist and how their columns are encoded.

Pure model; `kds_cdc_dagster.catalogue` reads the YAML file. Everything a message does not say itself
(primary keys, column types, modes of the connector) is said here, so a wrong entry is refused at start.
"""

from kds_cdc_dagster.core.catalogue.entities import TYPES, Column, Entity, EntitySource
from kds_cdc_dagster.core.catalogue.model import Name
from kds_cdc_dagster.core.catalogue.sources import Connector, DriftPolicy, Policies, Source, StreamRule
from kds_cdc_dagster.core.catalogue.targets import ExportRule, Target
from kds_cdc_dagster.core.catalogue.tenants import Tenant, Tenants
from kds_cdc_dagster.core.catalogue.whole import Binding, Catalogue

__all__ = [
    "TYPES",
    "Binding",
    "Catalogue",
    "Column",
    "Connector",
    "DriftPolicy",
    "Entity",
    "EntitySource",
    "ExportRule",
    "Name",
    "Policies",
    "Source",
    "StreamRule",
    "Target",
    "Tenant",
    "Tenants",
]
