"""Answers to questions of agents: in the tracker already, or to be written there by the fleet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import IssueId, value
from beads_workers.core.base.source import Remark
from beads_workers.core.control import Control
from beads_workers.core.requests import issue_ids
from beads_workers.core.schedule.events import FleetRequest, Ticket

_CHOICE = re.compile(r"\s*(\d+)\. ", re.MULTILINE)


def no_such_choice(question: str, answer: str) -> str:
    """Return why an answer chooses nothing: a number that is none of the question's choices; ""
    if it does, or is of other words."""
    numbers = [int(number) for number in _CHOICE.findall(question)]
    chosen = [part.strip() for part in re.split(r"[,;\n]", answer)]
    if not numbers or not all(each.isdecimal() for each in chosen):
        return ""
    wrong = next((each for each in chosen if int(each) not in numbers), "")
    return f"there is no choice {wrong}: {min(numbers)} to {max(numbers)}" if wrong else ""


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
        elif asked := [e for e in parts.questions.waiting() if e.issue_id in self.issue_ids]:
            entry = asked[0].retry_entry
            if wrong := no_such_choice(entry.question if entry else "", self.text):
                fleet.refuse(self.ticket, wrong)
                return
            parts.questions.write(self.ticket, Remark(self.issue_ids[0], self.text, self.author))
            return
        else:
            unknown = [*self.issue_ids]
        fleet.done(self.ticket, self.issue_ids, unknown, "answered", "no question is open")


REQUEST = AnsweredInTracker
