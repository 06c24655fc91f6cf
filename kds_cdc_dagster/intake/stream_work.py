"""One stream's changes in a round: what `intake.judge` asks about them, and what the answers mean. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kds_cdc_dagster.core.catalogue import Source
from kds_cdc_dagster.core.change import Change, Delivery, Flag, Outcome, Reason
from kds_cdc_dagster.core.decide import Candidate, DecideReply, Verdict
from kds_cdc_dagster.core.position import EPOCH_DIGITS, POSITION_DIGITS, stream_order
from kds_cdc_dagster.errors import InvariantBroken, TransientError
from kds_cdc_dagster.intake.item import Item

LOWEST = "0" * POSITION_DIGITS
"""Row position of a read that carries none: above every snapshot row, below every streaming change. A position
borrowed from the stream would let the read win over a long transaction that commits after it with older positions."""
TAKEN = (Verdict.ACCEPTED, Verdict.ACCEPTED_GAP)


class LineageBroken(Exception):
    """A source's positions went back together with another history: its epoch must end."""

    def __init__(self, source: str, reason: str, *, at: Delivery | None = None) -> None:
        self.source = source
        self.reason = reason
        self.at = at
        """Set if the old history goes on in the same round: what came before this delivery must be taken in first."""
        super().__init__(reason)


def old_history(deliveries: Sequence[Delivery], error: Exception) -> int:
    """How many of a round's deliveries come before the one at which a lineage broke: they are taken in first."""
    at = error.at if isinstance(error, LineageBroken) else None
    return 0 if at is None else deliveries.index(at)


@dataclass(slots=True)
class StreamWork:
    """One stream's changes in a round, in queue order."""

    source: Source
    stream: str
    epoch: int
    source_hold: str = ""
    """Reason of the lineage hold that the whole source is under."""
    items: list[Item] = field(default_factory=list)
    known_absent: set[str] = field(default_factory=set)
    declared: dict[str, str] = field(default_factory=dict)
    """identity -> flag: the durable records do not know it and policy (or siblings) let it in."""
    answers: dict[str, frozenset[str]] = field(default_factory=dict)
    """identity -> what the durable records said."""
    reply: DecideReply | None = None


def reply_of(work: StreamWork) -> DecideReply:
    """The state store's last answer. Raises InvariantBroken before the first."""
    if work.reply is None:
        raise InvariantBroken("a stream was judged before it was decided", stream=work.stream)
    return work.reply


def candidates_of(work: StreamWork) -> tuple[Candidate, ...]:
    """What the state store is asked about the items; sets their stream orders."""
    epoch, declared = stream_order(work.epoch, ""), work.declared
    found = []
    for item in work.items:
        change = item.change or change_of(item)
        identity, position = change.identity, change.stream_position
        order = None
        if position is not None:
            item.stream_order = order = epoch + position
        found.append(Candidate(identity, change.content_hash, order, identity in declared))
    return tuple(found)


def change_of(item: Item) -> Change:
    """The item's change. Raises InvariantBroken if it has none."""
    if item.change is None:
        raise InvariantBroken("only changes are judged")
    return item.change


def is_absent(work: StreamWork, reply: DecideReply, name: str, present: Mapping[str, str]) -> bool:
    """Whether at least one doubtful message of the stream is not in the segment after all."""
    doubtful = (
        change_of(item).identity
        for item, result in zip(work.items, reply.results, strict=True)
        if result.verdict is Verdict.IN_DOUBT and result.segment == name
    )
    return any(identity not in present for identity in doubtful)


class Seen(NamedTuple):
    """What an item's stream has seen before it."""

    lineage: str
    row_position: str
    """Highest of this epoch, without it; positions of an earlier epoch do not compare."""
    is_in_round: bool
    """Whether a change of this very round is part of it."""


def walked(work: StreamWork) -> Iterator[tuple[Item, Verdict, Seen]]:
    """The items with their verdicts, and what came before each, in the state or in this round."""
    reply = reply_of(work)
    settled = reply.row_position
    is_of_epoch = settled[:EPOCH_DIGITS] == stream_order(work.epoch, "")
    seen = Seen(reply.lineage, settled[EPOCH_DIGITS:] if is_of_epoch else "", is_in_round=False)
    for item, result in zip(work.items, reply.results, strict=True):
        yield item, result.verdict, seen
        change = change_of(item)
        if result.verdict in TAKEN and change.stream_position is None:
            seen = seen._replace(is_in_round=True)
        elif result.verdict in TAKEN:
            row_position = max(seen.row_position, change.row_position or "")
            seen = Seen(change.lineage or seen.lineage, row_position, is_in_round=True)


def questions(work: StreamWork) -> list[str]:
    """Identities on which the durable records must speak, because the hot state cannot know."""
    found = []
    for item, verdict, seen in walked(work):
        change = change_of(item)
        is_unsure = verdict is Verdict.STALE or (
            verdict in TAKEN
            and (_goes_back(change, seen) or _is_of_another_history(change, seen) or _is_first_of_epoch(work))
        )
        if is_unsure and change.identity not in work.answers:
            found.append(change.identity)
    return found


def _goes_back(change: Change, seen: Seen) -> bool:
    """Whether the start of a snapshot lies before what its stream has already seen."""
    return change.is_snapshot_start and change.row_position is not None and change.row_position < seen.row_position


