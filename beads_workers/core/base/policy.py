"""The verdict on a job after an attempt: the only place where retry semantics live.

Source: docs/SEMANTICS.md, "Failure and retry".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from beads_workers.core.base import limits
from beads_workers.core.base.model import Outcome, OutcomeKind, value
from beads_workers.core.base.option import ATTEMPTS, duration, option, whole


@value
class Policy:
    """When an issue is tried again, and when it is quarantined."""

    # Charged attempts before an issue is quarantined.
    attempts_max: int = option(
        limits.ATTEMPTS_MAX,
        whole(1, 1000),
        "Tries before an issue is quarantined; default 3.",
        name="max_attempts",
        panel=ATTEMPTS,
    )
    retry_delay_seconds: float = option(
        limits.RETRY_DELAY_SECONDS,
        duration(),
        "Wait before the next try, doubled each time; default 10s.",
        panel=ATTEMPTS,
        rare=True,
    )
    retry_delay_max_seconds: float = limits.RETRY_DELAY_MAX_SECONDS
    free_retries_max: int = limits.FREE_RETRIES_MAX
    # The job's sender decides about retries: it gets the outcome of attempt ``hand_back_after``
    # (free retries do not raise the number), or of an earlier one that was cancelled or not found.
    hand_back: bool = False
    hand_back_after: int = 1
    # Questions that an issue may ask of a person; 0: nobody answers.
    questions_max: int = 0


@value
class AttemptHistory:
    """Traces of earlier attempts at this job, which survive restarts through the journal."""

    charged: int = 0
    free_in_a_row: int = 0
    # Attempts in a row without a worktree, all for ``reason``, the last error.
    unprepared: int = 0
    reason: str = ""
    # How many its attempts have asked so far.
    questions: int = 0

    @property
    def attempt(self) -> int:
        """Number of the next attempt, from 1; free retries do not raise it."""
        return self.charged + 1


@value
class Finish:
    """The job is done: close it."""


@value
class Land:
    """The job is done, and its branch lands before it is closed; ``awaits``: once a person has
    approved it."""

    history: AttemptHistory
    awaits: bool = False


@value
class Requeue:
    """Give the job back, and take it again no sooner than ``delay_seconds`` from now."""

    delay_seconds: float
    history: AttemptHistory


@value
class Quarantine:
    """The job is out of attempts (or hopeless): out of the backlog until a person asks for it."""

    reason: str
    history: AttemptHistory


@value
class AskPerson:
    """The job waits for a person's answer; its worktree and session are kept."""

    history: AttemptHistory


@value
class HandBack:
    """The job goes back to its sender, who decides about another try; nothing is remembered."""


Verdict = Finish | Land | Requeue | Quarantine | AskPerson | HandBack


# --- what becomes of an attempt -------------------------------------------------------------------
# Rules, of which the first that has an answer decides.


@value
class Ended:
    """An attempt that has ended."""

    outcome: Outcome
    # History of the issue before this attempt.
    before: AttemptHistory
    # In 0..1: spreads retries over the last fifth of their delay.
    jitter: float = 0.0
    # The branch is to land before the issue is closed.
    lands: bool = False
    # A person has to approve it first.
    awaits: bool = False
    # A cause that hits all issues alike has ended it: a spawn storm, no room for worktrees.
    struck: bool = False

    @property
    def history(self) -> AttemptHistory:
        """History before this attempt, without ``unprepared`` if its worktree was made."""
        prepared = not self.outcome.unprepared and self.outcome.kind is not OutcomeKind.CANCELLED
        return replace(self.before, unprepared=0) if prepared else self.before


@value
class Blame:
    """Obstacles of an agent's attempt that are no fault of its issue."""

    # The agent's account refused the attempt.
    refused: bool = False
    # Charge the refused attempt all the same. True once an overload of the account has lasted for a
    # day (``Accounts.charges``), so that an issue that is refused for ever is quarantined in the
    # end.
    counts: bool = False
    # The issue's own budget, if that is spent.
    spent: str = ""


