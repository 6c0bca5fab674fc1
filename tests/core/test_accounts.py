"""Accounts: closed by what an agent was told, opened by a canary, ramped up after it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.settings import ProbePace
from beads_workers.core.records.journal import AccountClosed, AccountOpened, Record
from beads_workers.core.records.receipts import (
    AccountId,
    AccountRefusal,
    AccountTrouble,
    Candidate,
    Closed,
)
from beads_workers.core.schedule.accounts import ACCOUNTS, Accounts
from beads_workers.core.schedule.commands import Write
from beads_workers.core.schedule.effects import Effects

NOON = 1_800_000_000.0
CLAUDE = Candidate("claude", AccountId("c1"))
OPUS = Candidate("claude", AccountId("c1"), "opus")
CODEX = Candidate("codex", AccountId("x1"))


class Fleet:
    """Accounts with a clock of their own."""

    def __init__(self, workers: int = 8) -> None:
        self.effects = Effects(0.0, epoch=NOON)
        self.accounts = Accounts(self.effects, ProbePace(), lambda: workers)
        self._issues = 0

    def wait(self, seconds: float) -> None:
        self.effects.at(self.effects.now + seconds)

    def begin(self, *candidates: Candidate) -> IssueId | None:
        self._issues += 1
        issue = IssueId(f"i-{self._issues}")
        chosen = self.accounts.choose(candidates or (CLAUDE,))
        if chosen is None:
            return None
        self.accounts.begun(issue, chosen)
        return issue

    def canary(self) -> IssueId:
        issue = self.begin()
        assert issue is not None
        return issue

    def begin_all(self) -> list[IssueId]:
        begun: list[IssueId] = []
        while (issue := self.begin()) is not None:
            begun.append(issue)
        return begun

    def records(self) -> list[Record]:
        return [c.record for c in self.effects.flush() if isinstance(c, Write)]


def limit(seconds: float | None = 3600.0, model: str = "") -> AccountRefusal:
    until = None if seconds is None else NOON + seconds
    return AccountRefusal(AccountTrouble.LIMITED, "5-hour limit", until, model)


def refused(fleet: Fleet, refusal: AccountRefusal) -> None:
    issue = fleet.begin()
    assert issue is not None
    fleet.accounts.ended(issue, refusal)


def test_a_fleet_without_refusals_is_bounded_by_its_workers_only() -> None:
    fleet = Fleet(workers=8)
    assert len(fleet.begin_all()) == 8
    assert fleet.accounts.room(CLAUDE) == 0


def test_a_limit_closes_the_account_until_its_reset() -> None:
    fleet = Fleet()
    refused(fleet, limit(3600))
    assert fleet.begin() is None
    fleet.wait(3600)
    assert fleet.begin() is None  # The grace is not over.
    fleet.wait(45)
    assert fleet.begin() is not None
    [closed] = fleet.records()
    assert isinstance(closed, AccountClosed)
    assert (closed.trouble, closed.until) == ("limited", NOON + 3600)


def test_one_canary_goes_first_and_the_others_wait_for_its_answer() -> None:
    fleet = Fleet()
    refused(fleet, limit(60))
    fleet.wait(200)
    canary = fleet.canary()
    assert fleet.begin() is None
    fleet.accounts.answered(canary)
    assert fleet.begin() is not None


def test_after_the_canary_each_first_answer_lets_two_more_in() -> None:
    fleet = Fleet(workers=8)
    refused(fleet, limit(60))
    fleet.wait(200)
    canary = fleet.canary()
    fleet.accounts.answered(canary)
    sizes = []
    for _ in range(4):
        wave = fleet.begin_all()
        sizes.append(len(wave))
        for issue in wave:
            fleet.accounts.answered(issue)
            fleet.accounts.answered(issue)  # It goes on talking: that is no second proof.
    assert sizes == [2, 4, 1, 0]
    assert fleet.accounts.room(CLAUDE) == 0  # All eight are at work.


def test_a_reset_that_is_late_closes_again_and_backs_off() -> None:
    fleet = Fleet()
    refused(fleet, limit(60))
    waits = []
    for _ in range(4):
        fleet.wait(200)
        waited = 0
        while (canary := fleet.begin()) is None:
            fleet.wait(10)
            waited += 10
        waits.append(waited)
        fleet.accounts.ended(canary, limit(60))
    assert waits == sorted(waits)
    assert waits[-1] > 0


@pytest.mark.parametrize(
    ("until", "doubted", "waits"),
    [
        (3600.0, True, [900.0, 900.0]),  # Our reading of words: tried at each probe.
        (3600.0, False, [3630.0, 60.0]),
        (600.0, True, [630.0, 60.0]),
        (-10.0, True, [30.0, 60.0]),  # Just passed: it opens any moment.
        (-2000.0, True, [900.0, 900.0]),
        (None, True, [900.0, 900.0]),
    ],
)
def test_when_a_limit_is_tried_again(
    until: float | None, doubted: bool, waits: list[float]
) -> None:
    """Each wait with its spread, which no probe has."""
    fleet = Fleet()
    refusal = replace(limit(until), doubted=doubted)
    refused(fleet, refusal)
    for wait in waits:
        (closed,) = next(fleet.accounts.each()).closed.values()
        waited = closed.probe_at - fleet.effects.epoch
        assert wait <= waited <= min(wait * 1.5, max(wait + 15.0, 900.0))
        fleet.wait(waited)
        refused(fleet, refusal)


def test_a_start_goes_on_with_the_delay_of_the_last_one() -> None:
    fleet = Fleet()
    for refusals in (0, 3):
        closed = Closed(limit(None), NOON, fleet.effects.epoch, refusals, told_by="another")
        fleet.accounts.learn(CLAUDE, [closed])
        refused(fleet, limit(-1.0))
        (now,) = next(fleet.accounts.each()).closed.values()
        assert now.refusals == refusals + 1
        fleet.accounts.resume()
        fleet.accounts.ended(fleet.canary(), None)


def test_running_attempts_that_hear_of_the_same_wall_are_no_news() -> None:
    fleet = Fleet()
    begun = fleet.begin_all()
    for issue in begun:
        fleet.accounts.ended(issue, limit(3600))
    assert len(fleet.records()) == 1


def test_a_later_reset_is_news() -> None:
    fleet = Fleet()
    first, second, *_ = fleet.begin_all()
    fleet.accounts.ended(first, limit(3600))
    fleet.accounts.ended(second, limit(7200))
    assert len(fleet.records()) == 2
    fleet.wait(3700)
    assert fleet.accounts.room(CLAUDE) == 0


def test_a_canary_of_one_model_proves_nothing_of_a_limit_that_came_after_it_began() -> None:
    fleet = Fleet()
    first, other = fleet.begin(OPUS), fleet.begin()
    assert first is not None and other is not None
    fleet.accounts.ended(first, limit(60, model="opus"))
    fleet.wait(200)
    canary = fleet.begin(OPUS)
    assert canary is not None
    fleet.accounts.ended(other, limit(3600))
    fleet.accounts.answered(canary)
    assert fleet.begin() is None, "its answer came before the limit, and is heard behind it"


def test_an_answer_of_one_model_opens_the_account_and_that_model() -> None:
    fleet = Fleet()
    first, other = fleet.begin(OPUS), fleet.begin()
    assert first is not None and other is not None
    fleet.accounts.ended(first, limit(60, model="opus"))
    fleet.accounts.ended(other, limit(60))
    fleet.wait(200)
    canary = fleet.begin(OPUS)
    assert canary is not None
    fleet.accounts.answered(canary)
    opened = [r.model for r in fleet.records() if isinstance(r, AccountOpened)]
    assert opened == ["", "opus"]


def test_a_window_of_one_model_leaves_the_others() -> None:
    fleet = Fleet()
    issue = fleet.begin(OPUS)
    assert issue is not None
    fleet.accounts.ended(issue, limit(3600, model="opus"))
    assert fleet.begin(OPUS) is None
    assert fleet.begin(CLAUDE) is not None


def test_no_canary_of_the_account_has_a_model_whose_own_window_is_closed_for_longer() -> None:
    fleet = Fleet()
    first, other = fleet.begin(OPUS), fleet.begin()
    assert first is not None and other is not None
    fleet.accounts.ended(first, limit(3600, model="opus"))
    fleet.accounts.ended(other, limit(60))
    fleet.wait(200)
    assert fleet.begin(OPUS) is None, "it could only be refused"
    assert fleet.begin(CLAUDE) is not None


def test_another_agent_takes_over() -> None:
    fleet = Fleet()
    refused(fleet, limit())
    assert fleet.accounts.choose((CLAUDE, CODEX)) == CODEX


def test_a_person_is_needed_until_a_probe_passes() -> None:
    fleet = Fleet()
    refused(fleet, AccountRefusal(AccountTrouble.NEEDS_PERSON, "not logged in"))
    fleet.wait(600)
    assert fleet.begin() is None
    assert fleet.accounts.helpless_for() == pytest.approx(600)
    fleet.wait(1000)
    canary = fleet.canary()
    fleet.accounts.ended(canary, AccountRefusal(AccountTrouble.NEEDS_PERSON, "not logged in"))
    assert fleet.begin() is None
    assert fleet.accounts.helpless_for() == pytest.approx(1600)


def test_a_person_is_not_needed_while_another_account_works() -> None:
    fleet = Fleet()
    refused(fleet, AccountRefusal(AccountTrouble.NEEDS_PERSON, "not logged in"))
    assert fleet.begin(CLAUDE, CODEX) is not None
    assert fleet.accounts.helpless_for() is None


def test_resume_tries_at_once() -> None:
    fleet = Fleet()
    refused(fleet, limit(3600))
    fleet.accounts.resume()
    assert fleet.begin() is not None
    assert fleet.begin() is None


def test_an_overload_backs_off_and_is_charged_after_a_day() -> None:
    fleet = Fleet()
    overload = AccountRefusal(AccountTrouble.TRANSIENT, "overloaded")
    refused(fleet, overload)
    fleet.wait(20)
    assert fleet.begin() is None
    fleet.wait(40)
    canary = fleet.canary()
    assert not fleet.accounts.charges(canary)
    fleet.accounts.ended(canary, overload)
    fleet.wait(25 * 3600)
    canary = fleet.canary()
    assert fleet.accounts.charges(canary)


def test_a_canary_whose_worker_died_proves_nothing() -> None:
    fleet = Fleet()
    refused(fleet, limit(60))
    fleet.wait(200)
    canary = fleet.canary()
    fleet.accounts.ended(canary, None, lost=True)
    assert fleet.begin() is not None
    assert fleet.begin() is None


def test_a_canary_that_fails_for_another_reason_opens_the_account() -> None:
    fleet = Fleet()
    refused(fleet, limit(60))
    fleet.wait(200)
    canary = fleet.canary()
    fleet.accounts.ended(canary, None)
    assert isinstance(fleet.records()[-1], AccountOpened)


def test_near_a_limit_fewer_go_at_once() -> None:
    fleet = Fleet(workers=10)
    issue = fleet.begin()
    assert issue is not None
    fleet.accounts.warned(issue, 0.95)
    assert fleet.accounts.room(CLAUDE) == 4
    fleet.accounts.warned(issue, 0.999)
    assert fleet.accounts.room(CLAUDE) == 0


def test_what_another_fleet_found_out_holds_here_and_ends_with_it() -> None:
    fleet = Fleet()
    assert fleet.begin() is not None
    closed = Closed(limit(3600), NOON, NOON + 3630, told_by="another")
    fleet.accounts.learn(CLAUDE, [closed])
    assert fleet.begin() is None
    fleet.accounts.learn(CLAUDE, [])
    assert fleet.begin() is not None


def test_the_wall_clock_is_looked_at_each_minute_while_an_account_is_closed() -> None:
    fleet = Fleet()
    refused(fleet, limit(3600))
    assert fleet.effects.timers.at(ACCOUNTS) == pytest.approx(fleet.effects.now + 60)
    fleet.effects.at(60.0, boot=3700.0)  # A laptop has slept.
    assert fleet.accounts.look()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("begin", "answer", "limit", "end", "lose", "wait", "resume")),
            st.integers(0, 20),
        ),
        max_size=60,
    )
)
def test_a_closed_account_has_one_canary_at_most(moves: list[tuple[str, int]]) -> None:
    fleet = Fleet(workers=4)
    running: list[IssueId] = []
    for move, number in moves:
        match move:
            case "begin":
                closed = any(account.closed for account in fleet.accounts.each())
                if (issue := fleet.begin()) is not None:
                    running.append(issue)
                    account = next(fleet.accounts.each())
                    assert not closed or account.canary == issue
            case "wait":
                fleet.wait(number * 100)
            case "resume":
                fleet.accounts.resume()
            case _ if running:
                issue = running[number % len(running)]
                if move == "answer":
                    fleet.accounts.answered(issue)
                    continue
                running.remove(issue)
                refusal = limit(number * 100) if move == "limit" else None
                fleet.accounts.ended(issue, refusal, lost=move == "lose")
        assert fleet.accounts.room(CLAUDE) >= 0
        assert len(running) <= 4


@pytest.mark.parametrize(
    ("trouble", "why", "todo"),
    [
        (AccountTrouble.NEEDS_PERSON, "Not logged in", "claude /login"),
        (AccountTrouble.NEEDS_PERSON, "Credit balance is too low", ""),
        (AccountTrouble.LIMITED, "5-hour limit", ""),
    ],
)
def test_an_account_that_needs_a_login_names_the_command_of_it(
    trouble: AccountTrouble, why: str, todo: str
) -> None:
    fleet = Fleet()
    logins = {"claude": "claude /login"}
    fleet.accounts = Accounts(fleet.effects, ProbePace(), lambda: 8, logins)
    refused(fleet, AccountRefusal(trouble, why))
    [closed] = fleet.records()
    assert isinstance(closed, AccountClosed)
    assert closed.todo == todo
