"""What must be true of a pipeline at rest, checked from its objects and from what was sent; no code of the intake."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kds_cdc_dagster.core.change import Outcome, Reason
from kds_cdc_dagster.intake.audit import audit
from kds_cdc_dagster.journal import keys, parked
from kds_cdc_dagster.journal.manifest import Manifest
from kds_cdc_dagster_tests.simulation import codec
from kds_cdc_dagster_tests.simulation.site import WINDOW, Site
from kds_cdc_dagster_tests.simulation.traffic import CONFLICT, SPARSE, Sent

Row = dict[str, Any]


@dataclass(slots=True)
class Journal:
    """All rows of all segments, and who has them in a batch."""

    segments: dict[tuple[str, int], list[Row]] = field(default_factory=dict)
    manifests: list[Manifest] = field(default_factory=list)

    @property
    def rows(self) -> Iterator[Row]:
        for rows in self.segments.values():
            yield from rows

    @property
    def accepted(self) -> list[Row]:
        return [row for row in self.rows if row["outcome"] == Outcome.ACCEPTED]


def read_journal(site: Site) -> Journal:
    """Everything in the journal, as it is."""
    found = Journal()
    for key, body in sorted(site.store.objects.items()):
        if key.startswith("journal/"):
            segment = codec.decode(keys.segment_of(key), body)
            if segment is not None:
                found.segments[segment.id] = segment.rows.to_pylist()
        elif key.startswith("batches/"):
            found.manifests.append(msgspec.json.decode(body, type=Manifest))
    return found


def findings(site: Site) -> list[str]:
    """Every broken rule, in words."""
    journal = read_journal(site)
    return [
        *_uncovered(site, journal),
        *_not_accepted(site, journal),
        *_doubled(site, journal),
        *_unsealed(journal),
        *_falsely_refused(site, journal),
        *(
            f"parked: {source}|{stream} is held by nothing and waits"
            for source, stream in parked.held_streams(site.store)
        ),
        *_disordered(journal),
        *_committed_elsewhere(site, journal),
        *_wrong_rows(site, journal),
        *(f"audit: {problem}" for problem in audit(site.store).problems),
    ]


def _uncovered(site: Site, journal: Journal) -> Iterator[str]:
    """Every message is accepted, quarantined, or a repetition of an accepted one."""
    accepted = {(row["identity"], row["content_hash"]) for row in journal.accepted}
    rejected = {row["message_id"] for row in journal.rows if row["outcome"] == Outcome.REJECTED}
    for message_id, sent in site.sent.items():
        is_known = (sent.wire.identity, sent.wire.content_hash) in accepted
        if sent.wire.kind != "control" and not is_known and message_id not in rejected:
            yield f"lost: {message_id} is nowhere"


def _not_accepted(site: Site, journal: Journal) -> Iterator[str]:
    """What the source wrote in its order is accepted, unless a policy or the receive limit says otherwise."""
    accepted = {row["identity"] for row in journal.accepted}
    reasons = defaultdict(set)
    for row in journal.rows:
        reasons[row["message_id"]].add(row["reason"])
    weary = _weary_streams(site, journal)
    for message_id, sent in site.sent.items():
        if sent.is_regular and sent.wire.identity not in accepted:
            found = reasons[message_id] - {""}
            if not found & _excuses(site, sent, weary):
                yield f"refused: {message_id} is in order and was refused as {sorted(found)}"


def _weary_streams(site: Site, journal: Journal) -> set[str]:
    """Streams of which a message was received too often, or dead-lettered: later ones may see a gap."""
    weary = {row["message_id"] for row in journal.rows if row["reason"] == Reason.TOO_MANY_RECEIVES}
    return {site.sent[message_id].wire.stream for message_id in weary} | site.died


def _excuses(site: Site, sent: Sent, weary: set[str]) -> set[str]:
    excuses = {str(Reason.TOO_MANY_RECEIVES)}
    is_weary = sent.wire.stream in weary
    policies = site.plan.catalogue.source_by_id[sent.wire.source].on
    has_gap = is_weary or _skips(site, sent.wire.stream) or "failover" in site.plan.faults
    if policies.gap == "quarantine" and has_gap:
        excuses.add(str(Reason.GAP))
    if sent.wire.stream in site.died:
        excuses.add(str(Reason.OUT_OF_ORDER))
    if is_weary:
        excuses.add(str(Reason.SUSPICIOUS_DUPLICATE))
    return excuses


def _falsely_refused(site: Site, journal: Journal) -> Iterator[str]:
    """A change that is accepted is never called late or suspicious when it comes again."""
    contents = defaultdict(set)
    for row in journal.accepted:
        contents[row["identity"]].add(row["content_hash"])
    for row in journal.rows:
        is_alarm = row["reason"] in (Reason.OUT_OF_ORDER, Reason.SUSPICIOUS_DUPLICATE)
        if is_alarm and contents.get(row["identity"]) == {row["content_hash"]} and row["stream"] not in site.died:
            yield f"false alarm: {row['message_id']} repeats an accepted change and was refused as {row['reason']}"


def _skips(site: Site, stream: str) -> bool:
    """Whether the source itself left a position out, or wrote it too late."""
    written = [
        s.wire.position
        for s in site.sent.values()
        if s.is_regular and s.wire.stream == stream and s.wire.kind == "change"
    ]
    return set(written) != set(range(1, max(written, default=0) + 1))


def _doubled(site: Site, journal: Journal) -> Iterator[str]:
    """One change is accepted once, and with one content, unless hot state was lost in between."""
    if site.plan.forgets or site.clock.now() - site.began_at > WINDOW.window_seconds:
        return
    for identity, times in Counter(row["identity"] for row in journal.accepted).items():
        if times > 1:
            where = [str(id_) for id_, rows in journal.segments.items() if any(r["identity"] == identity for r in rows)]
            yield f"doubled: {identity} lies in {where}"


def _unsealed(journal: Journal) -> Iterator[str]:
    """Each segment is in one batch, and no batch names a segment that is not there."""
    sealed = Counter((id_.claim, id_.slot) for manifest in journal.manifests for id_ in manifest.segments)
    for id_ in journal.segments.keys() | sealed.keys():
        if sealed[id_] != 1 or id_ not in journal.segments:
            yield f"batches: segment {id_[0]}/{id_[1]} is in {sealed[id_]} batches"


def _disordered(journal: Journal) -> Iterator[str]:
    """Along a log, each stream's unflagged streaming changes rise; each row's stream is its own group."""
    for manifest in journal.manifests:
        if manifest.held:
            yield f"held: {manifest.batch}: {manifest.held}"
    last: dict[tuple[str, str], str] = {}
    for id_, rows in sorted(journal.segments.items()):
        for row in rows:
            lane = (id_[0], row["stream"])
            if row["outcome"] != Outcome.ACCEPTED or row["flag"] or not row["stream_order"]:
                continue
            if row["stream_order"] < last.get(lane, "") or row["stream"] != row["group_id"]:
                yield f"order: {id_[0]}/{id_[1]} {row['stream']} falls to {row['stream_order']}"
            last[lane] = row["stream_order"]


def _committed_elsewhere(site: Site, journal: Journal) -> Iterator[str]:
    """The state store's `committed` is the highest accepted order, no more and no less."""
    highest: dict[tuple[str, str], str] = {}
    for row in journal.accepted:
        stream = (row["source"], row["stream"])
        highest[stream] = max(highest.get(stream, ""), row["stream_order"])
    for stream, order in highest.items():
        record = site.state.stream(*stream)
        if (record.committed if record else None) != order:
            yield f"committed: {stream} stands at {record and record.committed}, the journal at {order}"


