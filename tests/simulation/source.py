"""The source of a node: one call at a time, each a process of its own that ends by itself.

Like ``trackers/bd`` with compare-and-swap: what a caller is told and what was done are two things,
a caller's death ends no call, and between a read and a write anybody may change an issue. With
``atomic`` it is like ``trackers/sqlite``: a call is one transaction in our own process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from beads_workers.core.base.model import IssueId, Job, ListedIssue
from beads_workers.core.base.source import (
    Action,
    CrashedRun,
    Lost,
    Renewed,
    Result,
    Settled,
    Settlement,
    SourceError,
    Taken,
)
from beads_workers.trackers.settlement_rules import (
    IN_PROGRESS,
    Ownership,
    is_held_by,
    is_left_by,
    pending,
    rule,
)
from tests.simulation.agenda import Process, Promise, Thread
from tests.simulation.tracker import FREE

if TYPE_CHECKING:
    from tests.simulation.nodes import Node


CALL_SECONDS = 60.0


class Source:
    """Its methods are threads of the node's process; they raise ``SourceError``."""

    def __init__(self, node: Node, actor: str) -> None:
        self._node = node
        self._world = node.world
        self._tracker = node.world.tracker
        self.actor = actor
        self.listing_began: float | None = None
        """When the last listing that was answered had begun."""
        self._writes_of_others = 0
        self._unanswered: tuple[str, ...] = ()
        self._late: Process | None = None

    # --- core.source.Source -------------------------------------------------------------------

    def take(self, limit: int, skip: Collection[IssueId]) -> Thread:
        """``Source.take``."""
        if self._unanswered:
            yield from self._requeue_unanswered()
        self.changed()
        rows: list[tuple[str, int]] = []
        began = self._world.agenda.now
        try:
            yield from self._call(lambda: self._ready(rows, skip), 0)
        except SourceError:
            if self._world.mutant.error_is_empty:
                return Taken()
            raise
        self.listing_began = began
        listed = tuple(ListedIssue(IssueId(i), i, priority) for i, priority in rows[limit:])
        if not limit or not rows:
            return Taken(listed=listed)
        won: list[tuple[str, int]] = []
        self._unanswered = tuple(i for i, _ in rows[:limit])
        yield from self._call(lambda: self._claim(rows[:limit], won), limit)
        self._unanswered = ()
        labels = self._world.labels
        return Taken(tuple(Job("sim", IssueId(i), i, p, labels=labels(i)) for i, p in won), listed)

    def changed(self) -> bool:
        """``WatchedSource.changed``."""
        before, writes = self._writes_of_others, self._tracker.writes
        self._writes_of_others = writes.total() - writes[self.actor]
        return self._writes_of_others != before

    def settle(self, settlements: Sequence[Settlement]) -> Thread:
        """``Source.settle``."""
        return (yield from self._settle(settlements, self.actor))

    def renew(self, issue_ids: Sequence[IssueId]) -> Thread:
        """``Source.renew``: which of them are ours no more."""
        lost: list[Lost] = []
        yield from self._call(lambda: self._renew(issue_ids, lost), len(issue_ids))
        return Renewed(lost=tuple(lost))

    def recover(self, dead: CrashedRun) -> Thread:
        """``Source.recover``: what its actor holds according to the tracker counts."""
        held: list[IssueId] = []
        yield from self._call(lambda: self._held(dead, held), 0)
        writes = pending(dead, held)
        return (yield from self._settle(writes, dead.actor)) if writes else []

    def close(self) -> Thread:
        """Requeue what a take won whose answer was lost."""
        if self._unanswered:
            try:
                yield from self._requeue_unanswered()
            except SourceError:
                pass  # The run is not settled then, and the next start asks.

    # --- one call -----------------------------------------------------------------------------

    def _call(self, work: Callable[[], Thread], ids: int) -> Thread:
        world, node = self._world, self._node
        if self._late is not None:
            if self._late.alive:
                raise SourceError(f"bd (pid {self._late.pid}) is still running")
            yield from node.journal_call_ended(self._late.pid)
            self._late = None
        fate = world.faults.call_fate(ids)
        if not fate.starts:
            yield 0.01
            raise SourceError("bd cannot be started")
        if world.atomic:
            yield from self._transaction(work, fate.late, fate.steps is not None)
            if fate.answer_lost:
                raise SourceError("the database was busy")
            return
        child = world.processes.start("bd")
        child_ended, go = Promise(), Promise()

        def run() -> Thread:
            yield go
            yield fate.late
            world.check.call_begins(node, child.pid)
            for step, delay in enumerate(work()):
                if step == fate.steps:
                    break
                yield delay
            child_ended.keep("killed" if fate.steps is not None else "")
            child.die()

        child.start(run())
        if world.mutant.calls_first:
            go.keep()
        # At its gate it ends with whoever was to open it.
        node.process.at_death.append(lambda: None if go.kept else child.die())
        if world.armed is None and world.faults.hits_any(0.01):
            world.arm(0, power=False)
            fate = replace(fate, late=world.random.uniform(1.0, 60.0))
        world.point("after a call was started")
        yield from node.journal_call_started(child.pid)
        world.point("after a call was journalled")
        go.keep()
        answer = Promise()
        child_ended.then(lambda: answer.keep("ended"))
        node.process.later(CALL_SECONDS + 2.0 * ids, lambda: answer.keep("late"))
        if (yield answer) == "late":
            self._late = child
            raise SourceError(f"bd (pid {child.pid}) did not answer")
        world.point("after a call")
        yield from node.journal_call_ended(child.pid)
        if fate.answer_lost or child_ended.value:
            raise SourceError("bd: exit status 1")

    def _transaction(self, work: Callable[[], Thread], late: float, rolled_back: bool) -> Thread:
        yield min(late, 5.0)
        if rolled_back:
            raise SourceError("database is locked")
        self._world.point("before a transaction")
        for _ in work():
            pass
        self._world.point("after a transaction")
        yield 0.0005

    # --- what the calls do --------------------------------------------------------------------

    def _ready(self, rows: list[tuple[str, int]], skip: Collection[str]) -> Thread:
        yield 0.05
        for issue in self._tracker.ready(self.actor):
            if issue.id not in skip:
                rows.append((issue.id, issue.priority))

    def _claim(self, rows: Sequence[tuple[str, int]], won: list[tuple[str, int]]) -> Thread:
        yield 0.05
        for issue_id, priority in rows:
            if not self._world.atomic:
                self._world.mishaps.race(issue_id)
            if self._tracker.claim(issue_id, self.actor, blind=self._world.mutant.blind_swap):
                won.append((issue_id, priority))
            yield 0.01

    def _renew(self, issue_ids: Sequence[IssueId], lost: list[Lost]) -> Thread:
        for issue_id in issue_ids:
            yield 0.05
            held = self._tracker.issues[issue_id].holding
            if not is_held_by(held.assignee, self.actor) and held != Ownership(IN_PROGRESS, ""):
                lost.append(Lost(issue_id))

    def _held(self, dead: CrashedRun, held: list[IssueId]) -> Thread:
        yield 0.05
        for issue in self._tracker.issues.values():
            if is_left_by(dead, issue.id, issue.holding):
                held.append(IssueId(issue.id))

    def _settle(self, settlements: Sequence[Settlement], actor: str) -> Thread:
        found: dict[IssueId, Ownership] = {}
        if not self._world.atomic:
            yield from self._call(lambda: self._look(settlements, found), 0)
        done: list[Settled] = []
        call = self._call(lambda: self._write(settlements, found, actor, done), len(settlements))
        yield from call
        return done

    def _look(self, settlements: Sequence[Settlement], found: dict[IssueId, Ownership]) -> Thread:
        yield 0.05
        for each in settlements:
            found[each.issue_id] = self._tracker.issues[each.issue_id].holding

    def _write(
        self,
        settlements: Sequence[Settlement],
        found: dict[IssueId, Ownership],
        actor: str,
        done: list[Settled],
    ) -> Thread:
        for each in settlements:
            issue = self._tracker.issues[each.issue_id]
            seen = found.get(each.issue_id, issue.holding)
            ruling = rule(each, seen, actor)
            answer = Settled(each, ruling.result, ruling.error)
            if not self._world.atomic:
                self._world.mishaps.race(each.issue_id)
            if actor == self.actor:
                self._world.check.about_to_settle(self._node, each)
            if ruling.write is not None and not self._tracker.swap(
                each.issue_id, seen, ruling.write, actor, blind=self._world.mutant.blind_swap
            ):
                answer = Settled(each, Result.FAILED, "it was changed meanwhile")
            elif self._world.faults.hits("settlement: done, told it failed", 0.02):
                answer = Settled(each, Result.FAILED, "no answer")
            if not self._world.atomic:
                yield 0.02
            done.append(answer)

    def _requeue_unanswered(self) -> Thread:
        back = [Settlement(Action.RELEASE, IssueId(i)) for i in self._unanswered]
        yield from self._call(lambda: self._release(back), len(back))
        self._unanswered = ()

    def _release(self, settlements: Sequence[Settlement]) -> Thread:
        yield 0.05
        for each in settlements:
            held = self._tracker.issues[each.issue_id].holding
            if held == Ownership(IN_PROGRESS, self.actor):
                self._tracker.swap(each.issue_id, held, FREE, self.actor)
