"""Mirrors ``TrackerThread`` and ``Recovery`` of ``runtime/tracker_thread``: the same order
of effects."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import Action, Result, Settled, Settlement, SourceError
from beads_workers.core.records.journal import Checkpointed, Inherited
from beads_workers.core.schedule.commands import RoundTrip, SyncJournal
from beads_workers.core.schedule.events import (
    Arrived,
    RecoveryEnded,
    RecoveryFailed,
    RoundTripEnded,
)
from beads_workers.core.views.recovery import RecoveryState, replay
from tests.simulation.agenda import Promise, Thread
from tests.simulation.source import Source

if TYPE_CHECKING:
    from tests.simulation.nodes import Node


GONE_SECONDS = limits.TERM_GRACE_SECONDS + 5.0
LOOK_SECONDS = 0.5
"""Longer than the real 0.05 s: a look costs us more than it costs the machine."""


class TrackerThread:
    """``run`` is the thread; ``begin`` and ``stop`` are called by the loop."""

    def __init__(self, node: Node, source: Source, unsettled: Sequence[RecoveryState]) -> None:
        self._node = node
        self._world = node.world
        self._source = source
        self._unsettled = unsettled
        self._left: dict[str, tuple[RecoveryState, frozenset[IssueId], bool]] = {}
        self._told: set[str] = set()
        self._unconcluded: list[str] = []
        self._orders: deque[RoundTrip | SyncJournal | None] = deque()
        self._asked = Promise()
        self._wants_more = False
        self.abandoned = False
        self.ended = Promise()

    def begin(self, round_trip: RoundTrip | None) -> None:
        """Hand it a round trip; None ends it."""
        self._orders.append(round_trip)
        self._asked.keep()

    def sync(self) -> None:
        """``TrackerThread.sync``."""
        self._orders.append(SyncJournal())
        self._asked.keep()

    def run(self) -> Thread:
        """``TrackerThread._run``."""
        self._node.post((yield from self._recover()))
        while True:
            while not self._orders:
                self._asked = Promise()
                if self._wants_more:
                    self._world.agenda.after(limits.WATCH_SECONDS, self._asked.keep)
                yield self._asked
                if not self._orders and self._source.changed():
                    self._node.post(Arrived())
            round_trip = self._orders.popleft()
            if round_trip is None:
                break
            if isinstance(round_trip, SyncJournal):
                yield from self._node.journal.sync()
                continue
            ended = yield from self._carry_out(round_trip)
            if ended.taken is not None and round_trip.take:
                self._wants_more = len(ended.taken.jobs) < round_trip.take
            self._node.post(ended)
        yield from self._source.close()
        self.ended.keep()

    def _carry_out(self, round_trip: RoundTrip) -> Thread:
        began = self._world.agenda.now
        yield from self._node.journal.sync()
        self._conclude()
        ended = yield from self._settle(round_trip)
        ended = yield from self._take(round_trip, ended)
        return replace(ended, seconds=self._world.agenda.now - began)

    def _settle(self, round_trip: RoundTrip) -> Thread:
        if not round_trip.settlements:
            return RoundTripEnded(0.0)
        ours = [each for each in round_trip.settlements if not each.run_id]
        settled: tuple[Settled, ...] = ()
        try:
            if ours:
                settled = tuple((yield from self._source.settle(ours)))
        except SourceError as error:
            return RoundTripEnded(0.0, settle_error=str(error), hint=error.hint)
        assert len(settled) == len(ours), "one answer for each settlement"
        earlier: dict[str, list[Settlement]] = {}
        for each in round_trip.settlements:
            if each.run_id:
                earlier.setdefault(each.run_id, []).append(each)
        late: list[Checkpointed] = []
        for group in earlier.values():
            settled = (*settled, *(yield from self._released(group, late)))
        if any(s.result is not Result.FAILED for s in settled):
            self._node.last_settled = self._world.agenda.now
        return RoundTripEnded(0.0, settled=settled, late_entries=tuple(late))

    def _take(self, round_trip: RoundTrip, ended: RoundTripEnded) -> Thread:
        if ended.settle_error:
            return ended
        try:
            if round_trip.renew:
                ended = replace(ended, renewed=(yield from self._source.renew(round_trip.renew)))
            if round_trip.take is not None:
                ended = replace(
                    ended, taken=(yield from self._source.take(round_trip.take, round_trip.skip))
                )
        except SourceError as error:
            ended = replace(ended, take_error=str(error), hint=error.hint)
        return ended

    # --- runtime/tracker_thread.py ---------------------------------------------------------------

    def _conclude(self) -> None:
        settled, self._unconcluded = self._unconcluded, []
        for run_id in settled:
            self._world.point("before a run is marked as settled")
            self._world.disk.folders[run_id].settled = True
        self._told.clear()

    def _mark_settled(self, run_id: str) -> None:
        if run_id in self._told:
            self._unconcluded.append(run_id)
        else:
            self._world.disk.folders[run_id].settled = True

    def _released(self, group: list[Settlement], late: list[Checkpointed]) -> Thread:
        try:
            return (yield from self._release(group, late))
        except SourceError as error:
            return [Settled(each, Result.FAILED, str(error)) for each in group]

    def _release(self, group: list[Settlement], late: list[Checkpointed]) -> Thread:
        run_id = group[0].run_id
        left, kept, whole = self._left.get(run_id, (None, frozenset(), False))
        asked = kept & {each.issue_id for each in group}
        if left is None or not asked:
            return [Settled(each, Result.NOT_OURS) for each in group]
        self._hear(left)
        to_land = [e for e in left.checkpoint() if e.issue_id in asked and e.landing]
        if to_land:
            self._told.add(run_id)
        answers = yield from self._source.recover(left.unsettled_runs(kept - asked)[-1])
        told = {s.settlement.issue_id: _told(s) for s in answers if s.settlement.issue_id in asked}
        done = {issue_id for issue_id in asked if told.get(issue_id) is not Result.FAILED}
        self._left[run_id] = (left, kept - done, whole)
        left.settled_elsewhere(sorted(done))
        late += [entry for entry in to_land if entry.issue_id in done]
        if kept == done and whole:
            self._world.point("before a run is marked as settled")
            self._mark_settled(run_id)
        return [Settled(each, told.get(each.issue_id, Result.NOT_OURS)) for each in group]

    def _still_held(self, left: RecoveryState) -> frozenset[IssueId]:
        if self.abandoned or self._node.push:
            return frozenset()
        lives = self._world.processes.lives
        return left.leased | {IssueId(i) for i, (pid, _) in left.owners.items() if lives(pid)}

    def _recover(self) -> Thread:
        settled: list[Settled] = []
        heard: list[Checkpointed] = []
        inherited: list[Inherited] = []
        for left in self._unsettled:
            yield from self._wait_until_gone(left)
            self._find_usage(left)
            heard += self._hear(left)
            kept = self._still_held(left)
            inherited += left.inherited(kept)
            settled += yield from self._settle_run(left, kept)
        return RecoveryEnded(tuple(settled), tuple(heard), tuple(inherited))

    def _find_usage(self, left: RecoveryState) -> None:
        for ended in () if self.abandoned else left.unread:
            if (found := self._node.read_usage(ended)) is not None:
                self._told.add(left.run_id)
                self._node.post(found)

    def _hear(self, left: RecoveryState) -> list[Checkpointed]:
        if self.abandoned or self._world.mutant.is_deaf:
            return []
        wanted = {begun.started.request_id for begun in left.begun.values()}
        words = self._world.disk.words_of(left.run_id, wanted)
        if left.lands and words:
            self._world.disk.sync_words(left.run_id)
        ends = replay(left, words)
        self._world.heard_late += len(ends)
        late = [each for each in left.checkpoint() if each.issue_id in ends]
        if any(each.landing for each in late):
            self._told.add(left.run_id)
        return late

    def _settle_run(self, left: RecoveryState, kept: frozenset[IssueId]) -> Thread:
        failures = 0
        while not self.abandoned:
            settled: list[Settled] = []
            try:
                for crashed in (
                    left.unsettled_runs(kept) if not self._world.mutant.settles_unasked else ()
                ):
                    settled += yield from self._source.recover(crashed)
            except SourceError as error:
                delay = min(
                    limits.SOURCE_RETRY_SECONDS * 2.0**failures, limits.SOURCE_RETRY_MAX_SECONDS
                )
                failures = min(failures + 1, 10)
                self._node.post(RecoveryFailed(str(error), error.hint, delay))
                yield delay
                continue
            self._world.point("before a run is marked as settled")
            whole = all(s.result is not Result.FAILED for s in settled)
            if kept:
                left.settled_elsewhere([i for i in left.issues.known if i not in kept])
                self._left[left.run_id] = (left, kept, whole)
            elif whole:
                self._mark_settled(left.run_id)
            self._world.point("after a run was marked as settled")
            self._world.check.run_gone(left.run_id)
            return settled
        return []

    def _wait_until_gone(self, left: RecoveryState) -> Thread:
        processes = self._world.processes
        deadline = self._world.agenda.now + GONE_SECONDS
        while processes.owners(left.run_id) and not self.abandoned:
            if self._world.agenda.now > deadline:
                for process in processes.owners(left.run_id):
                    process.die()
                deadline = self._world.agenda.now + GONE_SECONDS
            yield LOOK_SECONDS
        processes.sweep(left.run_id)
        grace = self._node.settings.orphan_grace_seconds
        until = inf if grace is None else self._world.agenda.now + grace
        for pid, _ in left.owners.values() if self._node.push else ():
            while processes.lives(pid) and not self.abandoned and self._world.agenda.now < until:
                yield LOOK_SECONDS
        if left.last_call is None:
            return
        pid, _ = left.last_call
        while processes.lives(pid) and not self.abandoned:
            yield LOOK_SECONDS


def _told(settled: Settled) -> Result:
    closed = settled.settlement.action is Action.CLOSE and settled.result is Result.APPLIED
    return Result.FOUND_CLOSED if closed else settled.result