def blamed(outcome: Outcome, blame: Blame) -> Outcome:
    """Return the outcome as the rules and the journal see it."""
    if blame.refused and outcome.kind in _FAILED:
        kind = OutcomeKind.ERROR if blame.counts else OutcomeKind.RETRY
        outcome = replace(outcome, kind=kind)
    if blame.spent and outcome.kind is not OutcomeKind.SUCCESS:
        error = f"its budget of {blame.spent} is spent: {outcome.error}"
        outcome = replace(outcome, kind=OutcomeKind.NOT_FOUND, error=error)
    return outcome


_FAILED = (OutcomeKind.RETRY, OutcomeKind.ERROR, OutcomeKind.TIMEOUT)

Rule = Callable[[Policy, Ended], Verdict | None]


def fate(policy: Policy, ended: Ended) -> Verdict:
    """Return the verdict on the issue: the first rule that has an answer decides."""
    for rule in RULES:
        if (verdict := rule(policy, ended)) is not None:
            return verdict
    raise AssertionError("the last rule always has an answer")


def done(policy: Policy, ended: Ended) -> Verdict | None:
    """Close a success, or land it first."""
    if ended.outcome.kind is not OutcomeKind.SUCCESS:
        return None
    return Land(ended.before, ended.awaits) if ended.lands else Finish()


def struck(policy: Policy, ended: Ended) -> Verdict | None:
    """Requeue without a charge if the cause hits all issues: it is the fault of none."""
    return Requeue(0.0, ended.before) if ended.struck else None


def handed_back(policy: Policy, ended: Ended) -> Verdict | None:
    """Hand the job back after attempt number ``hand_back_after``, or at once if it is hopeless: its
    sender decides about the next attempt."""
    hopeless = ended.outcome.kind in (OutcomeKind.CANCELLED, OutcomeKind.NOT_FOUND)
    last = hopeless or ended.before.charged + 1 >= policy.hand_back_after
    return HandBack() if policy.hand_back and last else None


def cancelled(policy: Policy, ended: Ended) -> Verdict | None:
    """Requeue without a charge a job that was cancelled for no fault of its own."""
    return Requeue(0.0, ended.history) if ended.outcome.kind is OutcomeKind.CANCELLED else None


def asked(policy: Policy, ended: Ended) -> Verdict | None:
    """Wait for a person's answer, uncharged; quarantine after ``questions_max`` questions."""
    if ended.outcome.kind is not OutcomeKind.QUESTION or not policy.questions_max:
        return None
    history = replace(ended.history, questions=ended.history.questions + 1)
    if history.questions > policy.questions_max:
        reason = f"it asked {policy.questions_max} questions, and one more: {ended.outcome.error}"
        return Quarantine(reason, history)
    return AskPerson(history)


def hopeless(policy: Policy, ended: Ended) -> Verdict | None:
    """Quarantine a job if no other attempt would do better."""
    if ended.outcome.kind is not OutcomeKind.NOT_FOUND:
        return None
    after = replace(ended.history, charged=ended.history.charged + 1)
    return Quarantine(ended.outcome.error, after)


def account_closed(policy: Policy, ended: Ended) -> Verdict | None:
    """Requeue if the agent's account is closed: no fault of the issue, however often."""
    receipt = ended.outcome.receipt
    closed = receipt is not None and receipt.refusal is not None
    free = closed and ended.outcome.kind is OutcomeKind.RETRY
    return Requeue(0.0, ended.history) if free else None


