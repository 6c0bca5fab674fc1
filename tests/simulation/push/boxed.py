"""The fleet's view of a box: ``spool`` is our own disk, ``queue`` is asked over a network."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from beads_workers.core.base.model import IssueId, Job, OutcomeKind
from beads_workers.core.base.source import (
    Action,
    CrashedRun,
    Renewed,
    Result,
    Settled,
    Settlement,
    SourceError,
    Taken,
)
from tests.simulation.agenda import Thread
from tests.simulation.push.box import ANSWERED, Arrival, Box
from tests.simulation.source import Source

if TYPE_CHECKING:
    from tests.simulation.push.nodes import PushNode
    from tests.simulation.push.world import PushWorld


class Effects:
    """What becomes of arrivals, whoever carries it over to the box, and how."""

    def __init__(self, node: PushNode, box: Box, actor: str) -> None:
        self._node = node
        self._box = box
        self._actor = actor
        self.known: set[str] = set()
        """What the core has been given, and not settled."""

    def take(self, limit: int, skip: Collection[IssueId]) -> list[Job]:
        """The next ones; first those of which we never heard that they are ours."""
        for arrival in self._box.held_by_others(self._actor):
            # Of a run that took it, never heard of that, and could not requeue it at its end.
            self._box.requeue(arrival)
        mine = [a for a in self._box.held_by(self._actor) if a.id not in self.known | set(skip)]
        for arrival in self._box.waiting(frozenset(skip))[: max(0, limit - len(mine))]:
            self._box.hold(arrival, self._actor)
            mine.append(arrival)
        return [Job("sim", IssueId(each.id), each.id) for each in mine[:limit]]

    def settle(self, settlement: Settlement) -> Settled:
        """One of ours is over, or goes back; a second time nothing is changed."""
        arrival = self._box.arrivals.get(str(settlement.issue_id))
        if arrival is None or (arrival.state != ANSWERED and arrival.holder != self._actor):
            return Settled(settlement, Result.NOT_OURS, "somebody else has it")
        outcome = settlement.outcome
        ended = outcome is not None and outcome.kind is not OutcomeKind.CANCELLED
        if settlement.action is Action.RELEASE and not ended:
            if arrival.state != ANSWERED:
                self._box.requeue(arrival)
        else:
            self._box.answer(arrival, outcome.kind.value if outcome else settlement.action.value)
        return Settled(settlement, Result.APPLIED)

    def recover(self, dead: CrashedRun) -> list[Settled]:
        """What a crashed run had: what its journal calls done is answered, whatever the box says of
        it, and everything else waits again."""
        if self._node.world.mutant.forgets_in_flight:
            return []
        settled = [self._ended(Action.CLOSE, issue_id, dead) for issue_id in dead.unclosed]
        settled += [
            self._ended(Action.QUARANTINE, issue_id, dead) for issue_id, _ in dead.quarantined
        ]
        for arrival in self._box.held_by(dead.actor):
            self._box.requeue(arrival)
        return settled

    def _ended(self, action: Action, issue_id: IssueId, dead: CrashedRun) -> Settled:
        arrival = self._box.arrivals.get(str(issue_id))
        if arrival is None or arrival.holder not in ("", dead.actor):
            return Settled(Settlement(action, issue_id), Result.NOT_OURS)
        if arrival.state != ANSWERED:
            self._box.answer(arrival, action.value)
        return Settled(Settlement(action, issue_id), Result.APPLIED)

    def arrival(self, key: str) -> Arrival:
        """It, as the box has it."""
        return self._box.arrivals[key]


class SpoolSource(Source):
    """Never blocks: a turn is carried out where it is begun."""

    _world: PushWorld

    def __init__(self, node: PushNode, actor: str) -> None:
        super().__init__(node, actor)
        self._effects = Effects(node, node.world.box, actor)

    def take_now(self, limit: int, skip: Collection[IssueId]) -> Taken:
        """``Source.take``."""
        jobs = self._effects.take(limit, skip)
        self._effects.known |= {str(job.issue_id) for job in jobs}
        return Taken(tuple(jobs))

    def settle_now(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """``Source.settle``."""
        for each in settlements:
            self._world.check.about_to_settle(self._node, each)
        self._effects.known -= {str(each.issue_id) for each in settlements}
        return [self._effects.settle(each) for each in settlements]

    def recover(self, dead: CrashedRun) -> Thread:
        """``Source.recover``, in the tracker thread."""
        yield 0.001
        self._world.point("before a spool is recovered")
        settled = self._effects.recover(dead)
        yield 0.0005
        # The run is marked as settled next, and nobody asks for it again.
        self._world.box.sync()
        self._world.point("after a spool was recovered")
        return settled

    def close(self) -> Thread:
        """Nothing is open."""
        yield 0.0


class QueueSource(Source):
    """Asked by the tracker thread; each call is one transaction elsewhere, whose answer may be
    lost."""

    _world: PushWorld

    def __init__(self, node: PushNode, actor: str) -> None:
        super().__init__(node, actor)
        self._effects = Effects(node, node.world.box, actor)

    def take(self, limit: int, skip: Collection[IssueId]) -> Thread:
        """``Source.take``."""
        jobs: list[Job] = []

        def move() -> Thread:
            jobs.extend(self._effects.take(limit, skip))
            yield 0.0

        yield from self._call(move, limit)
        self._effects.known |= {str(job.issue_id) for job in jobs}
        return Taken(tuple(jobs))

    def settle(self, settlements: Sequence[Settlement]) -> Thread:
        """``Source.settle``."""
        done: list[Settled] = []

        def write() -> Thread:
            for each in settlements:
                self._world.check.about_to_settle(self._node, each)
                done.append(self._effects.settle(each))
            yield 0.0

        yield from self._call(write, len(settlements))
        self._effects.known -= {str(each.issue_id) for each in settlements}
        return done

    def renew(self, issue_ids: Sequence[IssueId]) -> Thread:
        """There are no leases."""
        yield 0.0
        return Renewed()

    def recover(self, dead: CrashedRun) -> Thread:
        """``Source.recover``."""
        settled: list[Settled] = []

        def write() -> Thread:
            settled.extend(self._effects.recover(dead))
            yield 0.0

        yield from self._call(write, 0)
        return settled

    def close(self) -> Thread:
        """What we have, and never heard of, goes back."""

        def write() -> Thread:
            for arrival in self._world.box.held_by(self.actor):
                if arrival.id not in self._effects.known:
                    self._world.box.requeue(arrival)
            yield 0.0

        try:
            yield from self._call(write, 0)
        except SourceError:
            pass  # The next start finds it.
