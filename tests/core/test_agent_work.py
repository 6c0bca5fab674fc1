"""Agents between claim and TASK: labels, places, budgets, receipts, reviewers, foreign workers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from beads_workers.core.base.budget import Budget
from beads_workers.core.base.model import IssueId, Job, OutcomeKind
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.settings import Agent, ProbePace, StrongerTry, Work
from beads_workers.core.base.source import Action
from beads_workers.core.base.states import RunState
from beads_workers.core.base.wire import Progress, Task
from beads_workers.core.records import journal as rec
from beads_workers.core.records.receipts import Receipt, Tokens, to_json
from beads_workers.core.requests.why import gather
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Command
from beads_workers.core.schedule.events import ConnId, Ticket
from beads_workers.core.views.recovery import Checkpoint, recovery_state, resumed
from tests.core.playbook import BEGAN, EPOCH, Play, done, failed, job, lost, ready, sent_messages

CLAUDE = Agent("claude", (), "", adapter="claude", model="sonnet", account="c")
CODEX = Agent("codex", (), "", adapter="codex", account="x")
SPENT = Receipt("done", agent="claude", usage={"m": Tokens(900, 100)}, money=2.0)


class Fleet(Play):
    """Agents, workers 1, 2... that somebody else started, and a backlog of ``jobs``."""

    def __init__(self, *agents: Agent, workers: int = 0, **others: Any) -> None:
        work = Work(agents=agents or (CLAUDE,), **others.pop("work", {}))
        others.setdefault("policy", Policy(5, 10.0))
        super().__init__(workers, work=work, **others)
        self.jobs: dict[str, Job] = {}
        self.trips = 0

    def night(self, *jobs: str | Job, conns: Iterable[int] = (1,), seconds: float = 60.0) -> None:
        """These come in; idle workers ask for work, and the tracker answers all it is asked."""
        for each in jobs:
            added = each if isinstance(each, Job) else job(each)
            self.jobs[added.issue_id] = added
        for conn in conns:
            if self.core._parts.registry.get(ConnId(conn)) is None and self.ended is None:
                self.connect(conn)
        until = self.now + seconds
        while self.ended is None and self.now < until:
            for conn in conns:
                self._ask_for_work(conn)
            while self.round_trip is not None:
                self._trip()
            self.wait(1.0)

    def _ask_for_work(self, conn: int) -> None:
        connection = self.core._parts.registry.get(ConnId(conn))
        if connection is not None and connection.issue_id is None:
            self.do(ready(conn))

    def _trip(self) -> None:
        asked = self.round_trip
        assert asked is not None
        self.trips += 1
        for settlement in asked.settlements:
            if settlement.action is not Action.RELEASE:
                self.jobs.pop(settlement.issue_id, None)
        held = self.core._parts.tasks.in_flight.keys() - {s.issue_id for s in asked.settlements}
        there = [j for i, j in self.jobs.items() if i not in asked.skip | held]
        claimed = there[: asked.take or 0]
        self.answer(*claimed, listed=[j.issue_id for j in there[len(claimed) :]])

    def at_work(self) -> dict[str, int]:
        """Which connection has which issue."""
        flying = self.core._parts.tasks.in_flight.values()
        return {h.job.issue_id: h.conn_id for h in flying if h.issue.attempt and h.conn_id}

    def begun(self) -> list[str]:
        """The issues of all attempts so far."""
        return [e.record.issue_id for e in self.entries if isinstance(e.record, rec.Started)]

    def fails(self, issue_id: str, error: str = "boom", **fields: Any) -> list[Command]:
        """Its attempt ends so."""
        return self.do(failed(self.at_work()[issue_id], issue_id, error, **fields))

    def succeeds(self, issue_id: str, receipt: Receipt | None = None) -> list[Command]:
        """It ends well."""
        fields = None if receipt is None else to_json(receipt)
        return self.do(done(self.at_work()[issue_id], issue_id, receipt=fields))

    def is_refused(self, issue_id: str, seconds: float = 3600.0, **fields: Any) -> list[Command]:
        """Its account, or its reviewer's, is closed for so long."""
        until = EPOCH + self.now - BEGAN + seconds
        receipt = Receipt("limited", "5-hour limit", agent="claude", until=until, **fields)
        kind = OutcomeKind.RETRY
        return self.fails(issue_id, "5-hour limit", outcome=kind, receipt=to_json(receipt))

    def progress(self, issue_id: str, tokens: int, money: float | None = None) -> list[Command]:
        """It has used so much by now."""
        message = Progress(IssueId(issue_id), tokens=tokens, money=money)
        return self.do(ev.Received(ConnId(self.at_work()[issue_id]), message))

    def closed(self) -> list[str]:
        """The accounts that were closed, each time."""
        records = (entry.record for entry in self.entries)
        return [each.account for each in records if isinstance(each, rec.AccountClosed)]

    def opened(self) -> list[str]:
        """The accounts that were opened."""
        records = (entry.record for entry in self.entries)
        return [each.account for each in records if isinstance(each, rec.AccountOpened)]

    def waiting(self) -> set[IssueId]:
        """What was turned away."""
        return self.core._parts.agents.waiting()


