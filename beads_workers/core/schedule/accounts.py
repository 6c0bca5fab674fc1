"""Accounts of AI agents: which are closed, until when, and who goes first when they open.

An account is what a vendor counts: one login of one command line. The vendor refuses all issues
that run with an account together. So the whole account is closed, or one model of it, and no
attempt is charged. One issue, the canary, finds out whether the account is open again. All times
are epoch seconds, because resets are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.settings import ProbePace
from beads_workers.core.records.journal import AccountClosed, AccountOpened
from beads_workers.core.records.receipts import (
    AccountId,
    AccountRefusal,
    AccountTrouble,
    Candidate,
    Closed,
)
from beads_workers.core.schedule.effects import Effects, jitter

ACCOUNTS = "accounts"
"""Timer key: look at the wall clock, because a reset or a probe may be due."""


@dataclass(slots=True)
class Account:
    """An account of an agent, with its closures and the attempts on it."""

    account_id: AccountId
    agent: str
    closed: dict[str, Closed] = field(default_factory=dict)
    # The attempts under way, with their models.
    running: dict[IssueId, str] = field(default_factory=dict)
    # Those attempts that the model has answered.
    answered: set[IssueId] = field(default_factory=set)
    canary: IssueId | None = None
    # How many at once while it ramps up after a canary; None for any number.
    allowed: int | None = None
    # Of the fullest window, 0 to 1, as the agent reports it.
    utilization: float = 0.0

    def closed_for(self, model: str) -> Closed | None:
        """Return the closure that blocks this model for longest: the account's or the model's."""
        standing = [self.closed[m] for m in dict.fromkeys(("", model)) if m in self.closed]
        return max(standing, key=lambda closed: closed.probe_at, default=None)


class Accounts:
    """All accounts that this fleet's agents use; without agents, empty and open to all."""

    def __init__(
        self,
        effects: Effects,
        pace: ProbePace,
        slots: Callable[[], int],
        logins: Mapping[str, str] | None = None,
    ) -> None:
        """``slots``: how many attempts the fleet has workers for now, whoever started the workers.
        ``logins``: the commands that log agents in, by the agents' names."""
        self._effects = effects
        self._logins = logins or {}
        self._pace = pace
        self._slots = slots
        self._accounts: dict[AccountId, Account] = {}
        self._of_issue: dict[IssueId, Account] = {}

    # --- before an attempt ------------------------------------------------------------------------

    def choose(self, candidates: Sequence[Candidate]) -> Candidate | None:
        """Return the first candidate that may begin now; None: the issue waits for one that may."""
        return next((each for each in candidates if self.room(each) > 0), None)

    def room(self, candidate: Candidate) -> int:
        """Return how many attempts may begin now on the candidate's account, with its model."""
        return self._room(self._of(candidate), candidate.model)

    def begun(self, issue_id: IssueId, candidate: Candidate) -> None:
        """Count a new attempt; the first attempt on a closed account is its canary."""
        account = self._of(candidate)
        account.running[issue_id] = candidate.model
        self._of_issue[issue_id] = account
        if account.closed_for(candidate.model) is not None:
            account.canary = issue_id

    # --- during it, and at its end ----------------------------------------------------------------

    def answered(self, issue_id: IssueId) -> None:
        """Note that the model has answered this attempt.
        The answer to a canary opens its account, and each first answer after that lets two more
        attempts in."""
        account = self._of_issue.get(issue_id)
        if account is None or issue_id in account.answered:
            return
        account.answered.add(issue_id)
        if account.canary == issue_id:
            self._open(account, account.running[issue_id])
        elif account.allowed is not None:
            account.allowed += _RAMP
            if account.allowed >= self._slots():
                account.allowed = None

    def warned(self, issue_id: IssueId, utilization: float) -> None:
        """Note how full the account's fullest window is.
        From ``limits.UTILIZATION_HIGH`` on, fewer attempts run at once."""
        if account := self._of_issue.get(issue_id):
            account.utilization = utilization

    def ended(
        self, issue_id: IssueId, refusal: AccountRefusal | None, *, lost: bool = False
    ) -> None:
        """Count the end of an attempt, refused or not.
        ``lost``: nobody knows how it ended, which proves nothing about the account."""
        account = self._of_issue.pop(issue_id, None)
        if account is None:
            return
        model = account.running.pop(issue_id, "")
        account.answered.discard(issue_id)
        was_canary = account.canary == issue_id
        if was_canary:
            account.canary = None
        if refusal is not None:
            self._close(account, refusal, was_canary=was_canary)
        elif was_canary and not lost:
            self._open(account, model)
        self._look_later()

    def refused(self, candidate: Candidate, refusal: AccountRefusal) -> None:
        """Close the reviewer's account: it refused an attempt that is not counted on it."""
        self._close(self._of(candidate), refusal, was_canary=False)
        self._look_later()

    def served(self, candidate: Candidate) -> None:
        """Note that an attempt not counted on this account was served.
        An attempt that began before the account's reset proves nothing."""
        account = self._of(candidate)
        closed = account.closed_for(candidate.model)
        if closed is not None and closed.probe_at <= self._effects.epoch:
            self._open(account, candidate.model)
            self._look_later()

    # --- time, and people -------------------------------------------------------------------------

    def look(self) -> bool:
        """Look at the wall clock again; return whether a canary may go now."""
        self._look_later()
        now = self._effects.epoch
        return any(
            account.canary is None and closed.probe_at <= now
            for account in self._accounts.values()
            for closed in account.closed.values()
        )

    def resume(self) -> None:
        """Probe all closed accounts at once: a person says that they are fixed."""
        for account in self._accounts.values():
            for closed in account.closed.values():
                closed.probe_at = self._effects.epoch
        self._look_later()

    def learn(self, candidate: Candidate, closed: Iterable[Closed]) -> None:
        """Take over what another fleet of this user found out about an account that both use."""
        account = self._of(candidate)
        if account.canary is not None:
            return  # The canary will know better in a moment.
        theirs = {each.refusal.model: replace(each) for each in closed}
        for model, each in theirs.items():
            ours = account.closed.get(model)
            if ours is None or each.probe_at > ours.probe_at:
                account.closed[model] = each
                self._write(account, each)
        gone = [m for m, ours in account.closed.items() if ours.told_by and m not in theirs]
        for model in gone:
            self._open(account, model)
        self._look_later()

    def helpless_for(self) -> float | None:
        """Return how many seconds every account has waited for a person; None if any has not."""
        now, since = self._effects.epoch, 0.0
        for account in self._accounts.values():
            persons = [
                closed.since
                for closed in account.closed.values()
                if closed.refusal.trouble is AccountTrouble.NEEDS_PERSON
            ]
            if not persons:
                return None
            since = max(since, min(persons))
        return now - since if self._accounts else None

    def charges(self, issue_id: IssueId) -> bool:
        """Return whether an overload has lasted so long that attempts are charged all the same."""
        account = self._of_issue.get(issue_id)
        if account is None:
            return False
        since = [
            closed.since
            for closed in account.closed.values()
            if closed.refusal.trouble is AccountTrouble.TRANSIENT
        ]
        longest = self._effects.epoch - min(since, default=self._effects.epoch)
        return longest > limits.TRANSIENT_SECONDS_MAX

    def each(self) -> Iterator[Account]:
        """Iterate over all accounts that were ever used in this run."""
        return iter(self._accounts.values())

    def is_open_to(self, candidate: Candidate) -> bool:
        """Return whether the account is open to this model, however many attempts run on it."""
        return self._of(candidate).closed_for(candidate.model) is None

    def may_try(self, candidate: Candidate) -> bool:
        """Return whether the account is open to this model, or a canary may probe it."""
        return self.is_open_to(candidate) or self.room(candidate) > 0

    def todo(self, account: Account, refusal: AccountRefusal) -> str:
        """Return the command by which a person fixes the account; "" if none is known."""
        if refusal.trouble is not AccountTrouble.NEEDS_PERSON or _NO_LOGIN.search(refusal.why):
            return ""
        return self._logins.get(account.agent, "")

    # --- inside -----------------------------------------------------------------------------------

    def _of(self, candidate: Candidate) -> Account:
        account = self._accounts.get(candidate.account)
        if account is None:
            account = Account(candidate.account, candidate.agent)
            self._accounts[candidate.account] = account
        return account

    def _room(self, account: Account, model: str) -> int:
        closed = account.closed_for(model)
        if closed is not None:
            return int(account.canary is None and closed.probe_at <= self._effects.epoch)
        slots = max(1, self._slots())
        allowed = slots if account.allowed is None else account.allowed
        if account.utilization >= limits.UTILIZATION_HIGH:
            share = (1.0 - account.utilization) / (1.0 - limits.UTILIZATION_HIGH)
            allowed = min(allowed, max(1, round(slots * share)))
        return max(0, allowed - len(account.running))

    def _open(self, account: Account, model: str) -> None:
        # An answer of this model is an answer of the account, too.
        opened = [account.closed.pop(m) for m in dict.fromkeys(("", model)) if m in account.closed]
        account.canary = None
        if not opened:
            return
        account.allowed, account.utilization = 1 + _RAMP, 0.0
        for closed in opened:
            model = closed.refusal.model
            self._effects.write(AccountOpened(account.account_id, account.agent, model))

    def _close(self, account: Account, refusal: AccountRefusal, *, was_canary: bool) -> None:
        now, before = self._effects.epoch, account.closed.get(refusal.model)
        # Other attempts under way meet the same limit; only a later reset is news.
        later = before is None or (refusal.until or 0.0) > (before.refusal.until or 0.0)
        if not (was_canary or later):
            return
        # A canary that was under way before this closure began proves nothing about it.
        account.canary = None
        refusals = before.refusals if before else 0
        if before and was_canary and (before.refusal.until or 0.0) <= now:
            refusals += 1
        closed = Closed(refusal, before.since if before else now, 0.0, refusals)
        closed.probe_at = self._probe_at(account, closed)
        account.closed[refusal.model] = closed
        account.allowed = None
        self._write(account, closed)

    def _probe_at(self, account: Account, closed: Closed) -> float:
        now, pace, refusal = self._effects.epoch, self._pace, closed.refusal
        spread = 1.0 + 0.5 * jitter(f"{account.account_id}{closed.refusals}")
        longer = 2.0 ** min(closed.refusals, 10)
        backed_off = pace.reset_grace_seconds * longer
        late = None if refusal.until is None else now - refusal.until
        if late is not None and late < 0:
            wait = pace.reset_grace_seconds * spread - late
            wait = max(wait, min(backed_off, pace.probe_seconds))
            return now + (min(wait, pace.probe_seconds) if refusal.doubted else wait)
        match refusal.trouble:
            case AccountTrouble.NEEDS_PERSON:
                delay = pace.probe_seconds
            case AccountTrouble.TRANSIENT:
                delay = limits.TRANSIENT_DELAY_SECONDS * longer
            case AccountTrouble.LIMITED:
                # An announced reset that is late doubles its delay; an unknown one is probed.
                delay = pace.probe_seconds if late is None else max(late, backed_off)
        return now + min(delay * spread, pace.probe_seconds)

    def _write(self, account: Account, closed: Closed) -> None:
        refusal, until = closed.refusal, closed.refusal.until or 0.0
        self._effects.write(
            AccountClosed(
                account.account_id,
                account.agent,
                refusal.trouble.value,
                refusal.why[: limits.ERROR_CHARS_MAX],
                refusal.model,
                until if until > self._effects.epoch else 0.0,  # One that has passed says nothing.
                closed.probe_at,
                closed.since,
                self.todo(account, refusal),
                closed.refusals,
            )
        )

    def _look_later(self) -> None:
        now = self._effects.epoch
        due = min(
            (
                closed.probe_at
                for account in self._accounts.values()
                for closed in account.closed.values()
            ),
            default=None,
        )
        if due is None:
            self._effects.timers.cancel(ACCOUNTS)
            return
        # A machine that sleeps wakes up late, so the wall clock is read every minute.
        wait = min(max(due - now, 1.0), limits.WALL_CLOCK_LOOK_SECONDS)
        self._effects.timers.set(ACCOUNTS, self._effects.now + wait)


_NO_LOGIN = re.compile(r"credit|billing|balance|payment|quota|\bmodel\b", re.IGNORECASE)
"""Reasons of a refusal that no login fixes."""

_RAMP = 2
"""Attempts that each answer lets in besides: 1, 2, 4, 8 at once after a reset."""
