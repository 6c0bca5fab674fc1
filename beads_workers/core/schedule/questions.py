"""Issues that wait for a person: what ends the wait, above all the comment that answers a question.

A question parks its issue (``policy.AskPerson``): in the tracker it is blocked, in nobody's name,
with the question in its note and the label ``needs-answer``. A comment that is newer than the
question answers it, whoever writes it and with whatever program; so does a person who opens the
issue again. The next attempt goes on in the same worktree and session, and reads the answer from
the comments.

Whatever an issue waits for, it waits no longer once a person has closed or deleted it, taken it, or
given it another status: it is then theirs, and its branch stays as it is.
Source: docs/SEMANTICS.md, "Questions", "What ends a wait".
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import (
    Action,
    Conversation,
    Remark,
    Settlement,
    answers,
    why_over,
)
from beads_workers.core.base.states import IssueState
from beads_workers.core.records.issues import Issue, Standing
from beads_workers.core.schedule.commands import Answer
from beads_workers.core.schedule.effects import Effects
from beads_workers.core.schedule.events import Ticket
from beads_workers.core.schedule.retry import RetryState
from beads_workers.core.schedule.round_trips import RoundTrips

LISTEN = "listen for answers"
"""Timer key: the comments of issues that wait for an answer are read again."""

_AT_REST = {
    Standing.ASKED: IssueState.QUARANTINED,
    Standing.AWAITS_APPROVAL: IssueState.SHELVED,
    Standing.IN_REVIEW: IssueState.SHELVED,
    Standing.UNCLOSED: IssueState.SHELVED,
    Standing.QUARANTINED: IssueState.QUARANTINED,
    Standing.ON_HOLD: IssueState.ENQUEUED,
}
"""The standings of issues that wait for a person, with the state in which the tracker knows it."""


class Questions:
    """Says which issues are to be looked at, and takes in what was read."""

    def __init__(self, effects: Effects, retry_state: RetryState, round_trips: RoundTrips) -> None:
        self._effects = effects
        self._round_trips = round_trips
        self._issues = effects.issues
        self._retry_state = retry_state
        self._listen_at = 0.0
        self._looked = 0
        self._remarks: dict[Remark, tuple[Ticket, ...]] = {}
        """Answers that are not in the tracker yet, with the requests that wait for each."""

    def waiting(self) -> list[Issue]:
        """Return the issues that wait for an answer, the one that has waited longest first."""
        return list(filter(_is_at_rest, self._issues.standing(Standing.ASKED)))

    def listen_now(self) -> None:
        """Have the next round trip read them: somebody may have written, or the run may end."""
        self._listen_at = 0.0

    def due(self) -> tuple[IssueId, ...]:
        """Return the issues to be looked at by a round trip that begins now: all that
        wait for a person, so many at a time."""
        found = [issue for standing in _AT_REST for issue in self._issues.standing(standing)]
        now = self._effects.now
        if not (waiting := list(filter(_is_at_rest, found))):
            self._listen_at = now + limits.LISTEN_SECONDS
            return ()
        if now < self._listen_at:
            self._effects.timers.set_earlier(LISTEN, self._listen_at)
            return ()
        self._listen_at = now + limits.LISTEN_SECONDS
        self._effects.timers.set(LISTEN, self._listen_at)
        # Those first that were not among the last ones.
        turn, most = self._looked % len(waiting), limits.LISTEN_ISSUES_MAX
        self._looked = turn + most if len(waiting) > most else 0
        return tuple(IssueId(i.issue_id) for i in (waiting[turn:] + waiting[:turn])[:most])

    def write(self, ticket: Ticket, remark: Remark) -> None:
        """Have an answer written into the tracker; the request is answered once it is there."""
        self._remarks[remark] = (*self._remarks.get(remark, ()), ticket)

    def to_write(self) -> tuple[Remark, ...]:
        """Return the answers to write now: each has to be newer than its question, in seconds.

        The same round trip reads the comments afterwards.
        """
        if not self._remarks:
            return ()
        last = max(_asked_at(issue) for issue in (*self.waiting(), Issue("")))
        if self._effects.epoch < floor(last) + 1:
            self._effects.timers.set_earlier(LISTEN, self._effects.now + 1.0)
            return ()
        self._listen_at = 0.0
        return tuple(self._remarks)

    def written(self, remarks: Sequence[tuple[Remark, str]]) -> None:
        """Say which answers the tracker has; what could not be written is left to the person."""
        for remark, error in remarks:
            text = "" if error else f"answered: {remark.issue_id}"
            for ticket in self._remarks.pop(remark):
                self._effects.ask(Answer(ticket, text, error))

    def read(self, conversations: Sequence[Conversation]) -> None:
        """Take in what was read: an answered issue is opened again, and goes on.
        One that waits no longer is looked at once more, which forgets it, and takes its label off.
        """
        for each in conversations:
            issue = self._issues.known.get(each.issue_id)
            if issue is None or not _is_at_rest(issue):
                continue
            asks, on_hold = (issue.standing is s for s in (Standing.ASKED, Standing.ON_HOLD))
            if asks and each.status and answers(each.comments, _asked_at(issue)):
                # 'bd human respond' closes what it answers, and may do so after this.
                self._retry_state.answered(each.issue_id, commented=True)
            elif asks and each.status == "open" and not each.assignee:
                self._retry_state.answered(each.issue_id, commented=False)
            elif why_over(each.status, each.assignee, or_open=on_hold):
                look = Settlement(Action.CONFIRM, each.issue_id, read_first=True, shelved=True)
                self._round_trips.enqueue(look)


def _is_at_rest(issue: Issue) -> bool:
    return issue.state is _AT_REST.get(issue.standing) and issue.pending is None


def _asked_at(issue: Issue) -> float:
    return issue.retry_entry.asked_at if issue.retry_entry is not None else 0.0