def _is_of_another_history(change: Change, seen: Seen) -> bool:
    """Its lineage is not the stream's: new, or a late repetition from before the epoch, whose position says nothing."""
    return bool(change.lineage and seen.lineage) and change.lineage != seen.lineage


def _is_first_of_epoch(work: StreamWork) -> bool:
    """The stream has settled nothing in this epoch yet: a repetition from the last one would look new."""
    committed = reply_of(work).committed
    return bool(committed) and committed[:EPOCH_DIGITS] != stream_order(work.epoch, "")


def set_aside_known(work: StreamWork) -> bool:
    """Conclude what was taken for new but lies in the durable records; whether there was any.

    The decision is then repeated without them: they raised the base for what came after.
    """
    known = [
        item
        for item, result in zip(work.items, reply_of(work).results, strict=True)
        if result.verdict in TAKEN and work.answers.get(change_of(item).identity)
    ]
    for item in known:
        _conclude_refused(work, item, change_of(item), Verdict.STALE)
    work.items = [item for item in work.items if item.outcome is None]
    return bool(known)


def unanswered(work: StreamWork) -> list[tuple[Item, Change]]:
    """Late changes that the durable records do not know and nothing has let in."""
    found = []
    for item, result in zip(work.items, reply_of(work).results, strict=True):
        change = change_of(item)
        if result.verdict is Verdict.STALE and not work.answers[change.identity] and not _conflicts(work, item):
            found.append((item, change))
    return found


def _conflicts(work: StreamWork, item: Item) -> bool:
    """Another change of a dense stream already has this very position."""
    return work.source.is_dense and item.stream_order == reply_of(work).committed


def refuse_new_lineage(work: StreamWork) -> None:
    """Positions that go back with another server, binlog or a new snapshot end the epoch. Raises LineageBroken."""
    reply = reply_of(work)
    if reply.committed[:EPOCH_DIGITS] > stream_order(work.epoch, ""):
        raise LineageBroken(work.source.id, f"a later epoch was opened meanwhile: {work.stream} is already in it")
    for item, verdict, seen in walked(work):
        change = change_of(item)
        if work.answers.get(change.identity) != frozenset():
            continue  # not asked about, or known: a redelivery is no new history
        at = item.delivery if seen.is_in_round else None
        if verdict in TAKEN and _goes_back(change, seen):
            raise LineageBroken(work.source.id, f"a snapshot began before {seen.row_position} of {work.stream}", at=at)
        if verdict is Verdict.STALE and _is_of_another_history(change, seen):
            reason = f"{change.lineage} went back behind {seen.lineage} in {work.stream}"
            raise LineageBroken(work.source.id, reason, at=at)


def conclude_if_plain(work: StreamWork) -> bool:
    """Conclude a stream of which nothing needs a second look: all of it new, of one history and of this epoch.

    Nearly every stream of every round, and a sixth of the round's time when asked all the questions instead.
    """
    reply = reply_of(work)
    is_first_look = not work.declared and not work.answers
    if not is_first_look or not reply.is_all_accepted or _is_first_of_epoch(work):
        return False
    changes = [item.change or change_of(item) for item in work.items]
    histories = {reply.lineage, *[change.lineage for change in changes]} - {""}
    odd = [change for change in changes if change.is_snapshot_start or not change.row_position]
    if odd or len(histories) > 1:
        return False
    for item, change in zip(work.items, changes, strict=True):
        item.accept(work.epoch, change.row_position or LOWEST)
    return True


def conclude(work: StreamWork) -> None:
    """Turn final verdicts into outcomes. Raises TransientError: the round must be given up and repeated."""
    for item, verdict, _ in walked(work):
        change = change_of(item)
        if verdict in TAKEN:
            item.flag = Flag.GAP if verdict is Verdict.ACCEPTED_GAP else work.declared.get(change.identity, "")
            item.accept(work.epoch, change.row_position or LOWEST)
        elif verdict is Verdict.PARKED:
            _refuse_split(work, change)
            item.outcome, item.reason = Outcome.PARKED, reply_of(work).hold
        else:
            _conclude_refused(work, item, change, verdict)


def _refuse_split(work: StreamWork, change: Change) -> None:
    """A hold that came between two turns parks a sibling, but not what the first turn took in behind it."""
    if change.identity in work.declared:
        raise TransientError("a stream was held while its decision was under way", stream=work.stream)


def _conclude_refused(work: StreamWork, item: Item, change: Change, verdict: Verdict) -> None:
    reply = reply_of(work)
    known = work.answers.get(change.identity, frozenset())
    if verdict is Verdict.SAFE_DUPLICATE or change.content_hash in known:
        item.outcome = Outcome.SAFE_DUPLICATE
    elif verdict is Verdict.SUSPICIOUS_DUPLICATE or known:
        item.reject(Reason.SUSPICIOUS_DUPLICATE, f"identity {change.identity} was taken with other content")
    elif _conflicts(work, item):
        item.reject(Reason.SUSPICIOUS_DUPLICATE, f"stream order {item.stream_order} was taken by another change")
    elif verdict is Verdict.GAP:
        item.reject(Reason.GAP, f"stream order {item.stream_order} does not follow {reply.committed}")
    else:
        item.reject(Reason.OUT_OF_ORDER, f"stream order {item.stream_order} is not above {reply.committed}")