def _wrong_rows(site: Site, journal: Journal) -> Iterator[str]:
    """Folding by row order gives, for every key, the last version that the source wrote and that was accepted."""
    contents = defaultdict(set)
    for row in journal.accepted:
        contents[row["identity"]].add(row["content_hash"])
    weary = _weary_streams(site, journal)
    times = Counter(row["identity"] for row in journal.accepted)  # hot state was lost: among siblings arrival decides,
    repeated = {row["stream"] for row in journal.accepted if times[row["identity"]] > 1 and row["source"] == SPARSE}
    truth: dict[tuple[str, int], tuple[tuple[str, int, int, int], str]] = {}
    for sent in site.sent.values():
        wire = sent.wire
        if contents[wire.identity] != {wire.content_hash} or wire.stream in weary | repeated:
            continue
        order = (
            wire.lineage,
            wire.position,
            int(wire.kind != "read"),
            wire.value % CONFLICT,
        )  # of siblings, the last sent wins
        place = (wire.stream, wire.key)
        truth[place] = max(truth.get(place, (("", -1, 0, 0), "")), (order, wire.content_hash))
    folded = _folded(row for row in journal.accepted if len(contents[row["identity"]]) == 1)
    for (stream, key), (_, content_hash) in truth.items():
        if folded.get((stream, f"[{key}]")) != content_hash:
            yield f"row: stream {stream} key {key} ends as another version than the source's"


def _folded(rows: Iterator[Row]) -> dict[tuple[str, str], str]:
    latest: dict[tuple[str, str], tuple[str, str]] = {}
    for row in rows:
        place = (row["stream"], row["primary_key"])
        latest[place] = max(latest.get(place, ("", "")), (row["row_order"], row["content_hash"]))
    return {place: content_hash for place, (_, content_hash) in latest.items()}
