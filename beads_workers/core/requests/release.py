"""Issues that this run is to leave alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beads_workers.core.base.model import IssueId, value
from beads_workers.core.control import Control
from beads_workers.core.requests import issue_ids
from beads_workers.core.schedule.events import FleetRequest, Ticket


@value
class ReleaseAskedFor(FleetRequest):
    """A person releases these issues from the fleet."""

    issue_ids: tuple[IssueId, ...]

    @classmethod
    def read(cls, data: Mapping[str, Any], ticket: Ticket) -> ReleaseAskedFor:
        """See ``FleetRequest``."""
        return cls(ticket, issue_ids(data))

    def answer(self, fleet: Control) -> None:
        """Put the issues on hold: their attempts end, and this run leaves them until ``retry``."""
        unknown = [i for i in self.issue_ids if not fleet.release_one(i)]
        fleet.done(self.ticket, self.issue_ids, unknown, "on hold", "not in flight here")


REQUEST = ReleaseAskedFor
