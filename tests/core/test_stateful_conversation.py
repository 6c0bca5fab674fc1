"""Questions, answers, approvals and closes by people, in any order, with kills at any record.

Hypothesis plays the agents, the people and the lander around one orchestrator after another. The
tracker is the real in-memory one, and each start reads what the journals of its predecessors hold.
An account of our own, of what was said and heard, tells what each TASK and each landing must be:
nothing lands unapproved, no answer is lost, nothing is charged twice.
Source: docs/SEMANTICS.md, "Questions", "Approvals", "Recovery".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import floor
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from beads_workers.core.base.model import IssueId, OutcomeKind
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.settings import Work
from beads_workers.core.base.source import (
    Action,
    Result,
    Settlement,
    answers,
    read_replies,
    reopening,
)
from beads_workers.core.base.wire import Done, Task, Wait
from beads_workers.core.records import journal as rec
from beads_workers.core.records import landing as ld
from beads_workers.core.records.issues import REMARKS, Standing
from beads_workers.core.records.journal import Entry, Record, decode, encode
from beads_workers.core.records.landing import LAND_ASK
from beads_workers.core.requests.answer import AnsweredInTracker
from beads_workers.core.requests.approve import ApprovedByPerson
from beads_workers.core.requests.reject import RejectedByPerson
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer, Command, Send, Spawn, TellLander, Write
from beads_workers.core.schedule.events import ConnId, Event
from beads_workers.core.views.recovery import RecoveryState, left_over, recovery_state, replay
from beads_workers.trackers.issue import TrackerIssue
from beads_workers.trackers.settlement_rules import Ownership
from tests.contracts.memory import MemorySource, MemoryTracker
from tests.core import playbook
from tests.core.playbook import BEGAN, EPOCH, Play
from tests.core.test_landings import CLAUDE, LANDING, TIP, work_of
from tests.support.shares import examples

ISSUES = ("a", "b")
"""The first has the label ``land:ask``; the other is like it in runs with ``--approve``."""
WORKERS = 2
ATTEMPTS_MAX, QUESTIONS_MAX = 2, 1
POLICY = Policy(ATTEMPTS_MAX, 5.0, questions_max=QUESTIONS_MAX)
T = ev.Ticket(1)
OPEN, BLOCKED, CLOSED = (Ownership(status, "") for status in ("open", "blocked", "closed"))
TAKEN = (CLOSED, Ownership("deferred", ""), Ownership("in_progress", "bob"))
"""An issue that waits for nobody in a fleet: a person has closed it, put it off, or taken it."""
RecordT = TypeVar("RecordT", bound=Record)
DRAIN_TURNS = 5
KILLED = st.none() | st.integers(0, 6)
"""Whether, and after how many more records, the fleet is killed."""
LATER = 31.0
"""Seconds after which comments are read again, and every delay here is over."""


@dataclass
class Account:
    """What was said about an issue, and what the fleet must know of it.

    ``question``: the last one, until there is work; ``waits``: for an answer; ``answers``: comments
    since. ``out``: quarantined; ``opened``: by a person, in the tracker. ``commit``: finished work
    that was not given back, the last of ``commits``; ``approved``: commits that a person wants to
    land; ``landed``: the one that did. ``remarks``: of a rejection, for the next attempt.
    ``ended``: how a person left it that has ``TAKEN`` it. ``opens``: the fleet opens it, whoever
    closes it meanwhile.
    """

    asks: bool
    charged: int = 0
    questions: int = 0
    question: str = ""
    asked_at: float = 0.0
    waits: bool = False
    answers: list[str] = field(default_factory=list)
    out: bool = False
    opened: bool = False
    commit: str = ""
    commits: list[str] = field(default_factory=list)
    approved: set[str] = field(default_factory=set)
    remarks: str = ""
    ended: Ownership | None = None
    landed: str = ""
    opens: bool = False

    def begins(self, task: Task, comments: Sequence[object]) -> None:
        """An attempt begins: it is told all that the last ones did not get done, and no more."""
        assert not self.ended, "a person has closed it"
        assert not self.landed, "its work has landed"
        if self.out:
            assert self.opened, "it is quarantined"
            self.forget()
        assert not self.commit, "its work is done"
        assert not self.waits or self.answers or self.opened, "nobody has answered"
        assert task.attempt == self.charged + 1
        told = task.payload["agent"]
        assert told.get("question", "") == self.question
        if self.question:
            found = answers(read_replies({"comments": comments}), told["asked_at"])
            assert [each.text for each in found] == self.answers
        if self.remarks:
            assert told["earlier"]["lesson"] == f"{REMARKS}\n\n{self.remarks}"
        self.waits = self.opened = self.opens = False

    def done(self, commit: str) -> None:
        """An attempt has succeeded; its worker's result is spooled if nobody reads it."""
        self.commits.append(commit)
        self.commit, self.question, self.remarks = commit, "", ""
        self.answers = []

    def failed(self, _: rec.Finished) -> None:
        """An attempt has failed: it counts."""
        self.charged += 1
        self.out = self.charged >= ATTEMPTS_MAX

    def asked(self, question: str, at: float) -> None:
        """An attempt has ended with a question: nothing is charged."""
        self.questions += 1
        self.out = self.questions > QUESTIONS_MAX
        self.waits = not self.out
        self.question, self.asked_at, self.answers = question, at, []

    def given_back(self, ended: rec.LandingEnded, remarks: str = "") -> None:
        """Its branch did not land, for a person's ``remarks`` or a conflict."""
        self.out, self.remarks = ended.verdict == "quarantined", remarks
        if not self.out:
            self.commit = ""

    def forget(self) -> None:
        """A person has given it a clean history."""
        self.charged = self.questions = 0
        self.question, self.commit, self.remarks = "", "", ""
        self.answers = []
        self.landed = ""
        self.waits = self.out = self.opened = False

    def retried(self) -> None:
        """A person wants another attempt, at a question even if somebody has closed the issue."""
        if self.waits and self.ended in (None, CLOSED):
            self.opens, self.ended = True, None
        self.forget()

    @property
    def may_land(self) -> bool:
        """Whether its finished work is what a person has approved, or nobody has to."""
        return bool(self.commit) and (not self.asks or self.commit in self.approved)

    @property
    def is_left(self) -> bool:
        """Whether it stays as it is until a person does something."""
        return (self.out or (self.waits and not self.answers)) and not self.opened


