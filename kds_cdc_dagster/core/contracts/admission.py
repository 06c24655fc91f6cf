"""Admission: the checks a change must pass once it is known what it is: its group and its tenant."""

from __future__ import annotations

from kds_cdc_dagster.core.catalogue import Catalogue, Tenant
from kds_cdc_dagster.core.change import Change, Reason, Rejection
from kds_cdc_dagster.core.contracts.tables import WORDS_MAX, BoundTable


class Admission:
    """Gives changes their tenant, or rejects them."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._tenants: dict[str, Tenant | None] = {}

    def admit(self, change: Change, table: BoundTable, group_id: str) -> Change | Rejection:
        """`change` with its tenant, or its rejection: another group than the row's stream, or no tenant."""
        if table.is_grouped and not _is_group(change, table, group_id):
            return _rejected(change, Reason.GROUP_MISMATCH, "the message group is not account:store of the row")
        if change.account is None:
            if table.entity.account is None or change.op in {"d", "t"}:
                return change  # the tenant comes from the stored row at the merge
            return _rejected(change, Reason.UNMAPPED_TENANT, f"column {table.entity.account} is empty")
        tenant = self._tenant(change.account)
        if tenant is None:
            return _rejected(change, Reason.UNMAPPED_TENANT, "the account is in no tenant of the catalogue")
        change.tenant, change.company = tenant.tenant, tenant.company
        return change

    def _tenant(self, account: str) -> Tenant | None:
        if account in self._tenants:
            return self._tenants[account]
        if len(self._tenants) >= WORDS_MAX:
            self._tenants.clear()
        found = self._tenants[account] = self._catalogue.tenants.resolve(account)
        return found


def _is_group(change: Change, table: BoundTable, group_id: str) -> bool:
    """The check applies only where the row carries both fields; a uuid's letter case does not matter."""
    if change.account is None or change.store is None or group_id == f"{change.account}:{change.store}":
        return True
    if not table.has_uuid_stores:
        return False
    account, _, store = group_id.rpartition(":")
    return account == change.account and store.lower() == change.store


def _rejected(change: Change, reason: Reason, detail: str) -> Rejection:
    return Rejection(reason, detail, change.source, change.entity, change.stream, change.identity, change.content_hash)
