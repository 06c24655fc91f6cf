"""Judge the changes of a round: ask the state store, resolve doubts, ask the durable records, apply policy.

Repeats the decision of a stream until every verdict is final. Whatever is repeated is the same call with
more knowledge, so accepted changes stay accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kds_cdc_dagster.core.catalogue import Source
from kds_cdc_dagster.core.change import Change, Flag, Outcome, Reason
from kds_cdc_dagster.core.decide import Candidate, DecideCall, DecideReply, GapPolicy, Verdict
from kds_cdc_dagster.core.position import EPOCH_DIGITS, POSITION_DIGITS, stream_order
from kds_cdc_dagster.errors import InvariantBroken
from kds_cdc_dagster.intake.doubts import DurableRecords, Resolver
from kds_cdc_dagster.intake.item import Item
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.ports import StateStore

TURNS_MAX = 1_000
"""Every turn settles a segment or answers a message, so this many cannot happen."""

LOWEST = "0" * POSITION_DIGITS


class LineageBroken(Exception):
    """A source's positions went back together with another history: its epoch must end."""

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(reason)


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


class Judge:
    """Decides all streams of one round under one claim."""

    def __init__(self, *, state: StateStore, resolver: Resolver, durable: DurableRecords) -> None:
        self._state = state
        self._resolver = resolver
        self._durable = durable
        self._held: set[tuple[str, int, str, str]] = set()
        """(life, epoch, source, stream) that this worker has already held for its source."""

    def judge(
        self,
        works: Sequence[StreamWork],
        *,
        life: str,
        segment: SegmentId,
        floors: Mapping[tuple[str, str], str],
        is_release: bool = False,
    ) -> None:
        """Give every item of every stream its outcome. Raises LineageBroken and the state's errors."""
        self._life = life
        self._segment = segment
        self._floors = floors
        self._is_release = is_release
        self._hold_streams(works)
        undecided = list(works)
        for _ in range(TURNS_MAX):
            if not undecided:
                return
            replies = self._state.decide(life, [self._call(work) for work in undecided])
            undecided = self._after(undecided, replies)
        raise InvariantBroken("a round's decision does not end", segment=segment)

    def _hold_streams(self, works: Sequence[StreamWork]) -> None:
        """Streams of a source under a lineage hold are held one by one, so that every worker parks them."""
        for work in works:
            key = (self._life, work.epoch, work.source.id, work.stream)
            if work.source_hold and key not in self._held:
                self._state.hold(self._life, work.source.id, work.stream, work.source_hold)
                self._held.add(key)

    def _call(self, work: StreamWork) -> DecideCall:
        return DecideCall(
            source=work.source.id,
            stream=work.stream,
            claim=self._segment.claim,
            slot=self._segment.slot,
            floor=self._floors.get((work.source.id, work.stream), ""),
            candidates=tuple(_candidate(work, item) for item in work.items),
            is_dense=work.source.is_dense,
            on_gap=GapPolicy.ACCEPT if self._is_release else GapPolicy(work.source.on.gap),
            known_absent=frozenset(work.known_absent),
            is_release=self._is_release,
        )

    def _after(self, works: Sequence[StreamWork], replies: Sequence[DecideReply]) -> list[StreamWork]:
        """Works that must be decided again; the others got their outcomes."""
        self._resolve({segment for reply in replies for segment in reply.doubts}, works, replies)
        again, asked = [], []
        for work, reply in zip(works, replies, strict=True):
            work.reply = reply
            if reply.doubts:
                again.append(work)
            else:
                asked.append(work)
        self._ask(asked)
        for work in asked:
            if self._needs_another_turn(work):
                again.append(work)
            else:
                _conclude(work)
        return again

    def _resolve(self, doubts: set[str], works: Sequence[StreamWork], replies: Sequence[DecideReply]) -> None:
        for name in sorted(doubts):
            present = self._resolver.resolve(self._life, SegmentId.parse(name))
            for work, reply in zip(works, replies, strict=True):
                if name in reply.doubts and _is_absent(work, reply, name, present):
                    work.known_absent.add(name)

    def _ask(self, works: Sequence[StreamWork]) -> None:
        """One look-up in the durable records for everything that needs an answer."""
        wanted = {identity for work in works for identity in _questions(work)}
        if not wanted:
            return
        found = self._durable.find(sorted(wanted))
        for work in works:
            for identity in _questions(work):
                work.answers[identity] = found.get(identity, frozenset())

    def _needs_another_turn(self, work: StreamWork) -> bool:
        """Declare what may be taken in after all, or hold the stream: both need the decision again."""
        _refuse_new_lineage(work)
        before = len(work.declared)
        for item, change in _unanswered(work):
            flag = self._let_in(work, item)
            if flag is not None:
                work.declared[change.identity] = flag
        if len(work.declared) > before:
            return True
        return self._hold_if_asked(work)

    def _let_in(self, work: StreamWork, item: Item) -> str | None:
        reply = _reply(work)
        base = max(reply.committed, self._floors.get((work.source.id, work.stream), ""))
        if item.stream_order == base and not work.source.is_dense:
            return Flag.SIBLING
        policy = work.source.on.out_of_order
        is_let_in = policy == "accept" or (policy == "hold" and self._is_release)  # the operator's word
        return Flag.OUT_OF_ORDER if is_let_in else None

    def _hold_if_asked(self, work: StreamWork) -> bool:
        late = next(iter(_unanswered(work)), None)
        if late is None or work.source.on.out_of_order != "hold" or self._is_release:
            return False
        if not _reply(work).hold:  # else this very call began a hold, after the late change: repeated, it parks it
            reason = f"out of order: {late[0].stream_order} after {_reply(work).committed}"
            self._state.hold(self._life, work.source.id, work.stream, reason)
        return True