def agent_of(commands: Iterable[Command]) -> dict[str, Any]:
    """What the one TASK says of its agent."""
    (task,) = [m for m in sent_messages(commands) if isinstance(m, Task)]
    return dict(task.payload["agent"])


# --- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "agent"),
    [
        ((), {"name": "claude", "model": "sonnet"}),
        (("agent:codex",), {"name": "codex"}),
        (("model:opus",), {"name": "claude", "model": "opus"}),
        (("agent:codex", "model:gpt"), {"name": "codex", "model": "gpt"}),
        (("agent:nobody",), {"name": "claude", "model": "sonnet"}),
    ],
)
def test_labels_choose_agent_and_model(labels: tuple[str, ...], agent: dict[str, Any]) -> None:
    play = Fleet(CLAUDE, CODEX)
    play.join(1)
    assert agent_of(play.answer(job("a", labels=labels))) == agent
    started = play.entries[-1].record
    assert isinstance(started, rec.Started)
    assert (started.agent, started.model) == (agent["name"], agent.get("model", ""))


def test_the_timeout_of_an_issue_goes_before_that_of_the_fleet() -> None:
    play = Fleet(work={"timeout_seconds": 60.0})
    play.join(1)
    (task,) = sent_messages(play.answer(job("a", timeout_seconds=7200.0)))
    assert isinstance(task, Task) and task.timeout_seconds == 7200.0


def test_an_issue_waits_for_the_agent_that_it_names_and_for_no_other() -> None:
    play = Fleet(CLAUDE, CODEX)
    play.night(job("a", labels=("agent:claude",)))
    play.is_refused("a")
    play.night(job("b", labels=("agent:claude",)), job("c", labels=("agent:codex",)))
    assert play.begun() == ["a", "c"] and play.waiting() == {"a", "b"}


def test_a_window_of_one_model_keeps_only_those_that_want_that_model() -> None:
    play = Fleet(CLAUDE)
    play.night(job("a", labels=("model:opus",)))
    play.is_refused("a", limited_model="opus")
    play.night(job("b", labels=("model:opus",)), "c")
    assert play.begun() == ["a", "c"] and play.waiting() == {"a", "b"}


# --- the last attempt -----------------------------------------------------------------------------

OPUS = replace(CLAUDE, escalate=StrongerTry("claude", "opus"))
TO_CODEX = replace(CLAUDE, escalate=StrongerTry("codex"))
RESERVE = replace(CODEX, reserve=True)


def tries(play: Fleet, labels: tuple[str, ...] = (), most: int = 5) -> list[tuple[str, str, str]]:
    """Who makes the attempts at an issue that always fails: agent, model, whose last one."""
    play.night(job("a", labels=labels))
    for _ in range(most):
        play.fails("a", receipt=to_json(Receipt("done", agent="x", session="s", instead_of="lies")))
        play.night(seconds=600.0)
    began = [e.record for e in play.entries if isinstance(e.record, rec.Started)]
    assert len(began) == most
    ends = [e.record for e in play.entries if isinstance(e.record, rec.Finished)]
    assert [end.receipt.instead_of if end.receipt else None for end in ends] == [
        each.instead_of for each in began
    ]
    assert ends[-1].verdict == "quarantined"
    return [(each.agent, each.model, each.instead_of) for each in began]


