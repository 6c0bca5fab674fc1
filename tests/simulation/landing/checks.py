"""What must hold besides, where branches land."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from beads_workers.core.base import limits
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry
from beads_workers.core.schedule.events import Event, ResumeAsked
from beads_workers.trackers.settlement_rules import CLOSED, Ownership
from tests.simulation.checkers import Checks, Violation
from tests.simulation.nodes import ACTOR

if TYPE_CHECKING:
    from tests.simulation.landing.world import LandingWorld
    from tests.simulation.nodes import Node


@dataclass(slots=True)
class Unmade:
    """``issues``: without a worktree since another attempt had one. ``begun_at``: of the last
    attempt, or the end of the last one without."""

    node: Node | None = None
    issues: set[str] = field(default_factory=set)
    begun_at: float = 0.0


class LandingChecks(Checks):
    """21: closed means landed. 22: nothing lands twice, and what is done is not done again. 24: an
    attempt without a worktree is not charged, and several of them end the beginning of others."""

    _world: LandingWorld

    def __init__(self, world: LandingWorld) -> None:
        super().__init__(world)
        self._unmade = Unmade()
        self._heads: dict[str, list[str]] = {}
        self._by_strangers: set[str] = set()
        self._done: dict[str, tuple[Node, int]] = {}
        """What waits to land, unless the lander or a person said otherwise; where that stands."""

    def handles(self, node: Node, event: Event) -> None:
        """The core is about to be told this."""
        super().handles(node, event)
        if isinstance(event, ResumeAsked):
            self._unmade = Unmade(node)

    def committed(self, issue_id: str, head: str) -> None:
        """A worker of ours has committed what its task left."""
        self._heads.setdefault(issue_id, []).append(head)

    def refused(self, issue_id: str) -> None:
        """The lander has said that its branch cannot land."""
        self._done.pop(issue_id, None)

    def disturbed(self, issue_id: str) -> None:
        """A person changed it."""
        super().disturbed(issue_id)
        self._done.pop(issue_id, None)

    def given_back_by_hand(self, issue_ids: Iterable[str]) -> None:
        """A person wants them done again."""
        issue_ids = list(issue_ids)
        super().given_back_by_hand(issue_ids)
        for issue_id in issue_ids:
            self._done.pop(issue_id, None)

    def power_cut(self) -> None:
        """What was not on disk is not known any more."""
        kept = {i: (n, at) for i, (n, at) in self._done.items() if at <= n.journal.synced}
        self._done = kept

    def work_succeeded(self, issue_id: str) -> None:
        """A worker that is not ours has no branch to show: what it did is closed as it is."""
        super().work_succeeded(issue_id)
        processes = map(self._world.processes.get, self.of(issue_id).at_work)
        if any(process is not None and not process.token for process in processes):
            self._by_strangers.add(issue_id)

    def tracker_changed(self, issue_id: str, before: Ownership, after: Ownership, by: str) -> None:
        """Somebody wrote to the tracker."""
        super().tracker_changed(issue_id, before, after, by)
        if not by.startswith(ACTOR):
            self._done.pop(issue_id, None)
        if not (by.startswith(ACTOR) and after.status == CLOSED):
            return
        heads = self._heads.get(issue_id, [])
        landed = self._world.repository.landed
        if issue_id not in self._by_strangers and not any(head in landed for head in heads):
            raise Violation(21, f"{issue_id} is closed, and none of {heads} has landed")

    def written(self, node: Node, entry: Entry, offset: int) -> None:
        """A record is in the file now."""
        super().written(node, entry, offset)
        record = entry.record
        if isinstance(record, rec.Finished) and record.verdict == "land":
            if not self.of(record.issue_id).disturbed:  # A person may want it done again.
                self._done[record.issue_id] = node, offset
        elif isinstance(record, rec.Started) and record.issue_id in self._done:
            raise Violation(22, f"{record.issue_id} is done, waits to land, and is begun again")
        self._worktrees(node, entry)
        if isinstance(record, rec.BranchLanded):
            self._done.pop(record.issue_id, None)
            heads, landed = self._heads.get(record.issue_id, []), self._world.repository.landed
            known = {self._world.repository.commit_of(head) for head in heads if head in landed}
            if record.commit not in known:
                raise Violation(21, f"{record.issue_id}: {record.commit} is not on the branch")

    def _worktrees(self, node: Node, entry: Entry) -> None:
        if self._unmade.node is not node:
            self._unmade = Unmade(node)
        unmade, record = self._unmade, entry.record
        match record:
            case rec.Started() if len(unmade.issues) >= limits.UNPREPARED_ISSUES:
                if entry.elapsed - unmade.begun_at < limits.UNPREPARED_TRIAL_SECONDS - 1:
                    raise Violation(24, f"{record.issue_id} is begun: {unmade.issues} had none")
                unmade.begun_at = entry.elapsed
            case rec.Started():
                unmade.begun_at = entry.elapsed
            case rec.Finished() if record.error.startswith("no worktree"):
                unmade.issues.add(record.issue_id)
                unmade.begun_at = max(unmade.begun_at, entry.elapsed)
                struck, again = len(unmade.issues) >= limits.UNPREPARED_ISSUES, record.verdict
                if record.charged >= record.attempt:
                    raise Violation(24, f"{record.issue_id}: it had no worktree, and was charged")
                if struck and (again != "requeue" or record.delay_seconds):
                    raise Violation(24, f"{record.issue_id}: it counts, and none can be made")
                if not struck and again == "requeue" and not record.unprepared:
                    raise Violation(24, f"{record.issue_id}: it had no worktree, uncounted")
            case rec.Finished() if record.outcome in ("success", "error", "timeout"):
                unmade.issues.clear()
            case rec.DegradedEnded("worktrees"):
                unmade.issues.clear()
            case _:
                pass

    def turn_over(self, node: Node) -> None:
        """A turn of the loop."""
        super().turn_over(node)
        landed = self._world.repository.landed
        if len(landed) != len(set(landed)):
            raise Violation(22, f"something landed twice: {landed}")
