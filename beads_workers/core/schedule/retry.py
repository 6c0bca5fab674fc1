"""Issues that are not to be taken, with the reasons; and the circuit breaker for spawn storms.

``RetryState`` keeps nothing but ``failed_here``: the rest is in ``Effects.issues``, and outlives
the run by the checkpoint at the start of each journal.
"""

from __future__ import annotations

from dataclasses import replace

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId, Outcome, OutcomeKind
from beads_workers.core.base.policy import AttemptHistory, same_reason
from beads_workers.core.base.source import Action, reopening
from beads_workers.core.base.text import printable
from beads_workers.core.records.issues import OUT, Issue, Standing
from beads_workers.core.records.journal import (
    Answered,
    DegradedBegan,
    DegradedEnded,
    Refunded,
    RetryAsked,
    Vacated,
)
from beads_workers.core.records.receipts import AccountTrouble, Candidate, Receipt
from beads_workers.core.schedule.effects import Effects, RetryDue
from beads_workers.core.schedule.round_trips import RoundTrips


def history_of(issue: Issue) -> AttemptHistory:
    """Return the attempts of an issue so far."""
    past = issue.retry_entry
    if past is None:
        return AttemptHistory()
    return AttemptHistory(
        past.charged, past.free_in_a_row, past.unprepared, past.error, past.questions
    )


_DONE_OR_HELD = (
    *(Standing.ON_HOLD, Standing.OCCUPIED),
    *(Standing.UNCLOSED, Standing.AWAITS_APPROVAL, Standing.IN_REVIEW),
)


class RetryState:
    """Answers the policy's and the claim scheduler's questions about issues that are not done."""

    def __init__(self, effects: Effects, round_trips: RoundTrips) -> None:
        self._effects = effects
        self._issues = effects.issues
        self._round_trips = round_trips
        self.failed_here: set[IssueId] = set()
        """Issues that had an attempt in this run without success, until they are done."""

    def history(self, issue_id: IssueId) -> AttemptHistory:
        """Return the attempts of an issue so far."""
        issue = self._issues.known.get(issue_id)
        return history_of(issue) if issue else AttemptHistory()

    def standing(self, issue_id: IssueId) -> Standing | None:
        """Return the standing of an issue now; None if nothing is remembered of it."""
        issue = self._issues.known.get(issue_id)
        if issue is None:
            return None
        cooled = issue.standing is Standing.COOLING and not self._is_cooling(issue)
        standing = Standing.OPEN if cooled else issue.standing
        return None if standing is Standing.OPEN and issue.retry_entry is None else standing

    def cooling(self) -> list[Issue]:
        """Return the issues whose time has not come."""
        return list(filter(self._is_cooling, self._issues.standing(Standing.COOLING)))

    def _is_cooling(self, issue: Issue) -> bool:
        # An issue cools until its timer has gone off: only then is the scheduler told to ask for
        # it.
        return RetryDue(issue.issue_id) in self._effects.timers

    def not_to_take(self) -> set[IssueId]:
        """Return the issues that a claim must leave out.
        Quarantined issues are out of the backlog by themselves."""
        issues = self._issues
        off = (each for standing in _DONE_OR_HELD for each in issues.standing(standing))
        return {IssueId(issue.issue_id) for issue in (*self.cooling(), *off)}

    def retry(self, issue_id: IssueId) -> bool:
        """Have an issue tried again now, for a person; return False if nothing prevents that."""
        issue = self._issues.known.get(issue_id)
        over = (None, Standing.UNCLOSED, Standing.IN_REVIEW)
        if self.standing(issue_id) in over or (issue and issue.is_done):
            return False
        self._pardon(RetryAsked(issue_id))
        return True

    def answered(self, issue_id: IssueId, *, commented: bool) -> bool:
        """Have an issue go on whose question was answered; return False if it asked none.
        ``commented``: as in ``journal.Answered``."""
        issue = self._issues.known.get(issue_id)
        if issue is None or issue.standing is not Standing.ASKED:
            return False
        self._pardon(Answered(issue_id, commented))
        return True

    def vacated(self, issue_id: IssueId) -> None:
        """Have an issue go on in whose worktree nobody stands any more."""
        issue = self._issues.known.get(issue_id)
        if issue is not None and issue.standing is Standing.OCCUPIED:
            self._effects.write(Vacated(issue_id))
            self._effects.timers.set(RetryDue(issue_id), self._effects.now)

    def refund(self, issue_id: IssueId, attempts: int) -> None:
        """Refund so many charged attempts that were not the issue's fault.
        It may be taken again at once."""
        if (issue := self._issues.known.get(issue_id)) is not None:
            self._pardon(Refunded(issue_id, max(0, issue.charged - attempts)))

    def _pardon(self, record: RetryAsked | Refunded | Answered) -> None:
        issue = self._issues.known[record.issue_id]
        was_out = issue.standing in OUT
        self._effects.write(record)
        if was_out and issue.pending is Action.REOPEN:
            self.reopen(issue)

    def reopen(self, issue: Issue) -> None:
        """Have an issue opened in the tracker that was out of the backlog, and is wanted back."""
        self._round_trips.enqueue(reopening(IssueId(issue.issue_id), issue.is_answered))


