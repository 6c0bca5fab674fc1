"""Questions of agents: an issue that waits for an answer, and the comment that ends the wait.

A question parks its issue (``policy.AskPerson``): in the tracker it is blocked, in nobody's name,
with the question in its note and the label ``needs-answer``. A comment that is newer than the
question answers it, whoever writes it and with whatever program; so does a person who opens the
issue again. The next attempt goes on in the same worktree and session, and reads the answer from
the comments.
Source: docs/SEMANTICS.md, "Questions".
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

from beads_workers.core import limits
from beads_workers.core.commands import Answer
from beads_workers.core.effects import Effects
from beads_workers.core.events import Ticket
from beads_workers.core.issues import Issue, Standing
from beads_workers.core.journal import SettledRecord
from beads_workers.core.model import IssueId
from beads_workers.core.retry import RetryState
from beads_workers.core.source import Action, Conversation, Remark, Result, answers
from beads_workers.core.states import IssueState

LISTEN = "listen for answers"
"""Timer key: the comments of issues that wait for an answer are read again."""

CLOSED = "closed"
"""Status of a closed issue, in every tracker that has comments."""


class Questions:
    """Says whose comments are to be read, and takes in what was read."""

    def __init__(self, effects: Effects, retry_state: RetryState) -> None:
        self._effects = effects
        self._issues = effects.issues
        self._retry_state = retry_state
        self._listen_at = 0.0
        self._remarks: dict[Remark, tuple[Ticket, ...]] = {}
        """Answers that are not in the tracker yet, with the requests that wait for each."""

    def waiting(self) -> list[Issue]:
        """Return the issues that wait for an answer, the one that has waited longest first."""
        found = self._issues.standing(Standing.ASKED)
        return [issue for issue in found if issue.state is IssueState.QUARANTINED]

    def due(self) -> tuple[IssueId, ...]:
        """Return the issues whose comments are to be read by a round trip that begins now."""
        if not (waiting := self.waiting()):
            return ()
        now = self._effects.now
        if now < self._listen_at:
            self._effects.timers.set_earlier(LISTEN, self._listen_at)
            return ()
        self._listen_at = now + limits.LISTEN_SECONDS
        self._effects.timers.set(LISTEN, self._listen_at)
        return tuple(IssueId(issue.issue_id) for issue in waiting[: limits.LISTEN_ISSUES_MAX])

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
        """Take in the comments: an answered issue is opened again, and goes on."""
        for each in conversations:
            issue = self._issues.known.get(each.issue_id)
            if issue is None or issue.standing is not Standing.ASKED:
                continue
            if answers(each.comments, _asked_at(issue)):
                # 'bd human respond' closes what it answers, and may do so after this.
                self._retry_state.answered(each.issue_id, commented=True)
            elif each.status == CLOSED:
                # Whoever closed it without a word has no use for an answer.
                why = Result.NOT_OURS.value, "closed by somebody else"
                self._effects.write(SettledRecord(each.issue_id, Action.ASK.value, *why))
            elif each.status != "blocked":
                self._retry_state.answered(each.issue_id, commented=False)


def _asked_at(issue: Issue) -> float:
    return issue.retry_entry.asked_at if issue.retry_entry is not None else 0.0