def _reply(work: StreamWork) -> DecideReply:
    if work.reply is None:
        raise InvariantBroken("a stream was judged before it was decided", stream=work.stream)
    return work.reply


def _candidate(work: StreamWork, item: Item) -> Candidate:
    change = _change(item)
    if change.stream_position is not None:
        item.stream_order = stream_order(work.epoch, change.stream_position)
    return Candidate(change.identity, change.content_hash, item.stream_order or None, change.identity in work.declared)


def _change(item: Item) -> Change:
    if item.change is None:
        raise InvariantBroken("only changes are judged")
    return item.change


def _is_absent(work: StreamWork, reply: DecideReply, name: str, present: Mapping[str, str]) -> bool:
    """Whether at least one doubtful message of the stream is not in the segment after all."""
    doubtful = (
        _change(item).identity
        for item, result in zip(work.items, reply.results, strict=True)
        if result.verdict is Verdict.IN_DOUBT and result.segment == name
    )
    return any(identity not in present for identity in doubtful)


def _questions(work: StreamWork) -> list[str]:
    """Identities on which the durable records must speak: late changes, and snapshots that may open a lineage."""
    found = []
    for item, result in zip(work.items, _reply(work).results, strict=True):
        change = _change(item)
        if change.identity in work.answers:
            continue
        if result.verdict is Verdict.STALE or (result.verdict is Verdict.ACCEPTED and _goes_back(work, change)):
            found.append(change.identity)
    return found


def _goes_back(work: StreamWork, change: Change) -> bool:
    """Whether the start of a snapshot lies before what its stream has already seen."""
    seen = _seen_row_position(work)
    return change.is_snapshot_start and change.row_position is not None and bool(seen) and change.row_position < seen


def _seen_row_position(work: StreamWork) -> str:
    """Highest row position settled in this epoch; positions of an earlier one do not compare."""
    settled = _reply(work).row_position
    return settled[EPOCH_DIGITS:] if settled[:EPOCH_DIGITS] == stream_order(work.epoch, "") else ""


def _unanswered(work: StreamWork) -> list[tuple[Item, Change]]:
    """Late changes that the durable records do not know and nothing has let in."""
    found = []
    for item, result in zip(work.items, _reply(work).results, strict=True):
        change = _change(item)
        if result.verdict is Verdict.STALE and not work.answers[change.identity] and not _conflicts(work, item):
            found.append((item, change))
    return found


def _conflicts(work: StreamWork, item: Item) -> bool:
    """Another change of a dense stream already has this very position."""
    return work.source.is_dense and item.stream_order == _reply(work).committed


def _refuse_new_lineage(work: StreamWork) -> None:
    """Positions that go back with another server, binlog or a new snapshot end the epoch."""
    reply = _reply(work)
    if reply.committed[:EPOCH_DIGITS] > stream_order(work.epoch, ""):
        raise LineageBroken(work.source.id, f"a later epoch was opened meanwhile: {work.stream} is already in it")
    for item, result in zip(work.items, reply.results, strict=True):
        change = _change(item)
        if work.answers.get(change.identity) != frozenset():
            continue  # not asked about, or known: a redelivery is no new history
        if result.verdict is Verdict.ACCEPTED and _goes_back(work, change):
            raise LineageBroken(work.source.id, f"a snapshot began before {reply.row_position} of {work.stream}")
        differs = change.lineage and reply.lineage and change.lineage != reply.lineage
        if result.verdict is Verdict.STALE and differs and item.stream_order != reply.committed:
            raise LineageBroken(work.source.id, f"{change.lineage} went back behind {reply.lineage} in {work.stream}")


def _conclude(work: StreamWork) -> None:
    """Turn final verdicts into outcomes."""
    reply = _reply(work)
    row_position = _seen_row_position(work)
    for item, result in zip(work.items, reply.results, strict=True):
        change = _change(item)
        verdict = result.verdict
        if verdict in (Verdict.ACCEPTED, Verdict.ACCEPTED_GAP):
            position = change.row_position or row_position or LOWEST
            if change.stream_position is not None:
                row_position = max(row_position, position)
            item.flag = Flag.GAP if verdict is Verdict.ACCEPTED_GAP else work.declared.get(change.identity, "")
            item.accept(work.epoch, position)
        elif verdict is Verdict.PARKED:
            item.outcome, item.reason = Outcome.PARKED, reply.hold
        else:
            _conclude_refused(work, item, change, verdict)


def _conclude_refused(work: StreamWork, item: Item, change: Change, verdict: Verdict) -> None:
    reply = _reply(work)
    known = work.answers.get(change.identity, frozenset())
    if verdict is Verdict.SAFE_DUPLICATE or (verdict is Verdict.STALE and change.content_hash in known):
        item.outcome = Outcome.SAFE_DUPLICATE
    elif verdict is Verdict.SUSPICIOUS_DUPLICATE or known:
        item.reject(Reason.SUSPICIOUS_DUPLICATE, f"identity {change.identity} was taken with other content")
    elif _conflicts(work, item):
        item.reject(Reason.SUSPICIOUS_DUPLICATE, f"stream order {item.stream_order} was taken by another change")
    elif verdict is Verdict.GAP:
        item.reject(Reason.GAP, f"stream order {item.stream_order} does not follow {reply.committed}")
    else:
        item.reject(Reason.OUT_OF_ORDER, f"stream order {item.stream_order} is not above {reply.committed}")
