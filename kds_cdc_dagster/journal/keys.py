"""Keys of every durable object, relative to the pipeline's prefix. Each part is percent-encoded.

=============================================  ==================================================
Key                                            What it is
=============================================  ==================================================
journal/<claim>/<20-digit slot>.parquet        one segment per round (or an END, of the same key)
heartbeats/<claim>                             who, since when, last seen (overwritten)
batches/<claim>/<20-digit first slot>.json     manifest of a sealed batch
checkpoints/<digest>                           where every stream ended in the batches before: spares a rebuild time
index/...                                      sorted identities -> "did we ever take this?"
outbox/<batch>                                 sealed, not yet loaded
done/<batch>                                   every target of the batch is in the load ledger
parked/<source>/<stream>/<claim>/<slot>        a segment holds parked deliveries of the stream
released/<source>/<stream>/<claim>/<slot>      ... and they were released
epochs/<source>/<8-digit n>.json               an opened epoch
lineage-holds/<source>/<8-digit n>.json        the source is held: epoch n must end
counts/<day>/<time>-<worker>-<random>.json     counts of rounds that wrote no segment
raw/<entity>/<batch>.parquet, .json            raw artifact and its slices
load/<entity>/<batch>/...                      typed load artifact and COPY manifest
dirty/<target>/<batch>                         merged since the target's last export
replays/<id>/report.json                       report of a replay into an isolated target
exports/<target>/<version>/tenant=<t>/...      export files; exports/<target>/current.json names them
=============================================  ==================================================
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

SLOT_DIGITS = 20
REPLAYS = "replays/"


class SegmentId(NamedTuple):
    """A slot of one claim's log."""

    claim: str
    slot: int

    def __str__(self) -> str:
        return f"{self.claim}/{self.slot}"

    @classmethod
    def parse(cls, text: str) -> SegmentId:
        """From `claim/slot`."""
        claim, slot = text.rsplit("/", 1)
        return cls(claim, int(slot))


def part(text: str) -> str:
    """One key part: percent-encoded, never empty."""
    return quote(text, safe="") or "%"


def unpart(text: str) -> str:
    """Inverse of `part`."""
    return "" if text == "%" else unquote(text)


def slot_name(slot: int) -> str:
    """20 digits, so that keys sort as numbers."""
    return f"{slot:0{SLOT_DIGITS}d}"


def log(claim: str) -> str:
    """Prefix of a claim's segments."""
    return f"journal/{part(claim)}/"


def segment(id_: SegmentId) -> str:
    """Key of a segment, or of the END in its place."""
    return f"{log(id_.claim)}{slot_name(id_.slot)}.parquet"


def segment_of(key: str) -> SegmentId:
    """Inverse of `segment`."""
    _, claim, name = key.split("/")
    return SegmentId(unpart(claim), int(name.removesuffix(".parquet")))


def heartbeat(claim: str) -> str:
    """Key of a claim's heartbeat."""
    return f"heartbeats/{part(claim)}"


def batch_id(first: SegmentId) -> str:
    """Id of the batch that begins with a segment: also its Dagster partition key."""
    return f"{first.claim}-{first.slot:08d}"


def first_segment(batch: str) -> SegmentId:
    """Inverse of `batch_id`."""
    claim, slot = batch.rsplit("-", 1)
    return SegmentId(claim, int(slot))


def manifests(claim: str) -> str:
    """Prefix of a claim's manifests."""
    return f"batches/{part(claim)}/"


def manifest(batch: str) -> str:
    """Key of a batch's manifest."""
    first = first_segment(batch)
    return f"{manifests(first.claim)}{slot_name(first.slot)}.json"


def outbox(batch: str) -> str:
    """Key of a batch's outbox entry."""
    return f"outbox/{part(batch)}"


def done(batch: str) -> str:
    """Key of a batch's done record."""
    return f"done/{part(batch)}"


def parked(source: str, stream: str) -> str:
    """Prefix of a stream's parked pointers; any object under it means: this stream is held."""
    return f"parked/{part(source)}/{part(stream)}/"


def released(source: str, stream: str) -> str:
    """Prefix of a stream's released pointers."""
    return f"released/{part(source)}/{part(stream)}/"


def pointer(prefix: str, id_: SegmentId) -> str:
    """A parked or released pointer to a segment."""
    return f"{prefix}{part(id_.claim)}/{slot_name(id_.slot)}"


def epoch(source: str, number: int) -> str:
    """Key of an opened epoch."""
    return f"epochs/{part(source)}/{number:08d}.json"


def lineage_hold(source: str, number: int) -> str:
    """Key of the hold that epoch `number` of a source is under."""
    return f"lineage-holds/{part(source)}/{number:08d}.json"


def raw(entity: str, batch: str) -> str:
    """Key of a raw artifact; its sidecar ends in .json instead."""
    return f"raw/{part(entity)}/{part(batch)}.parquet"


def raw_sidecar(entity: str, batch: str) -> str:
    """Slices, offsets and checksum of a raw artifact."""
    return f"raw/{part(entity)}/{part(batch)}.json"


def load(entity: str, batch: str) -> str:
    """Prefix of a typed load artifact."""
    return f"load/{part(entity)}/{part(batch)}/"


def exports(target: str) -> str:
    """Prefix of a target's exports."""
    return f"exports/{part(target)}/"


def current_export(target: str) -> str:
    """Pointer to the export that is current."""
    return f"{exports(target)}current.json"


def replay_report(replay: str) -> str:
    """Report of a replay into isolated schemas."""
    return f"{REPLAYS}{part(replay)}/report.json"
