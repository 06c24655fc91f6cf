"""Tenants: where the rows of an account belong."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kds_cdc_dagster.core.catalogue.model import Model


class Tenant(Model):
    """Where an account's rows belong."""

    tenant: str
    company: str


class Tenants(Model):
    """`identity`: tenant = company = account id. `explicit`: an account not listed is quarantined."""

    mode: Literal["identity", "explicit"] = "identity"
    accounts: dict[str, Tenant] = Field(default_factory=dict)

    def resolve(self, account: str) -> Tenant | None:
        """The account's tenant, or None if it is unmapped."""
        if self.mode == "identity":
            return Tenant.model_construct(tenant=account, company=account)
        return self.accounts.get(account)
