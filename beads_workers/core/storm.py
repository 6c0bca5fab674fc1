"""Spawn storms: everything fails at its start, so the fault is not with the issues.

Nobody is logged in, or it is the wrong folder: without a brake a fleet would burn through every
attempt of a whole backlog within seconds. Source: docs/PROTOCOL.md, "Spawn storms".
"""

from __future__ import annotations

from collections.abc import Container

from beads_workers.core import limits
from beads_workers.core.desk import Desk
from beads_workers.core.issues import Standing
from beads_workers.core.jobs import IssueId
from beads_workers.core.lane import Lane
from beads_workers.core.ledger import Ledger
from beads_workers.core.outcomes import Outcome, OutcomeKind
from beads_workers.core.records import Forgiven
from beads_workers.core.source import Action, Settlement
from beads_workers.core.text import printable

FAILURES = (OutcomeKind.ERROR, OutcomeKind.TIMEOUT, OutcomeKind.NOT_FOUND)
"""What a task says by failing. A worker that dies has a brake of its own (``crew``); a retry and a
cancellation are no failures."""


class Storm:
    """Sees every attempt end. ``raging``: until ``calm``, failures at the start are not charged."""

    def __init__(self, desk: Desk, lane: Lane, ledger: Ledger) -> None:
        self._desk = desk
        self._lane = lane
        self._ledger = ledger
        self._charged: dict[IssueId, int] = {}
        self._refuted = False
        self._error = ""
        self.raging = False

    def strikes(self, issue_id: IssueId, outcome: Outcome, seconds: float) -> bool:
        """An attempt that took so long has ended; True: a storm ended it, it is not to be charged.

        Then say ``forgive`` when it has been given back.
        """
        if outcome.kind is OutcomeKind.SUCCESS:
            # Whatever fails from now on: the command can be run here, and does its work.
            self._refuted, self.raging = True, False
            self._charged.clear()
        if self._refuted or outcome.kind not in FAILURES or seconds >= limits.STORM_SECONDS:
            return False
        self._charged.setdefault(issue_id, 0)
        self._error = outcome.error
        self.raging = self.raging or len(self._charged) >= limits.STORM_ISSUES
        if not self.raging:
            self._charged[issue_id] += 1
        return self.raging

    def forgive(self, held: Container[IssueId]) -> None:
        """Give back what was charged to the issues that a storm has struck, and say so once.

        ``held``: jobs whose settlement is still under way; theirs follows by itself.
        """
        for issue_id, attempts in self._charged.items():
            forgiven = self._ledger.forgive(issue_id, attempts)
            if forgiven is None:
                continue
            stood, charged = forgiven
            self._desk.write(Forgiven(issue_id, charged))
            if stood is Standing.SET_ASIDE and issue_id not in held:
                self._lane.owe(Settlement(Action.REOPEN, issue_id))
        self._charged.clear()

    def retried(self, issue_id: IssueId) -> None:
        """A person gave it a clean history: nothing is left to be given back."""
        if issue_id in self._charged:
            self._charged[issue_id] = 0

    def calm(self) -> None:
        """A person says that it is over: one more chance, and the count begins anew."""
        self.raging = False
        self._charged.clear()

    def text(self) -> str:
        """What happened, for people: one sentence, fit for any terminal."""
        return (
            f"not logged in, or the wrong folder? {limits.STORM_ISSUES} different issues failed"
            f" within {limits.STORM_SECONDS:.0f} s of their start and none has succeeded. Nothing"
            f" was charged to them; the last error: {printable(self._error, ERROR_WIDTH) or 'none'}"
        )


ERROR_WIDTH = 100
"""Of the last error in the one message, in columns."""
