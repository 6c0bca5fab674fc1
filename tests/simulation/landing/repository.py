"""The repository of a world: what is on the integration branch, and which branches do not fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

CONFLICT, RED = "conflict", "verify"


@dataclass(slots=True)
class Repository:
    """It survives everything. ``landed``: heads in their order; ``made``: the issue of each head.

    What fits is drawn once for each pair of heads, so that a branch that was mended may fit.
    """

    random: Random
    landed: list[str] = field(default_factory=list)
    made: dict[str, str] = field(default_factory=dict)
    red_tip: bool = False
    _pairs: dict[tuple[str, str], str] = field(default_factory=dict)
    _broken: dict[str, bool] = field(default_factory=dict)

    def commit(self, issue_id: str) -> str:
        """The work of an attempt is committed; gives its head."""
        head = f"h{len(self.made) + 1}"
        self.made[head] = issue_id
        return head

    def trouble(self, head: str) -> str:
        """Why it cannot land on what has landed: ``CONFLICT``, ``RED``, or "" where it can."""
        for other in self.landed[-6:]:
            if why := self._between(head, other):
                return why
        if self._broken.setdefault(head, self.random.random() < 0.05):
            return RED
        return ""

    def land(self, head: str) -> str:
        """It is on the branch from now on; gives the commit."""
        self.landed.append(head)
        return self.commit_of(head)

    def commit_of(self, head: str) -> str:
        """By which it landed."""
        return f"c-{head}"

    def _between(self, head: str, other: str) -> str:
        drawn = self.random.random()
        found = CONFLICT if drawn < 0.05 else RED if drawn < 0.07 else ""
        return self._pairs.setdefault((head, other), found)