@pytest.mark.parametrize(
    ("agents", "labels", "last"),
    [
        ((OPUS,), (), ("claude", "opus", "claude sonnet")),
        ((TO_CODEX, RESERVE), (), ("codex", "", "claude sonnet")),
        # A person has chosen for this issue.
        ((OPUS,), ("agent:claude",), ("claude", "opus", "claude sonnet")),
        ((TO_CODEX, RESERVE), ("agent:claude",), ("claude", "sonnet", "")),
        ((OPUS,), ("model:sonnet",), ("claude", "sonnet", "")),
        ((CLAUDE,), (), ("claude", "sonnet", "")),
    ],
)
def test_the_last_attempt_before_the_quarantine_is_the_stronger_one(
    agents: tuple[Agent, ...], labels: tuple[str, ...], last: tuple[str, str, str]
) -> None:
    began = tries(Fleet(*agents), labels)
    assert began == [("claude", "sonnet", "")] * 4 + [last]


def test_an_agent_in_reserve_begins_nothing_else_unless_an_issue_names_it() -> None:
    play = Fleet(TO_CODEX, RESERVE)
    play.night("a")
    play.is_refused("a")
    play.night("b", job("c", labels=("agent:codex",)), conns=(1, 2))
    assert play.begun() == ["a"], "the fleet's own agent is closed"


def test_whoever_has_asked_goes_on_with_the_answer() -> None:
    asked = rec.Checkpointed(
        "a", "title", question="FOO or BAR?", receipt=Receipt("question", agent="codex")
    )
    play = Fleet(CLAUDE, CODEX, checkpointed=[asked, replace(asked, issue_id="b", question="")])
    play.night("a", "b", conns=(1, 2))
    began = [e.record for e in play.entries if isinstance(e.record, rec.Started)]
    assert {each.issue_id: each.agent for each in began} == {"a": "codex", "b": "claude"}


def test_a_last_attempt_begins_while_only_the_usual_agent_is_closed() -> None:
    play = Fleet(TO_CODEX, RESERVE, checkpointed=[rec.Checkpointed("z", "title", charged=4)])
    play.night("a")
    play.is_refused("a", 7200.0)
    play.night("b", "z", conns=(1, 2))
    assert play.begun() == ["a", "z"] and play.waiting() == {"a", "b"}
    trips = play.trips
    play.night(conns=(1, 2), seconds=600.0)
    assert play.begun() == ["a", "z"] and play.trips < trips + 20, "the others wait in peace"


def test_an_only_attempt_is_no_last_one() -> None:
    play = Fleet(OPUS, policy=Policy(1, 10.0))
    assert tries(play, most=1) == [("claude", "sonnet", "")]


def test_why_says_who_makes_the_last_attempt() -> None:
    play = Fleet(OPUS, policy=Policy(2, 10.0))
    play.night("a")
    (first,) = gather(play.core._parts, [IssueId("a")]).issues
    play.fails("a")
    (cooling,) = gather(play.core._parts, [IssueId("a")]).issues
    play.night(seconds=60.0)
    (last,) = gather(play.core._parts, [IssueId("a")]).issues
    assert (first.by, cooling.by, last.by) == ("", "claude opus", "claude opus")


def test_attempts_of_earlier_runs_count_for_the_last_one() -> None:
    before = rec.Checkpointed("a", "title", charged=4)
    play = Fleet(OPUS, checkpointed=[before])
    play.night("a")
    began = [e.record for e in play.entries if isinstance(e.record, rec.Started)]
    assert [(each.model, each.attempt) for each in began] == [("opus", 5)]


# --- places ---------------------------------------------------------------------------------------

ONE = Agent("claude", (), "", adapter="claude", account="c", at_once=1)


def test_no_more_of_an_agent_run_at_once_than_it_may() -> None:
    play = Fleet(ONE)
    play.night("a", "b", conns=(1, 2))
    assert play.begun() == ["a"]
    play.succeeds("a")
    play.night(conns=(1, 2))
    assert play.begun() == ["a", "b"]


