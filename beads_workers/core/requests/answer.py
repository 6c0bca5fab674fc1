"""Answers to questions of agents, which people have written into the tracker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beads_workers.core.control import Control
from beads_workers.core.events import FleetRequest, Ticket
from beads_workers.core.model import IssueId, value
from beads_workers.core.requests import issue_ids


@value
class AnsweredInTracker(FleetRequest):
    """A person has commented on these issues: their comments are to be read now."""

    issue_ids: tuple[IssueId, ...]

    @classmethod
    def read(cls, data: Mapping[str, Any], ticket: Ticket) -> AnsweredInTracker:
        """See ``FleetRequest``."""
        return cls(ticket, issue_ids(data))

    def answer(self, fleet: Control) -> None:
        """Read the comments now; each issue that has an answer goes on."""
        questions = fleet.parts.questions
        waiting = {issue.issue_id for issue in questions.waiting()}
        unknown = [each for each in self.issue_ids if each not in waiting]
        questions.hurry()
        fleet.parts.round_trips.wake()
        fleet.done(self.ticket, self.issue_ids, unknown, "answered", "no question is open")


REQUEST = AnsweredInTracker
