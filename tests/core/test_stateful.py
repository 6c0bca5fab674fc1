"""The orchestrator against a world that does what it likes: workers, deaths, and the tracker.

Hypothesis plays random workers (ours and foreign, version 1 and 1.1, polite and not) and a
tracker that fails in every way that it knows; the source is the real in-memory one. What
docs/SEMANTICS.md promises is checked after each step, and after a stop everything must be settled.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from beads_workers.core.base.model import IssueId, OutcomeKind
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.source import SourceError
from beads_workers.core.base.states import RunState
from beads_workers.core.base.wire import Cancel, Done, Failed, Shutdown, Task, Wait
from beads_workers.core.records import journal as rec
from beads_workers.core.records.issues import Standing
from beads_workers.core.records.journal import Entry, decode, encode
from beads_workers.core.requests.release import ReleaseAskedFor
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.requests.scale import ScaleAsked
from beads_workers.core.requests.why import WhyAsked
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import (
    Command,
    HangUp,
    KillWorker,
    Send,
    Spawn,
    WatchOwner,
)
from beads_workers.core.schedule.events import ConnId, Event
from beads_workers.core.schedule.retry import history_of
from beads_workers.core.views.recovery import recovery_state
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import status
from beads_workers.trackers.issue import TrackerIssue
from tests.contracts.memory import Fault, FaultKind, MemorySource
from tests.core.playbook import Play, ready
from tests.support.shares import examples

ATTEMPTS_MAX = 2
ISSUES = 6
WORKERS = 2


@dataclass
class Process:
    """A worker process. ``doing``: issues that it may be at work on; ``watched``: by the core."""

    pid: int
    worker_id: str = ""
    doing: set[str] = field(default_factory=set)
    watched: bool = False
    killed: bool = False


@dataclass
class Link:
    """A connection as the worker sees it. ``pending``: a READY that has no reply yet."""

    process: Process
    v1: bool
    task: str | None = None
    awaits_reply: bool = False
    dismissed: bool = False


class World(RuleBasedStateMachine):
    """Everything around one orchestrator."""

    @initialize(self_claiming=st.booleans(), until_empty=st.booleans())
    def begin(self, self_claiming: bool, until_empty: bool) -> None:
        """A run with a few issues, two workers of its own, and a policy that ends soon."""
        issues = [
            TrackerIssue(id=f"i{n}", title=f"issue {n}", priority=n % 5) for n in range(ISSUES)
        ]
        self.source = MemorySource(issues, actor="actor/run-1", self_claiming=self_claiming)
        self.processes: dict[int, Process] = {}
        self.links: dict[ConnId, Link] = {}
        self.to_spawn: list[str] = []
        self.last_conn = 0
        self.last_pid = 100
        self.resync = False
        self.board, self.read_back, self.read = Board(), 0, list[Entry]()
        self.play = Play(
            WORKERS,
            self_claiming=self_claiming,
            until_empty=until_empty,
            policy=Policy(ATTEMPTS_MAX, 10.0),
            recovering=True,
            orphan_grace_seconds=None,
        )
        self._see(self.play.first)
        self._tell(ev.RecoveryEnded())

    # --- what the world does ------------------------------------------------------------------

    @precondition(lambda self: self.to_spawn)
    @rule(asks=st.booleans())
    def a_worker_of_ours_starts(self, asks: bool) -> None:
        process = self._start()
        if asks:
            self._connect(process, v1=False)
            self._ask(ConnId(self.last_conn))

    @precondition(lambda self: self.play.ended is None)
    @rule(v1=st.booleans(), again=st.booleans(), asks=st.booleans())
    def somebody_connects(self, v1: bool, again: bool, asks: bool) -> None:
        """A new foreign process, one that comes back, or a started worker of ours."""
        linked = {id(link.process) for link in self.links.values()}
        free = [p for p in self.processes.values() if id(p) not in linked and not p.killed]
        free = [p for p in free if again or p.worker_id]
        self._connect(free[0] if free else self._foreign(), v1 and not (free and free[0].worker_id))
        if asks:
            self._ask(ConnId(self.last_conn))

    @precondition(lambda self: self.links)
    @rule(data=st.data())
    def a_worker_says_ready(self, data: st.DataObject) -> None:
        """Properly, or in the middle of its task; after a new connection it re-registers."""
        self._ask(data.draw(st.sampled_from(sorted(self.links))))

    @precondition(lambda self: any(link.task for link in self.links.values()))
    @rule(
        data=st.data(),
        how=st.sampled_from(["done", "done", "error", "retry", "cancelled", "not_found"]),
        closes_itself=st.booleans(),
        asks=st.booleans(),
    )
    def a_task_ends(self, data: st.DataObject, how: str, closes_itself: bool, asks: bool) -> None:
        busy = sorted(conn for conn, link in self.links.items() if link.task)
        conn = data.draw(st.sampled_from(busy))
        link = self.links[conn]
        assert link.task is not None
        issue_id, link.task = IssueId(link.task), None
        link.process.doing.discard(issue_id)
        if how == "done":
            if self.source.self_claiming and link.v1 and closes_itself:
                self.source.tracker.put(issue_id, "closed", "")
            self._tell(ev.Received(conn, Done(issue_id, "w")))
        else:
            self._tell(ev.Received(conn, Failed(issue_id, "w", "boom", outcome=OutcomeKind(how))))
        if conn in self.links and asks:
            self._ask(conn)

    @precondition(lambda self: self.links)
    @rule(data=st.data(), number=st.integers(0, ISSUES))
    def a_worker_talks_nonsense(self, data: st.DataObject, number: int) -> None:
        conn = data.draw(st.sampled_from(sorted(self.links)))
        if self.links[conn].task != f"i{number}":
            self.resync = True
            self._tell(ev.Received(conn, Done(IssueId(f"i{number}"), "w")))
            self.resync = False
        self._tell(ev.Misread(conn, "no JSON", "x"))

    @precondition(lambda self: self.links)
    @rule(data=st.data(), dies=st.booleans())
    def a_connection_is_lost(self, data: st.DataObject, dies: bool) -> None:
        conn = data.draw(st.sampled_from(sorted(self.links)))
        process = self.links[conn].process
        self._lose(conn)
        if dies or process.worker_id:
            self._die(process)

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def a_process_dies(self, data: st.DataObject) -> None:
        """Reaped before its connection is seen to end, which may take a while."""
        self._die(self.processes[data.draw(st.sampled_from(sorted(self.processes)))])

    @precondition(lambda self: self.play.round_trip is not None)
    @rule()
    def the_tracker_does_as_asked(self) -> None:
        self._answer()

    @precondition(lambda self: self.play.round_trip is not None)
    @rule(call=st.sampled_from(["", "", "", "take", "settle"]), kind=st.sampled_from(FaultKind))
    def the_tracker_answers(self, call: str, kind: FaultKind) -> None:
        self.source.faults = [Fault(kind, call)] if call else []
        self._answer()
        self.source.faults = []

    @rule(seconds=st.sampled_from([0.5, 3.0, 12.0, 130.0]))
    def time_passes(self, seconds: float) -> None:
        self._see(self.play.wait(seconds))

    @rule(number=st.integers(0, ISSUES - 1), how=st.sampled_from(["retry", "release"]))
    def a_person_asks(self, number: int, how: str) -> None:
        asked = RetryAskedFor if how == "retry" else ReleaseAskedFor
        self._tell(asked(ev.Ticket(1), (IssueId(f"i{number}"),)))

    @rule(workers=st.integers(0, 3))
    def a_person_scales(self, workers: int) -> None:
        self._tell(ScaleAsked(ev.Ticket(1), workers))

    @rule(pauses=st.integers(0, 3))
    def a_person_pauses_or_resumes(self, pauses: int) -> None:
        self._tell(ev.ResumeAsked(ev.Ticket(1)) if pauses else ev.PauseAsked(ev.Ticket(1)))

    @rule(drain=st.booleans(), seldom=st.integers(0, 9))
    def a_person_stops_it(self, drain: bool, seldom: int) -> None:
        if seldom == 9:
            self._tell(ev.StopAsked(drain=drain))

    # --- what must hold -----------------------------------------------------------------------

    @invariant()
    def attempts_stay_within_the_cap(self) -> None:
        last = self.play.entries[-1].record
        assert not isinstance(last, rec.Finished) or last.charged <= ATTEMPTS_MAX

    @invariant()
    def every_record_is_read_back_as_it_was(self) -> None:
        for entry in self.play.entries[self.read_back :]:
            again = decode(encode(entry))
            assert again is not None and again.record == entry.record, entry
            self.board.apply(again)
            self.read.append(again)
        self.read_back = len(self.play.entries)
        shown = [json.dumps(status(b, 1.0), allow_nan=False) for b in (self.play.board, self.board)]
        assert shown[0] == shown[1], "who replays sees something else than who watches"

    @rule(number=st.integers(0, ISSUES))
    def a_person_asks_why_and_nothing_changes(self, number: int) -> None:
        before = len(self.play.entries)
        self._tell(WhyAsked(ev.Ticket(2), (IssueId(f"i{number}"),) if number else ()))
        assert len(self.play.entries) == before

    @invariant()
    def the_journal_alone_tells_the_ledger(self) -> None:
        left = recovery_state(self.play.entries)
        expected = {
            i: (p.charged, p.free_in_a_row, p.quarantined)
            for i, p in left.retry_entries.items()
            if p.charged or p.free_in_a_row or p.quarantined
        }
        known = {
            i: (p.charged, history_of(p).free_in_a_row, p.standing is Standing.QUARANTINED)
            for i, p in self.play.core._parts.effects.issues.known.items()
            if p.standing is not Standing.UNCLOSED
            and (p.charged or history_of(p).free_in_a_row or p.standing is Standing.QUARANTINED)
        }
        assert expected == known

    def teardown(self) -> None:
        """A stop: everybody leaves, the tracker is well again, all that was taken is settled."""
        if not hasattr(self, "play"):
            return
        self.source.faults = []
        self._tell(ev.StopAsked(seconds=1.0))
        for _ in range(200):
            if self.play.ended is not None:
                break
            while self.to_spawn:
                self._start()
            for conn in list(self.links):
                self._lose(conn)
            for process in list(self.processes.values()):
                self._die(process)
            if self.play.round_trip is not None:
                self._answer()
            self._see(self.play.wait(1.0))
        assert self.play.ended is not None, "it never ends"
        self.source.close()
        self.every_record_is_read_back_as_it_was()
        left = recovery_state(self.read)
        if any("left for the next start" in note for note in self._notes()):
            # The tracker was silent for too long: what the next start does must be enough.
            assert self.play.ended == 7
            for dead in left.unsettled_runs():
                self.source.recover(dead)
        else:
            assert (left.unclosed, left.handed_over) == ({}, [])
            closed = sum(i.status == "closed" for i in self.source.tracker.issues.values())
            assert self.play.board.totals["done"] == closed
        for issue in self.source.tracker.issues.values():
            free = (issue.status, issue.assignee) in {("open", ""), ("blocked", "")}
            assert free or issue.status == "closed", issue

    def _notes(self) -> list[str]:
        records = [entry.record for entry in self.play.entries]
        return [record.text for record in records if isinstance(record, rec.Noted)]

    # --- inside -------------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        self._see(self.play.do(event))

    def _see(self, commands: list[Command]) -> None:
        """Do what the edge would do, and check every message on its way."""
        later: deque[ConnId] = deque()
        for command in commands:
            match command:
                case Send(conn_id, _, message):
                    self._receive(conn_id, message)
                case HangUp(conn_id):
                    later.append(conn_id)
                case Spawn(worker_id):
                    self.to_spawn.append(worker_id)
                case KillWorker(_, pid):
                    assert self.processes[pid].worker_id, "only ours are ever killed"
                    self.processes[pid].killed = True
                case WatchOwner(pid) if pid in self.processes:
                    self.processes[pid].watched = True
                case WatchOwner(pid):
                    self._tell(ev.OwnerGone(pid))
                case _:
                    pass
        for conn_id in later:
            self._lose(conn_id)

    def _receive(self, conn: ConnId, message: object) -> None:
        link = self.links.get(conn)
        if link is None:
            return
        match message:
            case Task(issue_id=issue_id):
                if link.task is not None:
                    assert link.task == issue_id, "never a second task"
                    return
                at_work = [p.pid for p in self.processes.values() if issue_id in p.doing]
                assert not at_work, f"{issue_id} is still worked on by {at_work}"
                assert link.awaits_reply, "nobody asked for it"
                giving = (RunState.RUNNING, RunState.PAUSED, RunState.DRAINING)
                assert self.play.core.state in giving
                link.task, link.awaits_reply = str(issue_id), False
                link.process.doing.add(str(issue_id))
            case Wait():
                assert link.awaits_reply or self.resync, "one READY, one reply"
                link.awaits_reply = link.awaits_reply and self.resync
            case Shutdown():
                assert not link.dismissed, "told once"
                link.dismissed, link.awaits_reply = True, False
            case Cancel(issue_id=issue_id):
                assert link.task == issue_id
            case _:
                raise AssertionError(message)

    def _answer(self) -> None:
        """What the tracker thread does with a turn."""
        round_trip = self.play.round_trip
        assert round_trip is not None
        try:
            settled = (
                tuple(self.source.settle(round_trip.settlements)) if round_trip.settlements else ()
            )
        except SourceError as error:
            self._tell(ev.RoundTripEnded(0.1, settle_error=str(error)))
            return
        try:
            taken = (
                None
                if round_trip.take is None
                else self.source.take(round_trip.take, round_trip.skip)
            )
        except SourceError as error:
            self._tell(ev.RoundTripEnded(0.1, settled, take_error=str(error)))
            return
        self._tell(ev.RoundTripEnded(0.1, settled, taken=taken))

    def _ask(self, conn: ConnId) -> None:
        link = self.links[conn]
        if link.task is None:
            link.process.doing.clear()
            link.awaits_reply = not link.dismissed
        self._tell(ready(conn, v1=link.v1))

    def _start(self) -> Process:
        self.last_pid += 1
        process = Process(self.last_pid, self.to_spawn.pop(0))
        self.processes[process.pid] = process
        self._tell(ev.WorkerSpawned(process.worker_id, process.pid))
        return process

    def _foreign(self) -> Process:
        self.last_pid += 1
        process = self.processes[self.last_pid] = Process(self.last_pid)
        return process

    def _connect(self, process: Process, v1: bool) -> None:
        self.last_conn += 1
        self.links[ConnId(self.last_conn)] = Link(process, v1)
        self._tell(ev.Connected(ConnId(self.last_conn), process.pid))

    def _lose(self, conn: ConnId) -> None:
        if self.links.pop(conn, None) is not None:
            self._tell(ev.Disconnected(conn, "lost"))

    def _die(self, process: Process) -> None:
        if self.processes.pop(process.pid, None) is None:
            return
        process.doing.clear()
        if process.worker_id:
            self._tell(ev.WorkerReaped(process.worker_id, process.pid, 1))
        elif process.watched:
            self._tell(ev.OwnerGone(process.pid))


TestWorld = World.TestCase
TestWorld.settings = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