# --- preparation ---------------------------------------------------------------------------------
# No worktree can be made, or the work there cannot be committed: the disk is full, a filter's
# program is gone, a branch is in the way, git is killed. One issue after another would be tried in
# vain, at no cost but without end. A cause that hits one issue is the policy's (``policy.fate``). A
# cause that hits several is the repository's fault, or the machine's. Then nothing new is begun
# until one of the issues has found out that it is over. Source: docs/SEMANTICS.md, "Failure and
# retry".

PREPARATION_TRIAL = "preparation trial"
"""Timer key: one issue may find out whether a worktree can be made again."""

PREPARATION = "worktrees"
"""Name of the condition while no worktree can be made, or nothing can be committed in them."""

NO_WORKTREE, NOT_KEPT = "no worktree", "work cannot be committed"

_PREPARED = (OutcomeKind.SUCCESS, OutcomeKind.ERROR, OutcomeKind.TIMEOUT)


class PreparationBrake:
    """Sees every attempt end. While ``is_on``, only one issue at a time is begun, now and then."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self.struck: dict[IssueId, str] = {}
        """The issues that had no worktree, with the error of each."""
        self._trial_at = 0.0
        self.is_on = False
        self.tried: set[IssueId] = set()
        """Issues that a trial leaves out, as long as there are others: each has been a trial."""

    def ended(self, issue_id: IssueId, outcome: Outcome) -> bool:
        """Take in the end of an attempt; return True if its issue is not to be charged."""
        if not outcome.unprepared:
            if (self.struck or self.is_on) and outcome.kind in _PREPARED:
                self.reset()
            return False
        self.struck[issue_id] = outcome.error
        if not self.is_on:
            if len(self.struck) < limits.UNPREPARED_ISSUES:
                return False
            self._begin(outcome.error)
        self.tried.add(issue_id)
        self._trial_at = self._effects.now + limits.UNPREPARED_TRIAL_SECONDS
        self._effects.timers.set(PREPARATION_TRIAL, self._trial_at)
        return True

    def begun(self) -> None:
        """Note that an attempt begins while the brake is on: it is a trial."""
        self._trial_at = self._effects.now + limits.UNPREPARED_TRIAL_SECONDS
        self._effects.timers.set(PREPARATION_TRIAL, self._trial_at)

    def room(self) -> int | None:
        """Return how many attempts may begin now; None for any number."""
        if not self.is_on:
            return None
        return int(self._effects.now >= self._trial_at)

    def works(self) -> None:
        """Note that an agent is at work in a worktree, so one can be made.
        Its commit is still to come."""
        for issue_id, error in list(self.struck.items()):
            if error.startswith(NO_WORKTREE):
                del self.struck[issue_id]
        if not self.struck:
            self.reset()

    def reset(self) -> None:
        """Release the brake: an attempt came to its own end, or a person says that one can."""
        self.struck.clear()
        self.tried.clear()
        if self.is_on:
            self.is_on = False
            self._effects.write(DegradedEnded(PREPARATION))
            self._effects.timers.set(PREPARATION_TRIAL, self._effects.now)

    def _begin(self, error: str) -> None:
        self.is_on = True
        what = "no worktree can be made" if error.startswith(NO_WORKTREE) else NOT_KEPT
        text = f"{what}, for {len(self.struck)} issues: {error}"
        minutes = limits.UNPREPARED_TRIAL_SECONDS / 60
        todo = f"put that right; one issue tries again every {minutes:g} minutes"
        self._effects.write(
            DegradedBegan(PREPARATION, text[: limits.ERROR_CHARS_MAX], todo, stops=True)
        )


# --- the same on one issue after another ----------------------------------------------------------
# The same failure on one issue after another: a model that does not exist, a server that never
# answers. Every attempt of an agent fails in the same words, before it has had an answer. The fault
# is not with the issues, so the account is closed. Source: docs/SEMANTICS.md, "The same on three
# issues".


class AlikeFailures:
    """Sees every attempt of an agent end."""

    def __init__(self, retry_state: RetryState) -> None:
        self._retry_state = retry_state
        self._why: dict[Candidate, str] = {}
        self._charged: dict[Candidate, dict[IssueId, int]] = {}

    def judged(self, candidate: Candidate, issue: Issue, outcome: Outcome) -> Outcome:
        """Return the outcome, as a refusal of its account if it is like those of other issues.
        Attempts that were charged for them are refunded."""
        receipt, issue_id = outcome.receipt, IssueId(issue.issue_id)
        if receipt is None or receipt.refusal or outcome.kind not in _PREPARED:
            return outcome  # The fault is unknown, or it is known already.
        if outcome.kind is OutcomeKind.SUCCESS or _has_answer(receipt, issue):
            self._charged.pop(candidate, None)
            return outcome
        charged = self._charged.setdefault(candidate, {})
        if not same_reason(self._why.get(candidate, ""), receipt.why):
            charged.clear()
        self._why[candidate] = receipt.why
        charged.setdefault(issue_id, 0)
        if len(charged) < limits.ALIKE_ISSUES:
            charged[issue_id] += 1
            return outcome
        for each, attempts in charged.items():
            if attempts:
                self._retry_state.refund(each, attempts)
                charged[each] = 0
        why = f"{receipt.why.rstrip('. ')}, {ALIKE}"
        trouble = AccountTrouble.NEEDS_PERSON.value
        refused = replace(receipt, verdict=trouble, why=why, limited_model=candidate.model)
        return replace(outcome, receipt=refused)


UNFINISHED = "unfinished"
"""Verdict of a receipt: ``agents.events.Kind``."""
ALIKE = "the same on several issues and without an answer of the model"


def _has_answer(receipt: Receipt, issue: Issue) -> bool:
    """Return whether the attempt has one byte of work. Words that are the error itself are none."""
    message, past = receipt.message.strip(), issue.retry_entry
    words = bool(message) and not message.startswith(receipt.why.rstrip(" .…"))
    words = words or receipt.verdict != UNFINISHED  # It ended by its own account, or our cap.
    known = past.receipt if past is not None else None
    seen = (known.base, known.head, *known.commits) if known is not None else ()
    commits = bool(receipt.commits) and receipt.head not in seen
    return words or commits or bool(receipt.tokens.total or receipt.money or receipt.lesson)


# --- circuit breaker -----------------------------------------------------------------------------
# Spawn storms: everything fails at its start, so the fault is not with the issues.
#
# Nobody is logged in, or it is the wrong folder: without a brake a fleet would burn through every
# attempt of a whole backlog within seconds. Source: docs/SEMANTICS.md, "Spawn storms".


FAILURES = (OutcomeKind.ERROR, OutcomeKind.TIMEOUT, OutcomeKind.NOT_FOUND)
"""Outcomes by which a task itself fails. A worker that dies has a brake of its own
(``supervisor``); a retry and a cancellation are no failures."""


class CircuitBreaker:
    """Sees every attempt end. While ``is_open``, failures at the start are not charged."""

    def __init__(self, retry_state: RetryState) -> None:
        self._retry_state = retry_state
        self._charged: dict[IssueId, int] = {}
        self._refuted = False
        self._error = ""
        self.is_open = False

    def trips(self, issue_id: IssueId, outcome: Outcome, seconds: float) -> bool:
        """Take in the end of an attempt that took so long; return True if a storm ended it.

        Then it is not charged; call ``refund`` when it has been requeued.
        """
        if outcome.kind is OutcomeKind.SUCCESS:
            # Later failures are no storm: the command can be run here, and does its work.
            self._refuted, self.is_open = True, False
            self._charged.clear()
        if self._refuted or outcome.kind not in FAILURES or seconds >= limits.BREAKER_SECONDS:
            return False
        self._charged.setdefault(issue_id, 0)
        self._error = outcome.error
        self.is_open = self.is_open or len(self._charged) >= limits.BREAKER_ISSUES
        if not self.is_open:
            self._charged[issue_id] += 1
        return self.is_open

    def refund(self) -> None:
        """Refund the attempts that were charged to the issues of a storm, and report it once."""
        for issue_id, attempts in self._charged.items():
            self._retry_state.refund(issue_id, attempts)
        self._charged.clear()

    def retried(self, issue_id: IssueId) -> None:
        """Forget the charges of an issue to which a person gave a clean history."""
        if issue_id in self._charged:
            self._charged[issue_id] = 0

    def reset(self) -> None:
        """Close the breaker, and count anew: a person says that the storm is over."""
        self.is_open = False
        self._charged.clear()

    def text(self) -> str:
        """Return what happened, for people: one sentence, fit for any terminal."""
        return (
            f"not logged in, or the wrong folder? {limits.BREAKER_ISSUES} different issues failed"
            f" within {limits.BREAKER_SECONDS:.0f} s of their start and none has succeeded. Nothing"
            f" was charged to them; the last error: {printable(self._error, ERROR_WIDTH) or 'none'}"
        )


ERROR_WIDTH = 100
"""Maximum columns of the last error in the one message."""
