"""Judge the changes of a round: ask the state store, resolve doubts, ask the durable records, apply policy.

Repeats the decision of a stream until every verdict is final. Whatever is repeated is the same call with
more knowledge, so accepted changes stay accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kds_cdc_dagster.core.change import Flag
from kds_cdc_dagster.core.decide import DecideCall, DecideReply, GapPolicy
from kds_cdc_dagster.errors import InvariantBroken
from kds_cdc_dagster.intake.doubts import DurableRecords, Resolver
from kds_cdc_dagster.intake.item import Item
from kds_cdc_dagster.intake.stream_work import (
    StreamWork,
    candidates_of,
    conclude,
    conclude_if_plain,
    is_absent,
    questions,
    refuse_new_lineage,
    reply_of,
    set_aside_known,
    unanswered,
)
from kds_cdc_dagster.journal.keys import SegmentId
from kds_cdc_dagster.ports import StateStore

TURNS_MAX = 1_000
"""Every turn settles a segment or answers a message, so this many cannot happen."""


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
            candidates=candidates_of(work),
            is_dense=work.source.is_dense,
            on_gap=GapPolicy.ACCEPT if self._is_release else GapPolicy(work.source.on.gap),
            known_absent=frozenset(work.known_absent),
            is_release=self._is_release,
        )

    def _after(self, works: Sequence[StreamWork], replies: Sequence[DecideReply]) -> list[StreamWork]:
        """Works that must be decided again; the others got their outcomes."""
        again, asked = [], []
        for work, reply in zip(works, replies, strict=True):
            work.reply = reply
            if conclude_if_plain(work):
                continue
            if reply.doubts:
                again.append(work)
            else:
                asked.append(work)
        self._resolve(again)
        self._ask(asked)
        for work in asked:
            if self._needs_another_turn(work):
                again.append(work)
            else:
                conclude(work)
        return [work for work in again if work.items]

    def _resolve(self, works: Sequence[StreamWork]) -> None:
        for name in sorted({segment for work in works for segment in reply_of(work).doubts}):
            present = self._resolver.resolve(self._life, SegmentId.parse(name))
            for work in works:
                if name in reply_of(work).doubts and is_absent(work, reply_of(work), name, present):
                    work.known_absent.add(name)

    def _ask(self, works: Sequence[StreamWork]) -> None:
        """One look-up in the durable records for everything that needs an answer."""
        wanted = {identity for work in works for identity in questions(work)}
        if not wanted:
            return
        found = self._durable.find(sorted(wanted))
        for work in works:
            for identity in questions(work):
                work.answers[identity] = found.get(identity, frozenset())

    def _needs_another_turn(self, work: StreamWork) -> bool:
        """Declare what may be taken in after all, or hold the stream: both need the decision again."""
        refuse_new_lineage(work)
        if set_aside_known(work):
            return True
        before = len(work.declared)
        for item, change in unanswered(work):
            flag = self._let_in(work, item)
            if flag is not None:
                work.declared[change.identity] = flag
        if len(work.declared) > before:
            return True
        return self._hold_if_asked(work)

    def _let_in(self, work: StreamWork, item: Item) -> str | None:
        reply = reply_of(work)
        base = max(reply.committed, self._floors.get((work.source.id, work.stream), ""))
        if item.stream_order == base and not work.source.is_dense:
            return Flag.SIBLING
        policy = work.source.on.out_of_order
        is_let_in = policy == "accept" or (policy == "hold" and self._is_release)  # the operator's word
        return Flag.OUT_OF_ORDER if is_let_in else None

    def _hold_if_asked(self, work: StreamWork) -> bool:
        late = next(iter(unanswered(work)), None)
        if late is None or work.source.on.out_of_order != "hold" or self._is_release:
            return False
        if not reply_of(work).hold:  # else this very call began a hold, after the late change: repeated, it parks it
            reason = f"out of order: {late[0].stream_order} after {reply_of(work).committed}"
            self._state.hold(self._life, work.source.id, work.stream, reason)
        return True
