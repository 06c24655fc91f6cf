"""Targets: curated tables and their exports."""

from __future__ import annotations

from pydantic import Field

from kds_cdc_dagster.core.catalogue.model import Model, Name


class ExportRule(Model):
    """How often a target's export is rewritten at most; None: the profile's default."""

    every_seconds: float | None = None


class Target(Model):
    """A curated table."""

    name: Name
    from_: tuple[Name, ...] = Field(alias="from")
    export: ExportRule | None = ExportRule()
    description: str = ""
    owners: tuple[str, ...] = ()
