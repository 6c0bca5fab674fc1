"""A fleet is told by another one that an account is closed, and that it opens."""

from __future__ import annotations

from beads_workers.core.base.settings import Agent, Work
from beads_workers.core.records import journal as rec
from beads_workers.core.records.receipts import AccountId, AccountRefusal, AccountTrouble, Closed
from beads_workers.core.schedule import events as ev
from tests.core.playbook import EPOCH, Play, job, records, task_of

CLAUDE = Agent("claude", (), "", adapter="claude", account="acc")
REFUSAL = AccountRefusal(AccountTrouble.LIMITED, "5 hours", EPOCH + 600)


def account_told(*closed: Closed) -> ev.AccountTold:
    """By another fleet."""
    return ev.AccountTold(AccountId("acc"), closed)


def test_nothing_is_begun_on_an_account_that_another_fleet_found_closed() -> None:
    play = Play(4, work=Work(agents=(CLAUDE,)), recovering=True)
    play.do(account_told(Closed(REFUSAL, EPOCH, EPOCH + 630, told_by="run-0")))
    play.do(ev.RecoveryEnded())
    play.join(1)
    if play.round_trip is not None:
        assert not play.round_trip.take, "nothing is claimed for a closed account"
        play.quiet()
    play.wait(500)
    assert not [e for e in play.entries if isinstance(e.record, rec.Started)]


def test_when_that_opens_it_work_is_taken_at_once() -> None:
    play = Play(4, work=Work(agents=(CLAUDE,)))
    play.quiet()
    play.do(account_told(Closed(REFUSAL, EPOCH, EPOCH + 630, told_by="run-0")))
    opened = records(play.do(account_told()), rec.AccountOpened)
    assert [each.account for each in opened] == ["acc"]
    play.join(1)
    assert task_of(play.answer(job("a")), 1) == "a"


def test_an_account_that_nobody_here_has_is_nothing() -> None:
    play = Play(4, work=Work(agents=(CLAUDE,)))
    strange = ev.AccountTold(AccountId("x"), (Closed(REFUSAL, EPOCH, EPOCH + 630),))
    assert not records(play.do(strange), rec.AccountClosed)
