"""What an attempt had used that never said it: found on the disk, and counted once."""

from __future__ import annotations

import pytest

from beads_workers.core.base.budget import Budget
from beads_workers.core.base.model import Call, IssueId
from beads_workers.core.base.night import NightSoFar
from beads_workers.core.base.settings import Agent, Work
from beads_workers.core.base.wire import Task
from beads_workers.core.records import journal as rec
from beads_workers.core.records.issues import Issues
from beads_workers.core.records.journal import Checkpointed, Entry
from beads_workers.core.records.money import UnderWay
from beads_workers.core.records.receipts import Receipt, Tokens, to_json
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import ReadUsage
from beads_workers.core.views.recovery import Checkpoint, RecoveryState, resumed
from tests.core.playbook import (
    Play,
    cancelled,
    done,
    failed,
    job,
    lost,
    of,
    ready,
    records,
    sent_messages,
)

FOUND = Receipt("unfinished", agent="claude", session="s", usage={"m": Tokens(900, 100)}, money=2.0)
CLAUDE = Agent("claude", (), "", adapter="claude", account="acc")


def play_of_agents(**others: object) -> Play:
    """A fleet with one agent."""
    return Play(4, work=Work(agents=(CLAUDE,)), **others)


def read(request_id: str, issue_id: str = "a") -> ev.UsageRead:
    """The edge has found ``FOUND``."""
    return ev.UsageRead(IssueId(issue_id), 1, request_id, FOUND)


def test_the_usage_of_an_attempt_whose_worker_died_is_read_and_counted() -> None:
    play = play_of_agents()
    play.working("a")
    play.do(lost(1))
    (asked,) = of(play.do(ev.OwnerGone(901)), ReadUsage)
    assert asked == ReadUsage(IssueId("a"), 1, "run-1.1")
    (found,) = records(play.do(read(asked.request_id)), rec.UsageFound)
    assert found.request_id == asked.request_id
    assert play.board.agents.ledger.total.money == 2.0
    issue = play.board.issues.known["a"]
    assert issue.retry_entry is not None
    assert (issue.retry_entry.money, issue.retry_entry.tokens) == (2.0, 1000)


def test_it_is_counted_once_whoever_finds_it_again() -> None:
    play = play_of_agents()
    play.working("a")
    play.do(failed(1, "a", "killed"))
    play.do(read("run-1.1"))
    assert not records(play.do(read("run-1.1")), rec.UsageFound)
    assert play.board.agents.ledger.total.money == 2.0


@pytest.mark.parametrize("end", [failed(1, "a"), cancelled(1, "a")])
def test_it_is_read_of_every_attempt_that_says_nothing_of_it(end: ev.Received) -> None:
    play = play_of_agents()
    play.working("a")
    assert of(play.do(end), ReadUsage)


def test_an_attempt_with_a_receipt_needs_none() -> None:
    play = play_of_agents()
    play.working("a")
    receipt = to_json(FOUND)
    assert not of(play.do(failed(1, "a", receipt=receipt), ready(1)), ReadUsage)
    assert play.board.agents.ledger.total.money == 2.0


def test_nor_does_one_that_no_agent_works_on() -> None:
    play = play_of_agents()
    play.join(1)
    play.answer(job("a", command=("true",)))
    assert not of(play.do(failed(1, "a")), ReadUsage)
    plain = Play()
    plain.working("a", call=Call("shop.f"))
    assert not of(plain.do(failed(1, "a")), ReadUsage)


def test_the_next_attempt_goes_on_with_the_session_that_was_found() -> None:
    play = play_of_agents()
    play.working("a")
    play.do(failed(1, "a", "killed"))
    play.do(read("run-1.1"))
    play.quiet()
    play.wait(60)
    play.do(ready(1))
    play.quiet()
    play.wait(60)
    (task,) = [
        m for m in sent_messages(play.do(ready(1)) + play.answer(job("a"))) if isinstance(m, Task)
    ]
    earlier = task.payload["agent"]["earlier"]
    assert (earlier["session"], earlier["usage"]) == ("s", {"m": {"input": 900, "output": 100}})


def test_what_a_crashed_run_had_used_is_in_the_nights_ledger_and_in_its_issue() -> None:
    play = play_of_agents(
        recovering=True,
        checkpointed=[Checkpointed("a", charged=1, money=1.0, counted="run-0.1")],
        night=NightSoFar("run-0", 1, money=1.0, tokens=500),
    )
    play.do(read("run-0.2"))
    ledger = play.board.agents.ledger
    assert (ledger.spent().money, ledger.spent_in_night()) == (0.0, UnderWay(1500, 3.0, 1))
    entry = play.board.issues.known["a"].retry_entry
    assert entry is not None and (entry.money, entry.charged) == (3.0, 1)


def test_the_usage_in_a_spooled_result_is_in_the_nights_ledger_and_lacks_nothing() -> None:
    play = play_of_agents(recovering=True, night=NightSoFar("run-0", 1, money=1.0, tokens=500))
    whole = ev.UsageRead(IssueId("a"), 1, "run-0.2", FOUND, whole=True)
    play.do(whole)
    known = Checkpointed("a", claimed_by="x", money=2.0, tokens=1000, counted="run-0.2")
    play.do(ev.RecoveryEnded((), late_entries=(known,)), whole)
    assert play.board.agents.ledger.spent_in_night() == UnderWay(1500, 3.0, 0)
    entry = play.board.issues.known["a"].retry_entry
    assert entry is not None and entry.money == 2.0


