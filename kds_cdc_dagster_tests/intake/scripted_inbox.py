"""An inbox that answers by a script, for tests of those who call it from threads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from kds_cdc_dagster.core.change import Delivery
from kds_cdc_dagster.ports import Acknowledgement, QueueDepth


class ScriptedInbox:
    """Gives what `script` holds, one entry a receive: a number of messages, or an error; then waits and gives none."""

    def __init__(self, *script: int | Exception, body: bytes = b"{}") -> None:
        self.script = list(script)
        self.body = body
        self.released: list[str] = []
        self.calls: Counter[str] = Counter()
        self.gate = threading.Event()
        """Polls that have nothing to give end when it is set, or after their wait."""
        self.is_silent_cap = False
        self._numbers = iter(range(1_000_000))
        self._lock = threading.Lock()

    def receive(self, *, max_messages: int, wait_seconds: float) -> list[Delivery]:
        with self._lock:
            self.calls["receive"] += 1
            entry = self.script.pop(0) if self.script else 0
        if isinstance(entry, Exception):
            raise entry
        if not entry and not self.is_silent_cap:
            self.gate.wait(wait_seconds)
            entry = self.script.pop(0) if self.script and self.gate.is_set() else 0
        return [self._delivery(next(self._numbers)) for _ in range(int(str(entry)))]

    def _delivery(self, n: int) -> Delivery:
        return Delivery(self.body, "g", str(n), f"m{n}", f"r{n}", 1, 0)

    def release(self, receipts: Sequence[str]) -> None:
        self.released += receipts

    def acknowledge(self, receipts: Sequence[str]) -> Acknowledgement:
        return Acknowledgement(frozenset(receipts))

    def extend(self, receipts: Sequence[str], seconds: float) -> None:
        self.calls["extend"] += 1

    def depth(self) -> QueueDepth:
        return QueueDepth(0, 0)

    def close(self) -> None:
        self.calls["close"] += 1
