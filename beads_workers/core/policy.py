"""What becomes of a job after an attempt: the only place where retry semantics live.

Source: docs/SEMANTICS.md, "Failure and retry".
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import assert_never

from beads_workers.core import limits
from beads_workers.core.model import Outcome, OutcomeKind, value


@value
class Policy:
    """``attempts_max``: charged attempts before an issue is quarantined. Delays in seconds.

    ``hand_back``: whoever sent a job has a policy of its own: it is told how the one attempt went,
    or the last one of ``hand_back_after``.
    """

    attempts_max: int = limits.ATTEMPTS_MAX
    retry_delay_seconds: float = limits.RETRY_DELAY_SECONDS
    retry_delay_max_seconds: float = limits.RETRY_DELAY_MAX_SECONDS
    free_retries_max: int = limits.FREE_RETRIES_MAX
    hand_back: bool = False
    hand_back_after: int = 1


@value
class AttemptHistory:
    """What earlier attempts at this job left: survives restarts through the journal.

    ``unprepared``: attempts in a row without a worktree, all for ``reason``, the last error.
    """

    charged: int = 0
    free_in_a_row: int = 0
    unprepared: int = 0
    reason: str = ""

    @property
    def attempt(self) -> int:
        """The number of the next attempt, from 1; free retries do not raise it."""
        return self.charged + 1


@value
class Finish:
    """The job is done: close it."""


@value
class Land:
    """The job is done, and its branch lands before it is closed."""

    history: AttemptHistory


@value
class Requeue:
    """Give the job back, and take it again no sooner than ``delay_seconds`` from now."""

    delay_seconds: float
    history: AttemptHistory


@value
class Quarantine:
    """Out of attempts (or hopeless): out of the backlog until a person asks for it."""

    reason: str
    history: AttemptHistory


@value
class HandBack:
    """It goes back to whoever sent it, who decides about another try; nothing is remembered."""


Verdict = Finish | Land | Requeue | Quarantine | HandBack


def judge(policy: Policy, history: AttemptHistory, outcome: Outcome, jitter: float) -> Verdict:
    """Decide; ``jitter`` in 0..1 spreads retries over the last fifth of the delay."""
    if not outcome.unprepared and outcome.kind is not OutcomeKind.CANCELLED:
        history = replace(history, unprepared=0)
    match outcome.kind:
        case OutcomeKind.SUCCESS:
            return Finish()
        case _ if policy.hand_back and _is_last(policy, history, outcome):
            return HandBack()
        case OutcomeKind.CANCELLED:
            return Requeue(0.0, history)
        case OutcomeKind.NOT_FOUND:
            return Quarantine(outcome.error, replace(history, charged=history.charged + 1))
        case OutcomeKind.RETRY if outcome.receipt is not None and outcome.receipt.refusal:
            # The account was closed, and says when it opens: no fault of the issue, however often.
            return Requeue(0.0, history)
        case OutcomeKind.RETRY if outcome.unprepared:
            return _unprepared(policy, history, outcome, jitter)
        case OutcomeKind.RETRY if history.free_in_a_row < policy.free_retries_max:
            free = history.free_in_a_row + 1
            delay = outcome.retry_after_seconds
            if delay is None:
                delay = _backoff(policy, free, jitter)
            return Requeue(
                min(delay, limits.RETRY_AFTER_MAX_SECONDS), replace(history, free_in_a_row=free)
            )
        case OutcomeKind.RETRY | OutcomeKind.ERROR | OutcomeKind.TIMEOUT | OutcomeKind.LOST:
            return _charge(policy, history, outcome, jitter)
        case _:
            assert_never(outcome.kind)


def _is_last(policy: Policy, history: AttemptHistory, outcome: Outcome) -> bool:
    hopeless = outcome.kind in (OutcomeKind.CANCELLED, OutcomeKind.NOT_FOUND)
    return hopeless or history.charged + 1 >= policy.hand_back_after


def quarantine_note(attempts: int, reason: str, branch: str = "") -> str:
    """What a person reads about it in the tracker. ``branch``: its work is done, and is there."""
    if branch:
        return f"beads-workers quarantined this: {reason}. The work is on the branch {branch}."
    if not attempts:
        return f"beads-workers quarantined this: {reason}"
    return f"beads-workers quarantined this after {attempts} attempts. Last error: {reason}"


def _unprepared(
    policy: Policy, history: AttemptHistory, outcome: Outcome, jitter: float
) -> Verdict:
    """Never charged, and not for ever either: what fails for one reason again and again does not
    mend itself."""
    same = same_reason(history.reason, outcome.error)
    times = history.unprepared + 1 if same else 1
    after = replace(history, unprepared=times, reason=outcome.error)
    if times >= limits.UNPREPARED_MAX:
        return Quarantine(outcome.error, replace(after, unprepared=0))
    return Requeue(_backoff(policy, times, jitter), after)


def same_reason(reason: str, other: str) -> bool:
    """Whether two errors say the same; names of worktrees and processes have numbers in them."""
    return _NUMBER.sub("#", reason) == _NUMBER.sub("#", other)


_NUMBER = re.compile(r"(?:\.\d+)+|\d+")


def _charge(policy: Policy, history: AttemptHistory, outcome: Outcome, jitter: float) -> Verdict:
    # A charged retry stays on its streak: the allowance is for a streak, not for every twenty.
    free = history.free_in_a_row if outcome.kind is OutcomeKind.RETRY else 0
    charged = AttemptHistory(history.charged + 1, free)
    if charged.charged >= policy.attempts_max:
        return Quarantine(outcome.error, charged)
    # That it counts does not make it come sooner than the worker asked for.
    asked = min(outcome.retry_after_seconds or 0.0, limits.RETRY_AFTER_MAX_SECONDS)
    return Requeue(max(asked, _backoff(policy, charged.charged, jitter)), charged)


def _backoff(policy: Policy, number: int, jitter: float) -> float:
    full = policy.retry_delay_seconds * 2.0 ** min(number - 1, 30)
    return min(full, policy.retry_delay_max_seconds) * (1.0 - 0.2 * jitter)
