"""Which FIFO group a body belongs to, as a publisher must choose it: account:store of the row image.

The rules are the intake's own (`core.contracts`), so that what is published here is never a group mismatch there.
A publisher that cannot know the store (key-only deletes, truncates) sends to `<source>:<table>`.
"""

from __future__ import annotations

from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.core.change import Delivery, Op
from kds_cdc_dagster.core.contracts.body import BodyReader, MockMessage, Refused, RowMessage
from kds_cdc_dagster.core.contracts.sources import Route, Sources
from kds_cdc_dagster.core.fifo import is_fifo_id

CONTROL = "control"
"""Group of what has neither a row nor a usable destination."""
ACCOUNT, STORE = "account_id", "store_guid"
"""Columns that are looked for where the catalogue does not know the table."""


class Groups:
    """Chooses groups under one catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._reader = BodyReader(str)
        self._sources = Sources(catalogue)

    def of(self, body: str, destination: str = "") -> str:
        """Group of `body`; `destination` is the topic it was captured from. Never raises."""
        try:
            choices = self._choices(body.encode(), destination)
        except Exception:  # noqa: BLE001 any garbage may be published: the intake must see it
            choices = []
        return next(filter(is_fifo_id, (*choices, destination)), CONTROL)

    def _choices(self, body: bytes, destination: str) -> list[str]:
        message = self._reader.read(body)
        if isinstance(message, MockMessage):
            return [f"{message.fields['source_account_id']}:{message.fields['store_guid']}"]
        if not isinstance(message, RowMessage):
            return []
        route = self._route(message)
        account, store = self._scope(message, route)
        named = [f"{account}:{store}"] if account and store else []
        return [*named, _table_group(message, route, destination)]

    def _route(self, message: RowMessage) -> Route | None:
        try:
            return self._sources.route(message.source, is_partial=not message.has_sequence)
        except Refused:
            return None

    def _scope(self, message: RowMessage, route: Route | None) -> tuple[object, object]:
        """Account and store, each None where the image does not really carry it."""
        is_delete = message.op == Op.DELETE
        image = message.before if is_delete else message.after
        if message.op == Op.TRUNCATE or not isinstance(image, dict):
            return None, None
        if route is None:
            return image.get(ACCOUNT), image.get(STORE)
        table = route.table
        nowhere = Delivery(b"", "", "", "", "", 1, 0)
        has_fillers = is_delete and table.source.connector == "postgresql"
        columns = table.columns(message.schema)
        scope = table.scope(table.image(image, "image"), columns, nowhere, has_fillers=has_fillers)
        return scope.account, scope.store


def _table_group(message: RowMessage, route: Route | None, destination: str) -> str:
    """`<source>:<table>`; a flattened row that names neither takes the source from the catalogue or the topic."""
    topic = destination.split(".")
    source = message.source.name or (route.table.source.name if route else topic[0])
    return f"{source}:{message.source.table or topic[-1]}"