def not_prepared(policy: Policy, ended: Ended) -> Verdict | None:
    """Requeue or quarantine an issue that got no worktree, without a charge.
    It is not tried for ever, because what fails for one reason again and again does not fix
    itself."""
    outcome, history = ended.outcome, ended.history
    if outcome.kind is not OutcomeKind.RETRY or not outcome.unprepared:
        return None
    times = history.unprepared + 1 if same_reason(history.reason, outcome.error) else 1
    after = replace(history, unprepared=times, reason=outcome.error)
    if times >= limits.UNPREPARED_MAX:
        return Quarantine(outcome.error, replace(after, unprepared=0))
    return Requeue(_backoff(policy, times, ended.jitter), after)


def free_retry(policy: Policy, ended: Ended) -> Verdict | None:
    """Requeue without a charge if the worker asks for another try, up to ``free_retries_max`` times
    in a row."""
    outcome, free = ended.outcome, ended.history.free_in_a_row
    if outcome.kind is not OutcomeKind.RETRY or free >= policy.free_retries_max:
        return None
    delay = outcome.retry_after_seconds
    if delay is None:
        delay = _backoff(policy, free + 1, ended.jitter)
    after = replace(ended.history, free_in_a_row=free + 1)
    return Requeue(min(delay, limits.RETRY_AFTER_MAX_SECONDS), after)


def charged(policy: Policy, ended: Ended) -> Verdict:
    """Charge a failed attempt. The charge number ``attempts_max`` quarantines its issue."""
    outcome, history = ended.outcome, ended.history
    # A charged retry does not reset the count of free retries: a streak gets ``free_retries_max``
    # (19) of them once, and every later retry of the streak is charged.
    free = history.free_in_a_row if outcome.kind is OutcomeKind.RETRY else 0
    after = AttemptHistory(history.charged + 1, free, questions=history.questions)
    if after.charged >= policy.attempts_max:
        return Quarantine(outcome.error, after)
    # This retry is charged, but the next attempt still begins no sooner than the worker asked for.
    asked = min(outcome.retry_after_seconds or 0.0, limits.RETRY_AFTER_MAX_SECONDS)
    return Requeue(max(asked, _backoff(policy, after.charged, ended.jitter)), after)


RULES: tuple[Rule, ...] = (
    *(done, struck, handed_back, cancelled, asked, hopeless),
    *(account_closed, not_prepared, free_retry, charged),
)


def unlanded(why: str, repairs_left: int, *, at_once: bool) -> str:
    """Return the verdict on an unlanded issue, as ``journal.LandingEnded.verdict``.

    ``why``: as in ``landing.Refused``, ``rejected`` by a person, "" if nobody wants it any more;
    ``repairs_left``: how often an agent may still mend it; ``at_once``: its own agent can go on
    now.
    """
    if why in ("", "rejected"):
        return "requeue"
    if why not in ("conflict", "verify") or repairs_left <= 0:
        return "quarantined"
    return "mend" if at_once else "requeue"


# --- texts ----------------------------------------------------------------------------------------


def quarantine_note(attempts: int, reason: str, branch: str = "") -> str:
    """Return the tracker's note for people. ``branch``: the place of the work, if it is done."""
    if branch:
        return f"beads-workers quarantined this: {reason}. The work is on the branch {branch}."
    if not attempts:
        return f"beads-workers quarantined this: {reason}"
    return f"beads-workers quarantined this after {attempts} attempts. Last error: {reason}"


def question_note(question: str) -> str:
    """Return the tracker's note for the person who is to answer."""
    return (
        "beads-workers waits for an answer. An agent asks:\n"
        f"{question}\nA comment on this issue answers it, and the agent goes on."
    )


def same_reason(reason: str, other: str) -> bool:
    """Return whether two errors are the same, numbers in names of worktrees and processes aside."""
    return _NUMBER.sub("#", reason) == _NUMBER.sub("#", other)


_NUMBER = re.compile(r"(?:\.\d+)+|\d+")


def _backoff(policy: Policy, number: int, spread: float) -> float:
    full = policy.retry_delay_seconds * 2.0 ** min(number - 1, 30)
    return min(full, policy.retry_delay_max_seconds) * (1.0 - 0.2 * spread)
