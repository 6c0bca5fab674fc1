"""Answers to questions of agents: in the tracker already, or to be written there by the fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import IssueId, value
from beads_workers.core.base.source import Remark
from beads_workers.core.control import Control
from beads_workers.core.requests import issue_ids
from beads_workers.core.schedule.events import FleetRequest, Ticket


@value
class AnsweredInTracker(FleetRequest):
    """A person answers these issues.

    ``text``: "" if each has a comment in the tracker already; else the answer to one issue, which
    the fleet writes there. ``author``: who says so.
    """

    issue_ids: tuple[IssueId, ...]
    text: str = ""
    author: str = ""

    @classmethod
    def read(cls, data: Mapping[str, Any], ticket: Ticket) -> AnsweredInTracker:
        """See ``FleetRequest``."""
        text, author = data.get("text", ""), data.get("author", "")
        if not (isinstance(text, str) and isinstance(author, str)):
            raise ProtocolError("text and author must be texts")
        if text.strip() and not author.strip():
            raise ProtocolError("an answer needs the name of its author")
        found = issue_ids(data)
        if text.strip() and len(found) != 1:
            raise ProtocolError("an answer with a text is for one issue")
        return cls(ticket, found, text.strip(), author.strip())

    def answer(self, fleet: Control) -> None:
        """Have the issues go on: an attempt reads its answer from the comments."""
        parts = fleet.parts
        parts.round_trips.wake()
        if not self.text:
            goes_on = parts.retry_state.answered
            unknown = [each for each in self.issue_ids if not goes_on(each, commented=True)]
        elif any(issue.issue_id in self.issue_ids for issue in parts.questions.waiting()):
            parts.questions.write(self.ticket, Remark(self.issue_ids[0], self.text, self.author))
            return
        else:
            unknown = [*self.issue_ids]
        fleet.done(self.ticket, self.issue_ids, unknown, "answered", "no question is open")


REQUEST = AnsweredInTracker
