"""What publishers send, and what must become of it: scripts of streams, and the parser of their bodies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

import msgspec

from kds_cdc_dagster.core.catalogue import Catalogue, Policies, Source
from kds_cdc_dagster.core.change import Change, Control, Delivery, Parsed, Phase, Rank, Reason, Rejection
from kds_cdc_dagster.core.position import counter
from kds_cdc_dagster_tests.simulation.baton import Crash

CONFLICT = 1000
"""Added to a value, it makes another content of the same change. Values are numbers of sends, far below."""
DENSE, SPARSE = "dense", "sparse"
"""The two sources: one that counts without gaps, one whose positions skip and repeat (several rows of a commit)."""


READS = ("read", "snapshot")


class Wire(msgspec.Struct, array_like=True, frozen=True):
    """A message body of the simulation."""

    number: int
    """Of the send: no two sends share it."""
    kind: str
    """change | read (incremental) | snapshot | control | poison | killer"""
    source: str
    stream: str
    key: int = 0
    op: str = "u"
    value: int = 0
    position: int = 0
    row: int = 0
    """Tells rows of one position apart."""
    lineage: str = ""

    @property
    def identity(self) -> str:
        coordinates = (self.source, self.stream, self.key, self.op, self.position, self.row, self.lineage)
        of_read = (self.value,) if self.kind in READS else ()
        return blake2b(repr((self.kind, *coordinates, *of_read)).encode(), digest_size=16).hexdigest()

    @property
    def content_hash(self) -> str:
        return blake2b(repr((self.op, self.key, self.value)).encode(), digest_size=8).hexdigest()


_decode = lru_cache(4096)(msgspec.json.Decoder(Wire).decode)


class WireParser:
    """Stands where `core.contracts.Parser` stands. A killer takes its worker down, up to the receive limit."""

    def __init__(self, receives_max: int) -> None:
        self._receives_max = receives_max

    def parse(self, delivery: Delivery) -> Parsed:
        if delivery.receive_count > self._receives_max:
            return Rejection(Reason.TOO_MANY_RECEIVES, "", stream=delivery.group_id)
        wire = _decode(delivery.body)
        if wire.kind == "killer":
            raise Crash("a body killed its worker")
        if wire.kind == "poison":
            return Rejection(Reason.UNREADABLE, "", stream=delivery.group_id)
        return Control("heartbeat") if wire.kind == "control" else change_of(wire)


def change_of(wire: Wire) -> Change:
    """The change in a message of kind change, read or snapshot."""
    is_read = wire.kind in READS
    return Change(
        source=wire.source,
        entity=f"entity-{wire.key % 2}",
        database="db",
        schema="kds",
        table="t",
        op="r" if is_read else wire.op,
        primary_key=f"[{wire.key}]",
        stream=wire.stream,
        account="a",
        store="s",
        tenant=f"tenant-{wire.stream}",
        company="c",
        identity=wire.identity,
        content_hash=wire.content_hash,
        stream_position=None if is_read else counter(wire.position),
        row_position=counter(wire.position),
        phase=Phase.SNAPSHOT if wire.kind == "snapshot" else Phase.STREAMING,
        rank=Rank.INCREMENTAL if is_read else Rank.STREAMING,
        lineage=wire.lineage,
        is_snapshot_start=wire.kind == "snapshot",
        occurred_at_ms=None,
    )


@lru_cache(64)
def catalogue(gap: str, out_of_order: str, new_epoch: str) -> Catalogue:
    """Two sources under these policies."""
    on = Policies.model_validate({"gap": gap, "out_of_order": out_of_order, "new_epoch": new_epoch})
    dense = Source(name=DENSE, contract="kds-cdc-mock/v1", on=on)
    sparse = Source(name=SPARSE, contract="debezium", connector="sqlserver", on=on)
    return Catalogue(sources=(dense, sparse), entities=(), targets=())


@dataclass(slots=True)
class Sent:
    """One send, and what is known about it from outside."""

    wire: Wire
    message_id: str
    is_regular: bool
    """The source wrote it here in its own order: it must be accepted, unless something rightly stops it."""


@dataclass(slots=True)
class Script:
    """One stream's sends, drawn one by one. `traits` are the faults of its publisher."""

    rng: random.Random
    source: str
    stream: str
    traits: frozenset[str]
    left: int
    position: int = 0
    row: int = 0
    sent: list[Wire] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    is_restarted: bool = False

    def draw(self, number: int) -> tuple[Wire, bool]:
        """The next message and whether it is regular."""
        self.left -= 1
        trait = self.rng.choice(["", "", "", *sorted(self.traits)])
        odd = getattr(self, f"_{trait}")(number) if trait else None
        if odd is not None:
            return odd, odd.kind == "read"
        return self._regular(number), True

    def _regular(self, number: int) -> Wire:
        if self.source == SPARSE and self.position and self.rng.random() < 0.3:
            self.row += 1
        else:
            self.position += 1 if self.source == DENSE else self.rng.randint(1, 9)
            self.row = 0
        return self._write(number, self.position, self.row)

    def _write(self, number: int, position: int, row: int) -> Wire:
        key, op = self.rng.randint(1, 3), self.rng.choice("cuud")
        wire = Wire(number, "change", self.source, self.stream, key, op, number, position, row, self._lineage)
        self.sent.append(wire)
        return wire

    @property
    def _lineage(self) -> str:
        return "" if self.source == DENSE else f"binlog-{int(self.is_restarted)}"

    def _duplicate(self, number: int) -> Wire | None:
        return msgspec.structs.replace(self.rng.choice(self.sent), number=number) if self.sent else None

    def _conflict(self, number: int) -> Wire | None:
        again = self._duplicate(number)
        return msgspec.structs.replace(again, value=again.value + CONFLICT) if again else None

    def _skip(self, number: int) -> Wire | None:
        self.position += 1
        self.skipped.append(self.position)
        return None

    def _late(self, number: int) -> Wire | None:
        return self._write(number, self.skipped.pop(0), 0) if self.skipped else None

    def _restart(self, number: int) -> Wire | None:
        """A new history of the source: another binlog, positions from the start again."""
        if self.source == SPARSE and self.sent and not self.is_restarted:
            self.is_restarted, self.position, self.row = True, 0, 0
            self.skipped.clear()
        return None

    def _read(self, number: int) -> Wire:
        key = self.rng.randint(1, 3)
        return Wire(number, "read", self.source, self.stream, key, "r", number, self.position, 0, self._lineage)

    def _control(self, number: int) -> Wire:
        return Wire(number, "control", self.source, self.stream)

    def _poison(self, number: int) -> Wire:
        return Wire(number, "poison", self.source, self.stream)

    def _killer(self, number: int) -> Wire:
        return Wire(number, "killer", self.source, self.stream)


TRAITS = ("duplicate", "conflict", "skip", "late", "read", "control", "poison", "restart")


def scripts(rng: random.Random, *, has_killers: bool, may_restart: bool) -> Iterator[Script]:
    """The streams of one run."""
    killer_at = rng.randrange(2) if has_killers else -1
    # What comes late from before an epoch that another stream opened ranks in the new one: nothing tells it apart.
    unwanted = {"read", "late"} if rng.random() < 0.4 and may_restart else {"restart"}
    for number in range(rng.randint(2, 6)):
        traits = frozenset(trait for trait in TRAITS if rng.random() < 0.35) - unwanted
        traits |= {"killer"} if number == killer_at else frozenset()
        source = rng.choice((DENSE, DENSE, SPARSE))
        yield Script(rng, source, f"s{number}", traits, left=rng.randint(3, 14))
