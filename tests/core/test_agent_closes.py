"""What an agent does to its own issue in the tracker does not count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.settings import Agent, Work
from beads_workers.core.base.source import Action
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry
from beads_workers.core.schedule.commands import SyncJournal
from beads_workers.core.views.recovery import RecoveryState
from tests.core.playbook import Play, done, failed, of

CLAUDE = Agent("claude", (), "", adapter="claude", account="acc")


@pytest.mark.parametrize(("attempts", "action"), [(3, Action.RELEASE), (1, Action.QUARANTINE)])
def test_a_close_by_an_agent_that_failed_is_undone(attempts: int, action: Action) -> None:
    play = Play(4, work=Work(agents=(CLAUDE,)), policy=Policy(attempts))
    play.working("a")
    play.do(failed(1, "a", "verify failed"))
    settlement = play.settlement()
    assert settlement.action is action
    assert settlement.by_agent and settlement.read_first


def test_one_that_succeeded_is_closed_with_our_reason_whoever_was_first() -> None:
    play = Play(4, work=Work(agents=(CLAUDE,)))
    play.working("a")
    play.do(done(1, "a", receipt={"verdict": "done", "agent": "claude"}))
    settlement = play.settlement()
    assert settlement.action is Action.CLOSE
    assert settlement.by_agent and settlement.read_first
    assert settlement.note == "done, by claude; attempt 1"


def test_a_command_may_close_its_issue_by_itself() -> None:
    play = Play(4)
    play.working("a")
    play.do(failed(1, "a"))
    assert not play.settlement().by_agent


def test_that_an_agent_has_begun_is_on_disk_soon() -> None:
    assert of(Play(4, work=Work(agents=(CLAUDE,))).working("a"), SyncJournal)
    assert not of(Play(4).working("a"), SyncJournal)


STARTED = rec.Started("a", "W1", 1, "run-1.1", agent="claude")
FAILED = rec.Finished("a", "W1", 1, "run-1.1", "error", "requeue", agent="claude")
DONE = rec.Finished("a", "W1", 1, "run-1.1", "success", "finish", agent="claude")


@pytest.mark.parametrize(
    ("told", "by_agents"),
    [
        ((STARTED,), ("a",)),
        ((STARTED, FAILED), ("a",)),
        ((STARTED, DONE), ("a",)),
        ((STARTED, FAILED, rec.SettledRecord("a", "release", "applied")), ()),
        ((replace(STARTED, agent=""),), ()),
        ((replace(STARTED, agent=""), replace(FAILED, agent="")), ()),
    ],
)
def test_of_a_crashed_run_one_knows_what_agents_had_in_hand(
    told: tuple[rec.Record, ...], by_agents: tuple[str, ...]
) -> None:
    left = RecoveryState("run-1", "beads-workers/h/run-1")
    for number, record in enumerate((rec.Claimed("a", "A"), *told)):
        left.apply(Entry(record, 5.0, float(number)))
    (dead,) = left.unsettled_runs()
    assert dead.by_agents == by_agents
    for settlement in (dead.back(IssueId("a")), *dead.closes([IssueId("a")])):
        assert settlement.by_agent is bool(by_agents)
