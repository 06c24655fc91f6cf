"""Hand-made messages of the mock contract, where a test needs exact changes."""

from __future__ import annotations

import json
import uuid
from collections import Counter

from kds_cdc_dagster.core.contracts.mock import VERSION
from kds_cdc_dagster.ports import Message

STORE = "00000000-0000-4000-8000-{:012d}"


class Kitchens:
    """Stations (and tickets) of numbered accounts with one store each; positions follow each other per stream."""

    def __init__(self) -> None:
        self._positions: Counter[int] = Counter()

    @staticmethod
    def stream(account: int) -> str:
        """The stream key of an account's store."""
        return f"acct-{account:03d}:{STORE.format(account)}"

    def station(self, account: int, station: int, name: str, *, position: int = 0) -> Message:
        """A station is created or renamed."""
        row = {
            "store_guid": STORE.format(account),
            "station_id": station,
            "account_id": f"acct-{account:03d}",
            "name": name,
            "kind": "grill",
            "config": {"screens": 2},
            "is_deleted": False,
            "updated_at": "2026-11-01T10:00:00Z",
        }
        key = {"store_guid": row["store_guid"], "station_id": station}
        return self._message(account, "station", key, row, position)

    def bump(self, account: int, bump: int, *, position: int = 0) -> Message:
        """A bump event is created."""
        row = {
            "event_id": STORE.format(900_000 + bump),
            "store_guid": STORE.format(account),
            "account_id": f"acct-{account:03d}",
            "is_deleted": False,
        }
        return self._message(account, "bump_event", {"event_id": row["event_id"]}, row, position)

    def _message(self, account: int, entity: str, key: dict[str, object], row: dict[str, object], at: int) -> Message:
        self._positions[account] += not at
        body = {
            "contract_version": VERSION,
            "entity": entity,
            "operation": "u",
            "primary_key": key,
            "source_account_id": f"acct-{account:03d}",
            "store_guid": STORE.format(account),
            "is_deleted": False,
            "occurred_at": "2026-11-01T10:00:00Z",
            "sequence": {"stream_key": self.stream(account), "stream_position": at or self._positions[account]},
            "before": None,
            "after": row,
        }
        return Message(json.dumps(body), self.stream(account), uuid.uuid4().hex)
