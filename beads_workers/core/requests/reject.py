"""A person's remarks on a finished branch, which goes back to its agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import IssueId, value
from beads_workers.core.control import Control
from beads_workers.core.requests import issue_ids
from beads_workers.core.schedule.events import FleetRequest, Ticket


@value
class RejectedByPerson(FleetRequest):
    """A person wants another attempt at these branches, with remarks."""

    issue_ids: tuple[IssueId, ...]
    text: str

    @classmethod
    def read(cls, data: Mapping[str, Any], ticket: Ticket) -> RejectedByPerson:
        """See ``FleetRequest``."""
        text = data.get("text")
        if not isinstance(text, str) or not text.strip():
            raise ProtocolError("text must say what is wrong")
        return cls(ticket, issue_ids(data), text.strip())

    def answer(self, fleet: Control) -> None:
        """Send each branch back to the session that made it, with the remarks."""
        landings = fleet.parts.landings
        unknown = [each for each in self.issue_ids if not landings.reject(each, self.text)]
        fleet.scheduler.reschedule()
        fleet.parts.round_trips.wake()
        why = "no branch awaits approval or is in review"
        fleet.done(self.ticket, self.issue_ids, unknown, "rejected", why)


REQUEST = RejectedByPerson