def test_who_finds_all_places_taken_is_released_once_and_waits_for_one() -> None:
    play = Fleet(ONE, CODEX)
    labels = ("agent:claude",)
    play.night("a", job("b", labels=labels), job("c", labels=labels), conns=(1, 2, 3))
    assert play.begun() == ["a"] and play.waiting() == {"b", "c"}
    assert play.trips < 20, "the tracker is left alone meanwhile"
    play.succeeds("a")
    play.night(conns=(1, 2, 3))
    assert play.begun() == ["a", "b"]
    play.succeeds("b")
    play.night(conns=(1, 2, 3))
    assert play.begun() == ["a", "b", "c"]


def test_who_is_turned_away_behind_a_canary_is_taken_when_there_is_room_again() -> None:
    play = Fleet(CLAUDE, CODEX)
    label = ("agent:claude",)
    play.night(job("a", labels=label))
    play.is_refused("a", 60.0)
    play.night(*(job(i, labels=label) for i in "bcd"), conns=(1, 2, 3), seconds=200.0)
    (canary,) = play.at_work()
    play.succeeds(canary)
    play.night(conns=(1, 2, 3))
    assert len(play.at_work()) == 3 and not play.waiting()


# --- workers of others ----------------------------------------------------------------------------


def test_workers_of_others_count_where_the_fleet_has_none() -> None:
    play = Fleet()
    play.night("a", "b", "c", conns=(1, 2, 3))
    assert play.begun() == ["a", "b", "c"]


def test_and_come_on_top_of_its_own() -> None:
    play = Fleet(workers=1)
    play.quiet()
    play.own(1)
    play.night("a", "b", "c", conns=(1, 2, 3))
    assert play.begun() == ["a", "b", "c"]


def test_a_lost_worker_that_may_be_at_work_takes_no_place_of_the_others() -> None:
    play = Fleet(orphan_grace_seconds=None)
    play.night("a", "b", conns=(1, 2))
    play.do(lost(play.at_work()["a"]))
    play.succeeds("b")
    play.night("c", conns=(2,))
    assert play.begun() == ["a", "b", "c"]


# --- budgets --------------------------------------------------------------------------------------


def test_a_spent_budget_pauses_and_says_why() -> None:
    play = Fleet(budget=Budget(dollars=2.0))
    play.night("a", "b")
    play.succeeds("a", SPENT)
    play.night()
    changed = [e.record for e in play.entries if isinstance(e.record, rec.RunChanged)][-1]
    assert changed.state == "paused" and changed.reason.startswith("the budget of $2 is spent")
    play.do(ev.ResumeAsked(Ticket(1)))
    play.night()
    assert play.begun() == ["a"]


def test_with_until_empty_what_runs_comes_to_its_end_and_the_exit_code_is_7() -> None:
    play = Fleet(budget=Budget(dollars=2.0), until_empty=True)
    play.night("a", "b", "c", conns=(1, 2))
    play.succeeds("a", SPENT)
    play.night(conns=())
    assert play.ended is None
    play.succeeds("b")
    play.do(lost(1), lost(2))
    play.night(conns=())
    assert play.ended == 7 and play.begun() == ["a", "b"]


def test_what_its_file_says_takes_the_place_of_its_progress() -> None:
    play = Fleet(budget=Budget(tokens=1000))
    play.night("a")
    play.progress("a", 600)
    play.fails("a", "killed")
    found = Receipt("unfinished", agent="claude", usage={"m": Tokens(700)})
    play.do(ev.UsageRead(IssueId("a"), 1, "run-1.1", found))
    assert play.core._parts.agents.ledger.spent().tokens == 700
    assert play.board.agents.ledger.spent().tokens == 700


def test_an_issue_that_has_spent_its_own_budget_is_quarantined() -> None:
    play = Fleet(issue_budget=Budget(dollars=3.0))
    play.night("a")
    play.fails("a", "verify failed", receipt=to_json(SPENT))
    play.night()
    assert play.begun() == ["a", "a"]
    play.fails("a", "verify failed", receipt=to_json(SPENT))
    settlement = play.settlement()
    assert settlement.action is Action.QUARANTINE and "budget of $3 is spent" in settlement.note


# --- receipts over a restart ----------------------------------------------------------------------