def test_what_a_run_of_an_earlier_night_had_used_is_not_in_this_nights_ledger() -> None:
    play = play_of_agents(recovering=True, night=NightSoFar("run-0b", 1, money=1.0))
    play.do(read("run-0a.1"))
    assert play.board.agents.ledger.spent_in_night().money == 1.0
    assert play.board.issues.known["a"].retry_entry is not None


def test_a_run_that_stays_unsettled_is_read_again_and_not_counted_after_later_attempts() -> None:
    known = [Checkpointed("a", charged=1, money=3.0, counted="run-0b.1")]
    play = play_of_agents(recovering=True, checkpointed=known)
    assert not records(play.do(read("run-0a.5")), rec.UsageFound)
    assert records(play.do(read("run-0b.2")), rec.UsageFound)


def test_a_recovery_that_is_repeated_counts_it_once() -> None:
    """The run that recovered first has died of it: its journal is what the next one knows."""
    first = play_of_agents(recovering=True)
    first.do(read("run-0.1"))
    left = RecoveryState()
    for entry in first.entries:
        left.apply(entry)
    second = play_of_agents(recovering=True, checkpointed=left.checkpoint())
    assert not records(second.do(read("run-0.1")), rec.UsageFound)
    entry = second.board.issues.known["a"].retry_entry
    assert entry is not None and entry.money == 2.0


def test_a_checkpoint_that_repeats_an_end_does_not_charge_for_it_again() -> None:
    play = play_of_agents()
    play.join(1)
    play.join(2)
    play.answer("a", "b")
    play.do(failed(1, "a", receipt=to_json(FOUND)), failed(2, "b", "killed"))
    play.do(read("run-1.2", "b"))
    checkpoint = Checkpoint()
    for entry in play.entries:
        checkpoint.apply(entry)
    read_again = Issues()
    issues = play.board.issues
    for entry in checkpoint.entries(issues, resumed(play.board, 2), None, 0.0, 0.0):
        read_again.apply(entry)
    for issue_id in ("a", "b"):
        retry_entry = read_again.known[issue_id].retry_entry
        assert retry_entry is not None and retry_entry.money == 2.0


def crashed(*records: rec.Record) -> RecoveryState:
    """A run whose journal ends with these."""
    left = RecoveryState(run_id="run-0")
    for number, record in enumerate(records):
        left.apply(Entry(record, 5.0, float(number)))
    return left


STARTED = rec.Started("a", "W1", 1, "run-0.1", agent="claude")
ENDED = rec.Finished("a", "W1", 1, "run-0.1", "lost", "requeue", charged=1)


@pytest.mark.parametrize(
    ("told", "unread"),
    [
        ((STARTED,), ["run-0.1"]),
        ((STARTED, ENDED), ["run-0.1"]),
        ((STARTED, ENDED, rec.UsageFound("a", 1, "run-0.1", FOUND)), []),
        ((rec.Started("a", "W1", 1, "run-0.1"),), []),
        (
            (STARTED, rec.Finished("a", "W1", 1, "run-0.1", "lost", "requeue", receipt=Receipt())),
            [],
        ),
        ((STARTED, ENDED, rec.SettledRecord("a", "release", "applied")), []),
    ],
)
def test_a_crashed_run_says_whose_usage_nobody_has_read(
    told: tuple[rec.Record, ...], unread: list[str]
) -> None:
    assert [each.request_id for each in crashed(*told).unread] == unread


def test_a_success_with_its_receipt_is_counted_as_it_is() -> None:
    play = play_of_agents()
    play.working("a")
    assert not of(play.do(done(1, "a", receipt=to_json(FOUND))), ReadUsage)
    assert play.board.agents.ledger.total.money == 2.0


@pytest.mark.parametrize(("per_run", "is_paused"), [(False, True), (True, False)])
def test_a_budget_counts_the_earlier_runs_of_the_night_unless_it_is_per_run(
    per_run: bool, is_paused: bool
) -> None:
    night = NightSoFar("run-0", 1, money=1.0)
    play = play_of_agents(budget=Budget(dollars=2.5, per_run=per_run), night=night)
    play.working("a")
    play.do(failed(1, "a", receipt=to_json(FOUND)))
    assert (play.board.state == "paused") is is_paused


def test_a_budget_that_a_killed_agent_has_spent_begins_nothing_more() -> None:
    night = NightSoFar("run-0", 1, money=1.0)
    play = play_of_agents(recovering=True, budget=Budget(dollars=2.5), night=night)
    play.do(read("run-0.1"))
    play.do(ev.RecoveryEnded())
    assert play.board.state == "paused" and "$2.5 is spent" in play.board.state_reason


@pytest.mark.parametrize("until_empty", [False, True])
def test_a_budget_that_is_spent_is_a_record_before_what_follows_from_it(until_empty: bool) -> None:
    play = play_of_agents(budget=Budget(dollars=1.5), until_empty=until_empty)
    play.working("a")
    commands = play.do(failed(1, "a", receipt=to_json(FOUND)))
    (spent,) = records(commands, rec.BudgetSpent)
    assert spent.why == "the budget of $1.5 is spent ($2.00, 1000 tokens)"
    (changed,) = records(commands, rec.RunChanged)[:1]
    assert changed.state == ("draining" if until_empty else "paused")
    assert until_empty or changed.reason == spent.why