class Conversation(RuleBasedStateMachine):
    """Agents, people and a lander around the orchestrators of one project."""

    @initialize(approve=st.booleans(), quick=st.integers(0, 3))
    def begin(self, approve: bool, quick: int) -> None:
        """A project with two issues, and its first start. ``quick``: after each step, whatever was
        asked of the tracker is done."""
        self.quick = quick > 0
        self.approve = approve
        self.tracker = MemoryTracker()
        self.of = {issue_id: Account(asks=approve or issue_id == "a") for issue_id in ISSUES}
        for issue_id in ISSUES:
            labels = (LAND_ASK,) if issue_id == "a" else ()
            self.tracker.add(TrackerIssue(issue_id, f"title of {issue_id}", labels=labels))
        self.ann = MemorySource(actor="ann", tracker=self.tracker)
        self.journals: dict[str, list[Entry]] = {}
        self.settled: set[str] = set()
        self.unconcluded: set[str] = set()
        self.spool: dict[str, Done] = {}
        self.git: dict[str, str] = {}
        self.clock, self.said, self.made = EPOCH, "", 0
        self.play: Play | None = None
        self.records_left: int | None = None
        self.start()

    # --- agents -------------------------------------------------------------------------------

    @precondition(lambda self: self.play and self.tasks)
    @rule(data=st.data())
    def an_agent_asks(self, data: st.DataObject) -> None:
        self._end(data.draw(st.sampled_from(sorted(self.tasks))), "question")

    @precondition(lambda self: self.play and self.tasks)
    @rule(data=st.data(), killed=KILLED)
    def an_agent_is_done(self, data: st.DataObject, killed: int | None) -> None:
        self.records_left = killed
        self._end(data.draw(st.sampled_from(sorted(self.tasks))), "done")

    @precondition(lambda self: self.play and self.tasks)
    @rule(data=st.data(), how=st.sampled_from(["error", "error", "retry", "cancelled"]))
    def an_attempt_fails(self, data: st.DataObject, how: str) -> None:
        """Only an error is charged."""
        self._end(data.draw(st.sampled_from(sorted(self.tasks))), how)

    @precondition(lambda self: self.play and self.orders)
    @rule(data=st.data(), lands=st.integers(0, 3))
    def the_lander_is_done(self, data: st.DataObject, lands: int) -> None:
        issue_id = data.draw(st.sampled_from(sorted(self.orders)))
        if lands or issue_id in self.git:
            self._land(issue_id)
            return
        add = self.orders.pop(issue_id)
        news = ld.Refused(issue_id, add.attempt, "conflict", "<<<<<<<", ("shop.py",), TIP)
        self._tell(ev.LanderSaid(news), rec.LandingEnded, self.of[issue_id].given_back)

    @precondition(lambda self: self.play and self.looks)
    @rule(data=st.data(), verdict=st.sampled_from(["green", "none", "conflict"]))
    def a_gate_ends_ahead_of_approval(self, data: st.DataObject, verdict: str) -> None:
        """A branch that conflicts goes back unseen."""
        add = self.looks.pop(data.draw(st.sampled_from(sorted(self.looks))))
        if verdict != "conflict":
            self._tell(ev.LanderSaid(ld.GatedAhead(add.issue_id, add.commit, verdict, TIP)))
            return
        news = ld.Refused(add.issue_id, add.attempt, "conflict", "<<<<<<<", ("shop.py",), TIP)
        account = self.of[add.issue_id]
        self._tell(ev.LanderSaid(news), rec.LandingEnded, account.given_back)

    # --- people -------------------------------------------------------------------------------

    @rule(issue_id=st.sampled_from(ISSUES), told=st.booleans())
    def a_person_comments(self, issue_id: str, told: bool) -> None:
        """Before a question, as its answer or later; ``told``: as ``answer`` does it."""
        account = self.of[issue_id]
        if account.ended:
            return
        self._comment(issue_id)
        if told and account.waits and self.play is not None:
            self._tell(AnsweredInTracker(T, (IssueId(issue_id),)))
        elif told and account.waits:
            self.ann.settle([Settlement(Action.REOPEN, IssueId(issue_id), read_first=True)])

    @precondition(lambda self: self._asking())
    @rule(data=st.data(), killed=KILLED)
    def a_person_answers_and_closes(self, data: st.DataObject, killed: int | None) -> None:
        """As ``bd human respond``."""
        self.records_left = killed
        issue_id = data.draw(st.sampled_from(self._asking()))
        self._comment(issue_id)
        if self._holding(issue_id) == BLOCKED:
            self.tracker.put(issue_id, "closed", "")

    @precondition(lambda self: self._in(BLOCKED, OPEN))
    @rule(data=st.data(), taken=st.sampled_from(TAKEN))
    def a_person_closes(self, data: st.DataObject, taken: Ownership) -> None:
        """Or takes it. An answer that nobody has read yet makes that another thing: see above."""
        issue_id = data.draw(st.sampled_from(self._in(BLOCKED, OPEN)))
        if not (self.of[issue_id].answers or self.of[issue_id].opens):
            self.tracker.put(issue_id, taken.status, taken.assignee)
            self.of[issue_id].ended = taken

    @precondition(lambda self: self._in(BLOCKED))
    @rule(data=st.data())
    def a_person_opens(self, data: st.DataObject) -> None:
        issue_id = data.draw(st.sampled_from(self._in(BLOCKED)))
        account = self.of[issue_id]
        if account.waits or account.out:
            self.tracker.put(issue_id, "open", "")
            account.opened = True

    @precondition(lambda self: self._with_past())
    @rule(data=st.data())
    def a_person_retries(self, data: st.DataObject) -> None:
        """It forgets all questions, also of an issue that was answered by a close."""
        issue_id = data.draw(st.sampled_from(self._with_past()))
        account = self.of[issue_id]
        if account.ended and account.opened:
            return  # Whether it still waits depends on what the fleet has read.
        if self.play is not None:
            asked = RetryAskedFor(T, (IssueId(issue_id),))
            self._tell(asked, rec.RetryAsked, lambda _: account.retried())
        elif self._settle_without_fleet(reopening(IssueId(issue_id), account.waits)):
            # Nobody may have heard that its branch has landed: it is done once more.
            self.git.pop(issue_id, None)
            account.retried()

    @precondition(lambda self: self.play and self._finished())
    @rule(data=st.data(), newest=st.integers(0, 3))
    def a_person_approves(self, data: st.DataObject, newest: int) -> None:
        """What was finished last, or a commit that is not the newest any more."""
        issue_id = data.draw(st.sampled_from(self._finished()))
        account = self.of[issue_id]
        commit = account.commit if newest else account.commits[0]
        account.approved.add(commit)
        self._tell(ApprovedByPerson(T, ((IssueId(issue_id), commit),)))

    @precondition(lambda self: self.play and self._finished())
    @rule(data=st.data(), killed=KILLED)
    def a_person_rejects(self, data: st.DataObject, killed: int | None) -> None:
        self.records_left = killed
        issue_id = data.draw(st.sampled_from(self._finished()))
        account, remarks = self.of[issue_id], f"use euros, {self.clock}"
        asked = RejectedByPerson(T, (IssueId(issue_id),), remarks)
        self._tell(asked, rec.LandingEnded, lambda ended: account.given_back(ended, remarks))

    @precondition(lambda self: not self.play and self._finished())
    @rule(data=st.data())
    def a_person_lands(self, data: st.DataObject) -> None:
        """As ``land ISSUE`` without a fleet, which asks for no approval: it is one."""
        issue_id = data.draw(st.sampled_from(self._finished()))
        account = self.of[issue_id]
        close = Settlement(Action.CLOSE, IssueId(issue_id), read_first=True, shelved=True)
        if self._holding(issue_id) == BLOCKED:
            account.landed = self.git.setdefault(issue_id, account.commit)
            assert self._settle_without_fleet(close)

    # --- the world ----------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 0.25, 6.0, LATER]), turns=st.integers(1, 4))
    def time_passes(self, seconds: float, turns: int) -> None:
        """And the tracker answers what it is asked meanwhile."""
        self._wait(seconds)
        for _ in range(turns):
            self._answer()

    @precondition(lambda self: self.play)
    @rule(records=st.integers(0, 8))
    def it_will_be_killed(self, records: int) -> None:
        """Once so many more records are on file."""
        self.records_left = records

    @precondition(lambda self: self.play)
    @rule(settled=st.integers(0, 2), takes=st.booleans())
    def it_is_killed(self, settled: int, takes: bool) -> None:
        """After a part of what it asks of the tracker was done."""
        assert self.play is not None
        if (asked := self.play.round_trip) is not None:
            self.source.settle(asked.settlements[:settled])
            if takes and asked.take is not None and settled >= len(asked.settlements):
                self.source.take(asked.take, asked.skip)
        self._die()

    @precondition(lambda self: not self.play)
    @rule()
    def start(self) -> None:
        """The next run: what it is told, and what it settles, is what the journals say."""
        run_id = f"run-{len(self.journals) + 1:03}"
        unsettled, last = self._left_over()
        self.journals[run_id] = []
        self.source = MemorySource(actor=f"actor/{run_id}", tracker=self.tracker)
        self.orders: dict[str, ld.Add] = {}
        self.looks: dict[str, ld.Add] = {}
        self.tasks: dict[ConnId, Task] = {}
        self.waiting: list[ConnId] = []
        self.awaited: tuple[type[Record] | None, Callable[[Any], None]] = None, lambda _: None
        self.conns = self.written = 0
        self.play = Play(
            WORKERS,
            recovering=True,
            run_id=run_id,
            epoch=self.clock,
            checkpointed=last.checkpoint(),
            policy=POLICY,
            approve=self.approve,
            work=Work(agents=(CLAUDE,), lands=True, verify="make test"),
            landing=LANDING,
        )
        told = sum(isinstance(command, Write) for command in self.play.first)
        begun = [Write(entry) for entry in self.play.entries]
        self._see([*begun[: len(begun) - told], *self.play.first])
        if self.play is not None:
            self._tell(self._recovered(unsettled))

    # --- what must hold -----------------------------------------------------------------------

    @invariant()
    def the_tracker_is_quick(self) -> None:
        if self.quick:
            self.time_passes(LATER, 2)

    @invariant()
    def charged_is_what_was_charged(self) -> None:
        for issue_id, account in self.of.items() if self.play else ():
            issue = self.play.core.issues.known.get(issue_id) if self.play else None
            if issue is not None and issue.retry_entry is not None and not self.git.get(issue_id):
                assert issue.charged == account.charged, issue_id

    def teardown(self) -> None:
        """The agents finish, people approve: what nobody waits for lands, once."""
        if not hasattr(self, "play") or sys.exc_info()[0] is not None:
            return  # It has failed already.
        self.records_left = None
        if self.play is None:
            self.start()
        self._drain()
        for issue_id, account in self.of.items():
            stays = account.ended or account.out or account.landed
            if account.asks and account.commit and not stays:
                account.approved.add(account.commit)
                self.said = "?"
                self._tell(ApprovedByPerson(T, ((IssueId(issue_id), account.commit),)))
                assert self.said == "", issue_id
        self._drain()
        for issue_id, account in self.of.items():
            if account.ended:
                assert self._holding(issue_id) == account.ended, issue_id
                issue = self.play.core.issues.known.get(issue_id) if self.play else None
                assert issue is None or issue.standing in (Standing.OPEN, Standing.COOLING)
            elif account.is_left:
                assert self._holding(issue_id) == BLOCKED, issue_id
            else:
                assert self.git.get(issue_id) == account.commit != "", (issue_id, account)
                assert self.tracker.issues[issue_id].status == "closed", issue_id

    def _drain(self) -> None:
        for _ in range(DRAIN_TURNS):
            self._wait(LATER)
            for _ in range(3):
                self._answer()
            for conn in list(self.tasks):
                self._end(conn, "done")
            self._answer()
            for issue_id in list(self.orders):
                self._land(issue_id)

    # --- inside: what the world does ------------------------------------------------------------

    def _end(self, conn: ConnId, how: str) -> None:
        task = self.tasks.pop(conn)
        account, issue_id = self.of[task.issue_id], str(task.issue_id)
        if how == "done":
            self.made += 1
            commit = f"{self.made:040x}"
            received = playbook.done(conn, issue_id, receipt=work_of(issue_id, commit))
            assert isinstance(received.message, Done)
            self.spool[task.request_id] = replace(received.message, request_id=task.request_id)
            account.done(commit)
            self._tell(received)
        else:
            at, text = self._now(), f"{how} at {self._now()}?"
            failed = playbook.failed(conn, issue_id, text, outcome=OutcomeKind(how))
            heard = {"question": lambda _: account.asked(text, at), "error": account.failed}
            self._tell(failed, rec.Finished, heard.get(how, lambda _: None))
        self._tell(playbook.ready(conn))

    def _land(self, issue_id: str) -> None:
        add = self.orders.pop(issue_id)
        assert self.git.setdefault(issue_id, add.commit) == add.commit, "it lands once"
        self.of[issue_id].landed = add.commit
        self._tell(ev.LanderSaid(ld.Landed(issue_id, add.attempt, TIP)))

    def _comment(self, issue_id: str) -> None:
        """Wait out the second of a question, as ``answer`` does."""
        account = self.of[issue_id]
        if account.waits:
            self._wait(max(0.0, floor(account.asked_at) + 1.0 - self._now()))
        text = f"comment {len(self.tracker.issues[issue_id].comments)}"
        self.tracker.comment(issue_id, text, self._now())
        if account.question and floor(self._now()) > floor(account.asked_at):
            account.answers.append(text)

    def _with_past(self) -> list[str]:
        return [i for i, account in self.of.items() if account != Account(account.asks)]

    def _finished(self) -> list[str]:
        return [i for i, account in self.of.items() if account.commit and not account.landed]

    def _asking(self) -> list[str]:
        asked = [i for i, account in self.of.items() if account.waits and not account.opened]
        return [issue_id for issue_id in asked if issue_id in self._in(BLOCKED)]

    def _in(self, *holdings: Ownership) -> list[str]:
        """The issues that the tracker shows so."""
        return [issue_id for issue_id in ISSUES if self._holding(issue_id) in holdings]

    def _holding(self, issue_id: str) -> Ownership | None:
        return self.tracker.holding(issue_id)

    def _settle_without_fleet(self, settlement: Settlement) -> bool:
        """What ``retry`` and ``land`` do: the tracker first, then the journals of all runs."""
        (settled,) = self.ann.settle([settlement])
        if settled.result is not Result.APPLIED:
            return False
        issue_id, closes = settlement.issue_id, settlement.action is Action.CLOSE
        past = self._left_over()[1].retry_entries.get(issue_id)
        landed = Result.FOUND_CLOSED if closes else Result.NOT_OURS
        done = rec.SettledRecord(issue_id, Action.CLOSE.value, landed.value)
        waits = past is not None and past.landing is not None and not past.quarantined
        for entries in self.journals.values() if past is not None else ():
            record = done if waits else rec.RetryAsked(issue_id)
            entries.append(Entry(record, self.clock, 0.0))
        return True

    # --- inside: what the edge does -----------------------------------------------------------

    def _now(self) -> float:
        return self.clock if self.play is None else self.play.epoch + self.play.now - BEGAN

    def _wait(self, seconds: float) -> None:
        self.clock = self._now() + seconds
        if self.play is not None:
            self._see(self.play.wait(seconds))
        told, self.waiting = self.waiting, []
        for conn_id in told:
            self._tell(playbook.ready(conn_id))

    def _tell(
        self,
        event: Event,
        kind: type[RecordT] | None = None,
        heard: Callable[[RecordT], None] = lambda _: None,
    ) -> None:
        """Tell the fleet, if it lives; ``heard``: called if such a record of it is on file."""
        if self.play is not None:
            self.awaited = kind, heard
            self._see(self.play.do(event))

    def _see(self, commands: Sequence[Command]) -> None:
        """Do what the edge would do, until the fleet is killed."""
        spawns: list[str] = []
        for command in commands:
            match command:
                case Write() if self.records_left == 0:
                    self._die()
                    return
                case Write():
                    self._write()
                case Send(conn_id, _, Task() as task):
                    self._given(conn_id, task)
                case Send(conn_id, _, Wait()):
                    self.waiting.append(conn_id)
                case TellLander(order):
                    self._ordered(order)
                case Answer():
                    self.said = command.error
                case Spawn(worker_id):
                    spawns.append(worker_id)
                case _:
                    pass
        for worker_id in spawns:
            self._spawned(worker_id)

    def _write(self) -> None:
        assert self.play is not None
        entry = self.play.entries[self.written]
        self.written += 1
        if self.records_left is not None:
            self.records_left -= 1
        if not isinstance(entry.record, rec.Live):
            read = decode(encode(entry))
            assert read is not None
            self.journals[list(self.journals)[-1]].append(read)
        kind, heard = self.awaited
        if kind is not None and isinstance(entry.record, kind):
            self.awaited = None, heard
            heard(entry.record)

    def _die(self) -> None:
        self.clock = self._now()
        self.play = self.records_left = None
        self.tasks, self.orders, self.looks, self.waiting = {}, {}, {}, []

    def _spawned(self, worker_id: str) -> None:
        self.conns += 1
        conn, pid = ConnId(self.conns), 100 + self.conns
        self._tell(ev.WorkerSpawned(worker_id, pid))
        self._tell(ev.Connected(conn, pid))
        self._tell(playbook.ready(conn))

    def _given(self, conn_id: ConnId, task: Task) -> None:
        issue = self.tracker.issues[task.issue_id]
        assert task.issue_id not in {each.issue_id for each in self.tasks.values()}
        self.of[task.issue_id].begins(task, issue.comments)
        self.tasks[conn_id] = task

    def _ordered(self, order: ld.Order) -> None:
        match order:
            case ld.Add():
                account = self.of[order.issue_id]
                assert order.commit == account.commit, "that is not its newest work"
                if order.awaits:
                    assert account.asks
                    self.looks[order.issue_id] = order
                    return
                self.looks.pop(order.issue_id, None)
                assert account.may_land, "nobody has approved it"
                assert not account.ended or account.landed, "a person has closed it"
                self.orders[order.issue_id] = order
            case ld.CancelLanding(issue_id):
                self.orders.pop(issue_id, None)
                self.looks.pop(issue_id, None)
            case _:
                pass

    def _answer(self) -> None:
        """What the tracker thread does with a round trip; no tracker of ours fails here."""
        asked = self.play.round_trip if self.play is not None else None
        if asked is None:
            return
        self.settled |= self.unconcluded
        self.unconcluded = set()
        settled = tuple(self.source.settle(asked.settlements))
        read = self.source.conversations(asked.listen)
        taken = None if asked.take is None else self.source.take(asked.take, asked.skip)
        self._tell(ev.RoundTripEnded(0.1, settled, taken=taken, conversations=read))

    def _left_over(self) -> tuple[list[RecoveryState], RecoveryState]:
        def read(run_id: str) -> RecoveryState | None:
            left = recovery_state(self.journals[run_id])
            return left if left.run_id else None

        return left_over(list(self.journals), self.settled.__contains__, read)

    def _recovered(self, unsettled: Sequence[RecoveryState]) -> ev.RecoveryEnded:
        """What ``Recovery`` does: spooled results first, then run by run what is pending."""
        settled, late = [], []
        for left in unsettled:
            ends = replay(left, self.spool)
            found = [each for each in left.checkpoint() if each.issue_id in ends]
            for crashed in left.unsettled_runs():
                settled += self.source.recover(crashed)
            self.journals[left.run_id] += ends.values()
            late += found
            (self.unconcluded if found else self.settled).add(left.run_id)
        return ev.RecoveryEnded(tuple(settled), tuple(late))


TestConversation = Conversation.TestCase
TestConversation.settings = settings(
    max_examples=examples(600),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
