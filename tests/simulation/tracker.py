"""An honest tracker: claims, actors, compare-and-swap, and people who change what they like."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from beads_workers.trackers.settlement_rules import CLOSED, IN_PROGRESS, OPEN, Ownership

if TYPE_CHECKING:
    from tests.simulation.world import World


FREE = Ownership(OPEN, "")


@dataclass(slots=True)
class Issue:
    """``since``: when its holding changed last. ``waits_for``: an issue that comes first.

    ``swaps``: changes that were made by a read and a later write, and not by one transaction.
    """

    id: str
    priority: int
    waits_for: str = ""
    holding: Ownership = FREE
    since: float = 0.0
    revision: int = 0


class Tracker:
    """Every write goes through ``put``, which tells the checkers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.issues: dict[str, Issue] = {}
        self.writes: Counter[str] = Counter()
        """How often who has written."""

    def add(self, issue_id: str, priority: int, waits_for: str) -> None:
        """A new issue, ready or behind another one."""
        self.issues[issue_id] = Issue(issue_id, priority, waits_for, since=self._world.agenda.now)
        self.writes["a person"] += 1

    def put(self, issue_id: str, holding: Ownership, by: str) -> None:
        """Write what holds of an issue; ``by``: the actor who does it."""
        issue = self.issues[issue_id]
        before = issue.holding
        if before == holding:
            return
        issue.holding, issue.since = holding, self._world.agenda.now
        issue.revision += 1
        self.writes[by] += 1
        self._world.check.tracker_changed(issue_id, before, holding, by)
        if holding.status == CLOSED:
            for other in self.issues.values():
                if other.waits_for == issue_id:
                    other.since = issue.since

    def swap(
        self, issue_id: str, seen: Ownership, holding: Ownership, by: str, *, blind: bool = False
    ) -> bool:
        """Compare and swap: write only where it still is as it was seen."""
        if self.issues[issue_id].holding != seen and not blind:
            return False
        self.put(issue_id, holding, by)
        return True

    def claim(self, issue_id: str, actor: str, *, blind: bool = False) -> bool:
        """Like ``bd update ID --claim``: only where nobody else has it."""
        held = self.issues[issue_id].holding
        free = held.status == OPEN and held.assignee in ("", actor)
        if held == Ownership(IN_PROGRESS, actor):
            return True  # A claim by the same actor succeeds again.
        if not free and not (blind and held.status == IN_PROGRESS):
            return False
        self.put(issue_id, Ownership(IN_PROGRESS, actor), actor)
        return True

    def is_ready(self, issue: Issue, actor: str) -> bool:
        """Open, held back by nothing, and nobody else's."""
        if issue.holding.status != OPEN or issue.holding.assignee not in ("", actor):
            return False
        first = self.issues.get(issue.waits_for)
        return first is None or first.holding.status == CLOSED

    def ready(self, actor: str) -> list[Issue]:
        """All that ``actor`` may take, most urgent first."""
        found = [i for i in self.issues.values() if self.is_ready(i, actor)]
        return sorted(found, key=lambda issue: issue.priority)

    # --- what a worker does by itself ----------------------------------------------------------

    def set_in_progress(self, issue_id: str, actor: str) -> None:
        """``bd update ID --status=in_progress``: no claim, no check; it reopens what is closed."""
        self.put(
            issue_id,
            Ownership(IN_PROGRESS, self.issues[issue_id].holding.assignee),
            f"{actor} (bd)",
        )

    def close(self, issue_id: str, actor: str) -> bool:
        """``bd close ID``: refused where somebody else holds it."""
        held = self.issues[issue_id].holding
        if held.status == CLOSED:
            return True
        mine = held.assignee in ("", actor) or actor.startswith(f"{held.assignee}/")
        if not mine:
            return False
        self.put(issue_id, Ownership(CLOSED, actor), f"{actor} (bd)")
        return True
