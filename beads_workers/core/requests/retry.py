"""Another try for issues that are quarantined, cooling down or on hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beads_workers.core.base.causes import NO_SUCH_CAUSE, is_of
from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import IssueId, value
from beads_workers.core.base.states import IssueState, RunState
from beads_workers.core.control import Control
from beads_workers.core.records.issues import Standing
from beads_workers.core.requests import issue_ids
from beads_workers.core.schedule.commands import Answer
from beads_workers.core.schedule.events import FleetRequest, Ticket
from beads_workers.core.schedule.inflight import RETRIED

IN_REVIEW = "in review: 'reject' sends it back, and whoever closes its pull request ends it"


@value
class RetryAskedFor(FleetRequest):
    """A person wants these issues tried again, now, with a clean history; or all
    ``quarantined``, or those of them whose last error is of this ``cause``."""

    issue_ids: tuple[IssueId, ...]
    quarantined: bool = False
    cause: str = ""

    @classmethod
    def read(cls, data: Mapping[str, Any], ticket: Ticket) -> RetryAskedFor:
        """See ``FleetRequest``."""
        cause = data.get("cause", "")
        if not isinstance(cause, str):
            raise ProtocolError("cause must be a text")
        everything = data.get("quarantined") is True or bool(cause.strip())
        return cls(ticket, () if everything else issue_ids(data), everything, cause)

    def answer(self, fleet: Control) -> None:
        """Try the issues again that are quarantined, cooling down or on hold."""
        if fleet.parts.state is RunState.ENDED:
            # The run's last record may wait for room on the disk; the tracker is told nothing any
            # more.
            fleet.refuse(self.ticket)
            return
        asked = self.issue_ids
        if self.quarantined:
            found = fleet.parts.effects.issues.standing(Standing.QUARANTINED)
            asked = tuple(
                IssueId(each.issue_id)
                for each in found
                if not self.cause or is_of(self.cause, each.error, each.issue_id)
            )
            if found and not asked:
                fleet.parts.effects.ask(Answer(self.ticket, error=NO_SUCH_CAUSE, not_found=True))
                return
            if not asked:
                fleet.say(self.ticket, "nothing is quarantined")
                return
        for issue_id in asked:
            fleet.parts.landings.retried(issue_id)
        unknown = [i for i in asked if not _retry_one(fleet, i)]
        reviewed = {i.issue_id for i in fleet.parts.effects.issues.standing(Standing.IN_REVIEW)}
        why = IN_REVIEW if reviewed.intersection(unknown) else "nothing to retry"
        fleet.scheduler.reschedule()
        fleet.parts.round_trips.wake()
        fleet.done(self.ticket, asked, unknown, "will be retried", why)


REQUEST = RetryAskedFor


def _retry_one(fleet: Control, issue_id: IssueId) -> bool:
    in_flight, given_back = fleet.parts.tasks.in_flight.get(issue_id), False
    if in_flight is not None and in_flight.issue.state is IssueState.ORPHANED:
        given_back = fleet.connections.give_back(in_flight, RETRIED)
    if not fleet.parts.retry_state.retry(issue_id) and not given_back:
        return False
    fleet.parts.breaker.retried(issue_id)
    return True