def test_a_receipt_and_what_was_spent_outlive_a_restart() -> None:
    budget = Budget(dollars=3.0)
    receipt = Receipt("unfinished", agent="claude", session="s", money=2.0, lesson="tests fail")
    play = Fleet(issue_budget=budget)
    play.night("a")
    play.fails("a", "verify failed", receipt=to_json(receipt))
    play.night(seconds=1.0)
    again = Fleet(checkpointed=recovery_state(play.entries).checkpoint(), issue_budget=budget)
    again.wait(60)
    again.join(1)
    agent = agent_of(again.answer("a"))
    assert agent["money"] == 1.0 and agent["error"] == "verify failed"
    assert (agent["earlier"]["session"], agent["earlier"]["lesson"]) == ("s", "tests fail")
    again.fails("a", "verify failed", receipt=to_json(receipt))
    assert again.settlement().action is Action.QUARANTINE


def test_they_outlive_a_new_segment_of_the_journal_as_well() -> None:
    play = Fleet()
    play.night("a")
    play.fails("a", "x", receipt=to_json(SPENT))
    checkpoint, last = Checkpoint(), play.entries[-1]
    for entry in play.entries:
        checkpoint.apply(entry)
    issues, counts = play.board.issues, resumed(play.board, 2)
    entries = checkpoint.entries(issues, counts, None, last.at, last.elapsed)
    (repeated,) = recovery_state(entries).checkpoint()
    assert (repeated.money, repeated.tokens, repeated.counted) == (2.0, 1000, "run-1.1")


# --- reviewers ------------------------------------------------------------------------------------


def test_the_limit_of_a_reviewer_parks_the_review_and_keeps_branch_and_verdict() -> None:
    play = Fleet(CLAUDE, work={"review": CODEX})
    play.night("a")
    play.is_refused("a", 600.0, refused="codex", branch="bw/a/1", session="s")
    play.night("b", conns=(1, 2), seconds=500.0)
    assert play.begun() == ["a", "b"], "it has nothing to do but to be reviewed"
    assert play.closed() == ["x"] and play.waiting() == {"a"}
    play.night(conns=(1, 2), seconds=200.0)
    issue = play.board.issues.known["a"]
    assert play.begun() == ["a", "b", "a"] and issue.charged == 0
    assert issue.retry_entry is not None and issue.retry_entry.receipt is not None
    assert issue.retry_entry.receipt.branch == "bw/a/1"
    play.succeeds("a")
    assert any(isinstance(e.record, rec.AccountOpened) for e in play.entries)


def test_one_review_finds_out_whether_a_late_reset_has_come() -> None:
    play = Fleet(CLAUDE, work={"review": CODEX})
    play.night("a", "b", conns=(1, 2))
    for issue_id in ("a", "b"):
        play.is_refused(issue_id, 60.0, refused="codex")
    play.night(conns=(1, 2), seconds=200.0)
    assert len(play.at_work()) == 1
    (canary,) = play.at_work()
    play.is_refused(canary, 0.0, refused="codex")
    assert play.closed() == ["x", "x"]
    play.night(conns=(1, 2), seconds=15.0)
    assert not play.at_work(), "it backs off"


def test_a_review_that_passes_shows_that_its_account_is_open_again() -> None:
    play = Fleet(CLAUDE, work={"review": CODEX})
    play.night("a")
    play.is_refused("a", 60.0, refused="codex")
    play.night("b", conns=(1, 2), seconds=30.0)
    play.succeeds("b")
    assert play.opened() == [], "its review was over before the reset"
    play.jobs.pop("a")
    play.night("c", conns=(1, 2), seconds=200.0)
    play.succeeds("c")
    assert play.opened() == ["x"]


# --- what proves an account -----------------------------------------------------------------------


def test_a_canary_that_is_ended_before_its_agent_had_an_answer_proves_nothing() -> None:
    play = Fleet()
    play.night("a")
    play.is_refused("a", 60.0)
    play.night("b", "c", conns=(1, 2, 3), seconds=200.0)
    (canary,) = play.at_work()
    receipt = to_json(Receipt("unfinished", "told to end", agent="claude"))
    play.fails(canary, "cancelled", outcome=OutcomeKind.CANCELLED, receipt=receipt)
    assert play.opened() == []
    play.night(conns=(1, 2, 3))
    assert len(play.at_work()) == 1, "one more canary"
    (canary,) = play.at_work()
    play.fails(canary, "verify failed", receipt=to_json(SPENT))
    assert play.opened() == ["c"]


