"""A pipeline on a folder of its own, driven step by step as the sensor and its runs drive it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from kds_cdc_dagster.core.batch import CloseReason
from kds_cdc_dagster.demo.oracle import differences
from kds_cdc_dagster.intake.counts import imbalance
from kds_cdc_dagster.journal import manifest, outbox
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster.ports import Message
from kds_cdc_dagster.settings import Settings
from kds_cdc_dagster.wiring import Pipeline

WORKER = "intake_1"


class Site:
    """One pipeline; `counts` sums what its ticks reported."""

    def __init__(self, parts: Pipeline) -> None:
        self.parts = parts
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    def send(self, messages: Iterable[Message]) -> None:
        """Publish."""
        self.parts.outbound.send(list(messages))

    def drain(self) -> None:
        """Tick until the queue is empty, and seal what is open."""
        while not self.parts.inbox.depth().is_empty or self.parts.ticker(WORKER).intake.batch is not None:
            report = self.parts.ticker(WORKER).tick(budget_seconds=5.0, wait_seconds=0.0, is_draining=True)
            self.counts.update(report.counts)
            if report.failure:
                self.failures.append(report.failure)
                return

    def drain_with(self, *workers: str) -> None:
        """Workers receive side by side, then each makes its round, until the queue is empty."""
        tickers = [self.parts.ticker(name) for name in workers]
        while not self.parts.inbox.depth().is_empty:
            for ticker in tickers:
                ticker.intake.ready()
            for ticker, deliveries in [(ticker, ticker._collector.collect(0.0)) for ticker in tickers]:
                if deliveries:
                    self.counts.update(ticker.intake.round(deliveries))
                    ticker.intake.seal_if_due(is_backlogged=False)
            tickers.reverse()  # a lone group goes to whoever asks first
        for ticker in tickers:
            ticker.intake.seal(CloseReason.DRAIN)

    def batches(self) -> list[str]:
        """Sealed batches that are not loaded yet."""
        return list(outbox.waiting(self.parts.store))

    def manifest(self, batch: str) -> Manifest:
        """Manifest of a batch."""
        return manifest.read(self.parts.store, batch)

    def load(self, batches: Sequence[str] | None = None) -> list[str]:
        """Load batches as their runs would; those that end complete leave the outbox. Returns what was loaded."""
        names = self.batches() if batches is None else list(batches)
        for name in names:
            self._load(self.manifest(name))
            assert outbox.is_done(self.parts.store, name), f"{name} is not done after its load"
            outbox.leave(self.parts.store, name)
        return names

    def _load(self, sealed: Manifest) -> None:
        loader, catalogue = self.parts.loader, self.parts.catalogue
        for entity in sealed.entities:
            loader.raw(entity, sealed)
            loader.stage(entity, sealed)
            for target in catalogue.targets_of[entity]:
                loader.merge(target.name, sealed)
        if sealed.rejected + sealed.parked:
            loader.quarantine(sealed)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query in the warehouse."""
        self.parts.loader.ensure()
        return self.parts.warehouse.run(lambda tx: tx.rows(sql))

    def view(self, target: str) -> list[dict[str, Any]]:
        """What consumers see of a target."""
        names = [column.name for column in self.parts.catalogue.entity_by_name[target].columns]
        found = self.rows(f"SELECT {', '.join(names)} FROM {self.parts.schemas.curated}.{target}")
        return [dict(zip(names, row, strict=True)) for row in found]

    def differences(self, state: dict[str, list[dict[str, Any]]]) -> list[str]:
        """How the curated views differ from the source's own rows."""
        found = []
        for table, rows in state.items():
            entity, seen = self.parts.catalogue.entity_by_name[table], self.view(table)
            keys = [tuple(str(row[name]) for name in entity.primary_key) for row in seen]
            found += [f"{table} {key}: stands twice" for key, number in Counter(keys).items() if number > 1]
            found += differences(entity, rows, seen)
        return found

    def quarantine(self) -> Counter[str]:
        """Reason -> rows in quarantine."""
        return Counter(dict(self.rows("SELECT reason, COUNT(*) FROM ops.quarantine GROUP BY reason")))

    def assert_sound(self, state: dict[str, list[dict[str, Any]]]) -> None:
        """Curated equals the source, nothing was refused or given up, counts close."""
        assert self.failures == []
        assert dict(self.quarantine()) == {}
        assert imbalance(self.counts) == {}
        assert self.differences(state) == []


@contextmanager
def site(folder: Path, catalogue: str = "", **settings: Any) -> Iterator[Site]:
    """An embedded pipeline under `folder`; `catalogue` is the text of its file, the packaged one if empty."""
    if catalogue:
        (folder / "catalogue.yaml").write_text(catalogue, "utf-8")
        settings["catalogue"] = folder / "catalogue.yaml"
    parts = Pipeline(Settings(home=folder / "home", linger_seconds=0.0, **settings))
    try:
        yield Site(parts)
    finally:
        parts.close()


def interleaved(messages: Sequence[Message], dice: Random) -> list[Message]:
    """Messages in another order that keeps each group's own: groups of a queue say nothing of each other."""
    groups: dict[str, list[Message]] = {}
    for message in messages:
        groups.setdefault(message.group_id, []).append(message)
    heads = [iter(group) for group in groups.values()]
    turns = [head for head, group in zip(heads, groups.values(), strict=True) for _ in group]
    dice.shuffle(turns)
    return [next(head) for head in turns]
