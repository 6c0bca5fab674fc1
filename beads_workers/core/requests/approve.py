"""A person's OK to land finished branches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import IssueId, value
from beads_workers.core.control import Control
from beads_workers.core.schedule.events import FleetRequest, Ticket


@value
class ApprovedByPerson(FleetRequest):
    """A person has looked at these branches, each at the commit that is named, and wants them to
    land. ``commits``: issue to commit, or to its first characters."""

    commits: tuple[tuple[IssueId, str], ...]

    @classmethod
    def read(cls, data: Mapping[str, Any], ticket: Ticket) -> ApprovedByPerson:
        """See ``FleetRequest``."""
        commits = data.get("commits")
        if not isinstance(commits, dict) or not commits:
            raise ProtocolError("commits must be an object: issue to commit")
        if not all(
            isinstance(each, str) and len(each) >= SHA_CHARS_MIN for each in commits.values()
        ):
            raise ProtocolError(f"each commit needs {SHA_CHARS_MIN} characters")
        return cls(ticket, tuple((IssueId(key), each) for key, each in commits.items()))

    def answer(self, fleet: Control) -> None:
        """Land each branch whose newest commit is the one that the person has seen."""
        landings = fleet.parts.landings
        unknown = [each for each, commit in self.commits if not landings.approve(each, commit)]
        fleet.scheduler.reschedule()
        fleet.parts.round_trips.wake()
        asked = tuple(each for each, _ in self.commits)
        why = "no branch awaits approval at that commit; 'beads-workers diff ISSUE' shows it"
        fleet.done(self.ticket, asked, unknown, "approved", why)


SHA_CHARS_MIN = 7

REQUEST = ApprovedByPerson