# --- what it was up against -----------------------------------------------------------------------


@pytest.mark.parametrize("verdict", ["needs_person", "transient", "limited"])
def test_a_time_out_of_an_agent_that_was_refused_is_not_charged(verdict: str) -> None:
    play = Fleet()
    play.night("a")
    receipt = to_json(Receipt(verdict, "error 500, attempt 9", agent="claude"))
    play.fails("a", "timed out after 15 s", outcome=OutcomeKind.TIMEOUT, receipt=receipt)
    (finished,) = (e.record for e in play.entries if isinstance(e.record, rec.Finished))
    assert (finished.charged, finished.verdict, play.closed()) == (0, "requeue", ["c"])


HANG = Receipt("unfinished", "it said nothing for too long", agent="claude", session="s-17")


def test_what_fails_alike_on_three_issues_without_an_answer_closes_the_account() -> None:
    play = Fleet()
    play.night("a", "b", "c", conns=(1, 2, 3))
    play.fails("a", receipt=to_json(HANG))
    play.night(seconds=15.0)
    play.fails("a", receipt=to_json(HANG))
    play.fails("b", outcome=OutcomeKind.TIMEOUT, receipt=to_json(HANG))
    assert play.closed() == []
    play.fails("c", receipt=to_json(HANG))
    refunds = {
        e.record.issue_id: e.record for e in play.entries if isinstance(e.record, rec.Refunded)
    }
    assert {each: record.charged for each, record in refunds.items()} == {"a": 0, "b": 0}
    assert play.closed() == ["c"]
    (account,) = play.core._parts.agents.accounts.each()
    assert play.core._parts.agents.accounts.todo(account, account.closed["sonnet"].refusal) == ""
    play.night(conns=(1, 2, 3), seconds=1400.0)
    (canary,) = play.at_work()
    play.fails(canary, receipt=to_json(HANG))
    assert play.closed() == ["c", "c"], "its canary proves nothing else"
    assert not any(issue.charged for issue in play.core._effects.issues.known.values())


@pytest.mark.parametrize(
    "other",
    [
        replace(HANG, why="verify failed", lesson="no such file"),
        replace(HANG, usage={"m": Tokens(5, 1)}),
        replace(HANG, message="I cannot find the cart."),
        replace(HANG, commits=("abc",), head="abc"),
        replace(HANG, why="another error"),
        replace(HANG, verdict="no_change", message=HANG.why),
    ],
    ids=["verify", "tokens", "words", "commits", "otherwise", "no change"],
)
def test_what_had_an_answer_or_looks_otherwise_is_the_issues_own(other: Receipt) -> None:
    play = Fleet()
    play.night("a", "b", "c", "d", conns=(1, 2, 3, 4))
    for issue_id, receipt in zip("abcd", (HANG, HANG, other, HANG), strict=True):
        play.fails(issue_id, receipt=to_json(receipt))
    assert play.closed() == []


# --- until empty ----------------------------------------------------------------------------------


def test_a_run_until_empty_waits_for_a_limit_and_goes_on_after_it() -> None:
    play = Fleet(until_empty=True)
    play.night("a")
    play.is_refused("a", 600.0)
    play.night(seconds=500.0)
    assert play.ended is None and play.begun() == ["a"]
    play.night(seconds=200.0)
    assert play.begun() == ["a", "a"]
    play.succeeds("a")
    play.do(lost(1))
    play.night(conns=())
    assert play.ended == 0


def test_a_login_that_nobody_mends_ends_it_at_last() -> None:
    play = Fleet(until_empty=True, pace=ProbePace(person_wait_seconds=7200.0))
    receipt = to_json(Receipt("needs_person", "Not logged in", agent="claude"))
    play.night("a")
    while play.ended is None and play.now < EPOCH:
        if play.at_work():
            play.fails("a", "Not logged in", outcome=OutcomeKind.RETRY, receipt=receipt)
        play.night(seconds=10.0)
        if play.core.state is RunState.STOPPING:
            play.do(lost(1))
    assert play.ended == 7
    assert 7200.0 < play.now - BEGAN < 7200.0 + 900.0
    assert len(play.begun()) <= 1 + 7200 // 900, "one probe each quarter of an hour"
