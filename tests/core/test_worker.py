"""The worker's half as a playbook: events in, commands out, time by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from beads_workers.core.base import limits, wire
from beads_workers.core.base.limits import SELF_CLAIM_CALL_SECONDS
from beads_workers.core.base.model import IssueId, OutcomeKind
from beads_workers.core.base.plans import NotRunnable, Plan, Step, StepKind
from beads_workers.core.base.settings import Work
from beads_workers.core.base.states import WORKER, WorkerReaction, WorkerState, WorkerStimulus
from beads_workers.core.workers import worker_events as ev
from beads_workers.core.workers.worker import WorkerHalf

CLAIM = Step(StepKind.CLAIM, ("bd", "update"))
RUN = Step(StepKind.RUN, ("work",))
VERIFY = Step(StepKind.VERIFY, ("check",))
CLOSE = Step(StepKind.CLOSE, ("bd", "close"))
RELEASE = Step(StepKind.RELEASE, ("bd", "update", "open"))
GRACE = 5.0

CONNECTED, LOST, INTERRUPTED = ev.OrchestratorConnected(), ev.ConnectionLost(), ev.Interrupted()
OK, BAD, TERMINATED = ev.StepEnded(0), ev.StepEnded(1, "oops\n"), ev.StepEnded(-15, "", "TERM")
SHUTDOWN, WAIT = (
    ev.MessageReceived(wire.Shutdown("user_requested")),
    ev.MessageReceived(wire.Wait(30)),
)
TERM, KILL = ev.EndStep(hard=False), ev.EndStep(hard=True)


def task(
    issue_id: str = "t-1", timeout: float | None = None, request_id: str = ""
) -> ev.MessageReceived:
    message = wire.Task(
        IssueId(issue_id), 2, "title", timeout_seconds=timeout, request_id=request_id
    )
    return ev.MessageReceived(message)


def cancel(issue_id: str = "t-1") -> ev.MessageReceived:
    return ev.MessageReceived(wire.Cancel(IssueId(issue_id), "released"))


class Playbook:
    """Drives one worker half; ``now`` is moved by hand."""

    def __init__(
        self,
        *steps: Step,
        self_claiming: bool = False,
        timeout: float | None = None,
        heartbeat: float | None = None,
    ) -> None:
        self.now = 100.0
        self.plan = Plan(
            steps=steps or (RUN,),
            issue_file="i",
            issue_text="{}",
            log_file="l",
            output_file="o",
            close=CLOSE if self_claiming else None,
            release=RELEASE if self_claiming else None,
        )
        work = Work(
            timeout_seconds=timeout,
            term_grace_seconds=GRACE,
            bd_argv=("bd",) if self_claiming else None,
        )
        self.half = WorkerHalf("W1", work, self._plan, (1.0, 2.0, 4.0), heartbeat)

    def _plan(self, wanted: wire.Task) -> Plan | NotRunnable:
        return NotRunnable("no way") if wanted.issue_id == "odd" else self.plan

    def tell(self, *events: ev.Event) -> list[ev.Command]:
        """The commands that the last of these events brings, without log lines."""
        commands: list[ev.Command] = []
        for event in events:
            commands = self.half.handle(event, self.now)
        return [c for c in commands if not isinstance(c, ev.Log)]

    def tick(self) -> list[ev.Command]:
        """Let the next deadline come."""
        deadline = self.half.deadline()
        assert deadline is not None
        self.now = deadline
        commands = self.half.on_deadline(self.now)
        return [c for c in commands if not isinstance(c, ev.Log)]

    def run(self, step: Step) -> list[ev.Command]:
        return [ev.RunStep(self.plan, step)]


class Keeper:
    """A worker's half that prefetches, and its time."""

    def __init__(self) -> None:
        work = Work(allow_modules=("shop",))
        self.half = WorkerHalf("W1", work, self._plan, heartbeat_seconds=None)
        self.now = 100.0
        self.tell(CONNECTED)

    def _plan(self, wanted: wire.Task) -> Plan:
        return Plan((Step(StepKind.RUN, (wanted.issue_id,)),), "i", wanted.issue_id, "l", "o")

    def tell(self, *events: ev.Event) -> list[ev.Command]:
        """All that it answers to these."""
        commands = [c for event in events for c in self.half.handle(event, self.now)]
        return [c for c in commands if not isinstance(c, ev.Log)]

    def messages(self, *events: ev.Event) -> list[object]:
        """What it says to the orchestrator, in short."""
        sent = [c.message for c in self.tell(*events) if isinstance(c, ev.SendMessage)]
        return [(type(m).__name__, getattr(m, "issue_id", "")) for m in sent]


def ready(*features: str) -> ev.SendMessage:
    return ev.SendMessage(
        wire.Ready(
            "W1", "1.1", frozenset({"pause", "status", *(features or ("cancel", "grouped"))})
        )
    )


def failed(kind: OutcomeKind, error: str, ms: int = 0, issue_id: str = "t-1") -> ev.SendMessage:
    return ev.SendMessage(wire.Failed(IssueId(issue_id), "W1", error, ms, kind))


def busy(*steps: Step, self_claiming: bool = False, timeout: float | None = None) -> Playbook:
    """A worker whose task runs (its claim, where there is one, has succeeded)."""
    book = Playbook(*steps, self_claiming=self_claiming, timeout=timeout)
    book.tell(CONNECTED, task())
    if steps and steps[0] is CLAIM:
        book.tell(OK)
    return book


# --- the table ----------------------------------------------------------------------------------


def test_the_table_is_total_and_every_reaction_and_state_is_used() -> None:
    assert set(WORKER) == set(itertools.product(WorkerState, WorkerStimulus))
    assert {move.reaction for move in WORKER.values()} == set(WorkerReaction)
    assert {move.to for move in WORKER.values()} == set(WorkerState)


def test_shutdown_and_a_lost_connection_are_decided_in_every_state_that_has_one() -> None:
    unconnected = {WorkerState.CONNECTING, WorkerState.BACKING_OFF, WorkerState.GONE}
    alone = {WorkerState.ABANDONING, WorkerState.SETTLING_ALONE}
    for state in set(WorkerState) - {WorkerState.GONE}:
        assert WORKER[state, WorkerStimulus.SHUTDOWN].reaction is not WorkerReaction.BUG
    for state in set(WorkerState) - unconnected - alone:
        for stimulus in (WorkerStimulus.LOST, WorkerStimulus.TASK, WorkerStimulus.WAIT):
            undecided = WORKER[state, stimulus].reaction is WorkerReaction.BUG
            assert not undecided, (state, stimulus)


# --- connecting and waiting ---------------------------------------------------------------------


def test_ready_is_said_once_connected_and_names_version_and_features() -> None:
    assert Playbook().half.start() == [ev.Connect()]
    assert Playbook().tell(CONNECTED) == [ready()]
    assert Playbook(self_claiming=True).tell(CONNECTED) == [ready("cancel")]


def test_connecting_is_tried_again_after_1_2_and_4_seconds_then_given_up() -> None:
    assert limits.CONNECT_DELAYS_SECONDS == (1.0, 2.0, 4.0)
    book, waits = Playbook(), []
    for _ in range(3):
        assert book.tell(ev.ConnectFailed("no")) == []
        before = book.now
        assert book.tick() == [ev.Connect()]
        waits.append(book.now - before)
    assert waits == [1.0, 2.0, 4.0]
    assert book.tell(ev.ConnectFailed("no")) == [ev.Exit(1)]


def test_wait_is_followed_by_ready_in_time_and_a_task_may_come_before() -> None:
    book = Playbook()
    assert book.tell(CONNECTED, WAIT) == []
    assert book.half.deadline() == 130.0
    assert book.half.on_deadline(129.9) == []
    assert book.tick() == [ready()]
    assert book.tell(WAIT, task()) == book.run(RUN)
    assert book.half.deadline() is None


@pytest.mark.parametrize("before", [(), (WAIT,)])
@pytest.mark.parametrize(("event", "status"), [(SHUTDOWN, 0), (INTERRUPTED, 0), (LOST, 1)], ids=str)
def test_an_idle_worker_leaves_at_once(
    before: Sequence[ev.Event], event: ev.Event, status: int
) -> None:
    book = Playbook()
    assert book.tell(CONNECTED, *before, event) == [ev.Exit(status)]
    assert book.tell(task()) == []


# --- a task -------------------------------------------------------------------------------------


def test_success_is_done_then_ready_with_the_time_it_took() -> None:
    book = busy()
    book.now += 1.5
    assert book.tell(OK) == [ev.SendMessage(wire.Done(IssueId("t-1"), "W1", 1500)), ready()]


def test_every_step_runs_after_the_one_before_and_the_close_comes_last() -> None:
    book = Playbook(CLAIM, RUN, VERIFY, self_claiming=True)
    assert book.tell(CONNECTED, task()) == book.run(CLAIM)
    assert book.tell(OK) == book.run(RUN)
    assert book.tell(OK) == book.run(VERIFY)
    assert book.tell(OK) == book.run(CLOSE)
    assert book.tell(OK) == [ev.SendMessage(wire.Done(IssueId("t-1"), "W1", 0)), ready("cancel")]


def test_a_failed_step_is_failed_and_nothing_after_it_runs() -> None:
    book = busy(CLAIM, RUN, VERIFY, self_claiming=True)
    assert book.tell(BAD) == [failed(OutcomeKind.ERROR, "oops"), ready("cancel")]
    book = busy(RUN, VERIFY)
    assert book.tell(OK, BAD)[0] == failed(OutcomeKind.ERROR, "verify failed: oops")


def test_a_failed_claim_charges_nothing_and_requeues_nothing() -> None:
    book = Playbook(CLAIM, RUN, self_claiming=True)
    answer = book.tell(CONNECTED, task(), BAD)
    assert answer == [failed(OutcomeKind.RETRY, "claim failed: oops"), ready("cancel")]


def test_a_failed_close_is_still_done_but_logged() -> None:
    book = busy(CLAIM, RUN, self_claiming=True)
    book.tell(OK)
    commands = book.half.handle(BAD, book.now)
    assert ev.Log("close of t-1 failed: oops") in commands
    assert ev.SendMessage(wire.Done(IssueId("t-1"), "W1", 0)) in commands


def test_a_step_that_cannot_start_is_failed() -> None:
    answer = busy().tell(ev.StepNotStarted("command not found: x"))
    assert answer[0] == failed(OutcomeKind.ERROR, "Task execution failed: command not found: x")


def test_a_fleet_whose_own_command_is_missing_says_so() -> None:
    missing = ev.StepNotStarted("command not found: x", missing=True)
    assert detail_of(busy().tell(missing)[0]) == wire.CANNOT_START


def test_an_issue_whose_own_command_is_missing_speaks_only_for_itself() -> None:
    missing = ev.StepNotStarted("command not found: x", missing=True)
    book = Playbook()
    book.tell(
        CONNECTED, ev.MessageReceived(wire.Task(IssueId("t-1"), 2, "x", payload={"command": ["x"]}))
    )
    assert detail_of(book.tell(missing)[0]) == ""


def test_a_worktree_that_cannot_be_made_in_time_or_at_all_has_a_mark_of_its_own() -> None:
    prepare = Step(StepKind.PREPARE, ("make it",))
    assert detail_of(busy(prepare, RUN).tell(BAD)[0]) == wire.CANNOT_PREPARE
    late = busy(prepare, RUN, timeout=10.0)
    assert late.tick() == [TERM]
    assert detail_of(late.tell(TERMINATED)[0]) == wire.CANNOT_PREPARE
    stopped = busy(prepare, RUN)
    stopped.tell(SHUTDOWN)
    assert detail_of(stopped.tell(TERMINATED)[0]) == ""
    begun = busy(prepare, RUN)
    begun.tell(OK)
    assert detail_of(begun.tell(BAD)[0]) == ""


def detail_of(command: ev.Command) -> str:
    assert isinstance(command, ev.SendMessage) and isinstance(command.message, wire.Failed)
    return command.message.error_detail


def test_a_task_without_anything_to_run_is_refused_and_ready_follows() -> None:
    book = Playbook()
    refusal = failed(OutcomeKind.NOT_FOUND, "no way", issue_id="odd")
    assert book.tell(CONNECTED, task("odd")) == [refusal, ready()]
    assert book.tell(task()) == book.run(RUN)


# --- while busy ---------------------------------------------------------------------------------


def test_while_busy_the_same_task_wait_and_a_strange_cancel_are_ignored() -> None:
    book = busy()
    assert book.tell(task()) == book.tell(WAIT) == book.tell(cancel("t-9")) == []
    assert book.tell(OK)[0] == ev.SendMessage(wire.Done(IssueId("t-1"), "W1", 0))


def test_a_task_that_comes_once_more_after_its_answer_is_not_run_again() -> None:
    book = Playbook(RUN)
    book.tell(CONNECTED, task(request_id="r.1"), task("t-2", request_id="r.2"))
    assert book.tell(BAD)[1:] == [ready()]
    assert book.tell(task(request_id="r.1")) == []
    assert book.tell(task("t-2", request_id="r.2")) == book.run(RUN), "it was busy, and did not run"
    book.tell(OK)
    assert book.tell(task(request_id="r.3")) == book.run(RUN), "another attempt at the first"


@pytest.mark.parametrize("other", ["t-2", "odd"])
def test_another_task_while_busy_is_requeued_uncharged(other: str) -> None:
    refusal = failed(OutcomeKind.CANCELLED, "busy", issue_id=other)
    assert busy().tell(task(other)) == [refusal]


def test_a_timeout_is_term_then_kill_then_failed() -> None:
    book = busy(timeout=10.0)
    assert book.tick() == [TERM]
    assert book.now == 110.0
    assert book.tick() == [KILL]
    assert book.now == 110.0 + GRACE
    assert book.half.deadline() is None
    answer = book.tell(TERMINATED)
    assert answer == [failed(OutcomeKind.TIMEOUT, "timed out after 10 s", 15_000), ready()]


def test_who_speaks_version_1_is_answered_in_version_1() -> None:
    def of_v1(issue_id: str) -> ev.MessageReceived:
        return ev.MessageReceived(wire.Task(IssueId(issue_id), 2, "title", v1=True))

    book = Playbook()
    book.tell(CONNECTED, of_v1("t-1"))
    busy_with = wire.Failed(IssueId("t-2"), "W1", "busy", 0, OutcomeKind.CANCELLED)
    assert book.tell(of_v1("t-2")) == [ev.SendMessage(busy_with, v1=True)]
    assert book.tell(OK) == [ev.SendMessage(wire.Done(IssueId("t-1"), "W1", 0), v1=True), ready()]
    refused = wire.Failed(IssueId("odd"), "W1", "no way", 0, OutcomeKind.NOT_FOUND)
    assert book.tell(of_v1("odd")) == [ev.SendMessage(refused, v1=True), ready()]
    assert book.tell(of_v1("t-3"), SHUTDOWN, TERMINATED)[0] == ev.SendMessage(
        wire.Failed(IssueId("t-3"), "W1", "worker shut down", 0, OutcomeKind.CANCELLED), v1=True
    )


def test_the_timeout_of_the_task_wins_over_the_fleets() -> None:
    book = Playbook(timeout=10.0)
    book.tell(CONNECTED, task(timeout=3.0))
    assert book.half.deadline() == 103.0


def test_cancel_ends_the_task_and_the_worker_goes_on() -> None:
    book = busy()
    assert book.tell(cancel()) == [TERM]
    assert book.tell(cancel()) == []
    assert book.tell(OK) == [failed(OutcomeKind.CANCELLED, "cancelled"), ready()]
    book = busy(CLAIM, RUN, self_claiming=True)
    assert book.tell(cancel(), TERMINATED) == book.run(RELEASE)
    assert book.tell(OK)[-1] == ready("cancel")


@pytest.mark.parametrize("event", [SHUTDOWN, INTERRUPTED], ids=str)
def test_shutdown_ends_the_task_requeues_and_exits_0(event: ev.Event) -> None:
    gone = [failed(OutcomeKind.CANCELLED, "worker shut down"), ev.Exit(0)]
    book = busy()
    assert book.tell(event) == [TERM]
    assert book.tell(TERMINATED) == gone
    book = busy(CLAIM, RUN, self_claiming=True)
    assert book.tell(event, TERMINATED) == book.run(RELEASE)
    assert book.tell(OK) == gone


def test_a_lost_connection_ends_the_task_requeues_and_exits_1() -> None:
    book = busy()
    assert book.tell(LOST) == [TERM]
    assert book.tick() == [KILL]
    assert isinstance(book.tell(TERMINATED)[-1], ev.Exit)
    book = busy(CLAIM, RUN, self_claiming=True)
    assert book.tell(LOST, TERMINATED) == book.run(RELEASE)
    assert book.tell(OK)[-1] == ev.Exit(1)


def test_a_close_under_way_is_let_finish_whatever_comes() -> None:
    ends: list[tuple[ev.Event, list[ev.Command]]] = [
        (SHUTDOWN, [ev.SendMessage(wire.Done(IssueId("t-1"), "W1", 0)), ev.Exit(0)]),
        (cancel(), [ev.SendMessage(wire.Done(IssueId("t-1"), "W1", 0)), ready("cancel")]),
        (LOST, [ev.SpoolResult(wire.Done(IssueId("t-1"), "W1", 0)), ev.Exit(1)]),
    ]
    for event, end in ends:
        book = busy(CLAIM, RUN, self_claiming=True)
        assert book.tell(OK, event) == []
        assert book.tell(OK) == end


def test_a_tracker_that_hangs_is_killed_after_its_limit() -> None:
    book = Playbook(CLAIM, RUN, self_claiming=True)
    book.tell(CONNECTED, task())
    assert book.half.deadline() == book.now + SELF_CLAIM_CALL_SECONDS
    assert book.tick() == [TERM]
    assert book.tell(TERMINATED)[0] == failed(
        OutcomeKind.RETRY, "claim failed: the tracker did not answer", 60_000
    )
    book = busy(CLAIM, RUN, self_claiming=True)
    book.tell(OK)
    assert book.tick() == [KILL]


TIMED_OUT = None
"""Stands for the deadline of the task."""


@pytest.mark.parametrize(
    ("first", "second", "last"),
    [
        (cancel(), cancel(), None),
        (cancel(), SHUTDOWN, ev.Exit(0)),
        (cancel(), LOST, ev.Exit(1)),
        (SHUTDOWN, cancel(), ev.Exit(0)),
        (SHUTDOWN, SHUTDOWN, ev.Exit(0)),
        (SHUTDOWN, LOST, ev.Exit(0)),
        (LOST, INTERRUPTED, ev.Exit(1)),
        (TIMED_OUT, cancel(), None),
        (TIMED_OUT, SHUTDOWN, ev.Exit(0)),
        (TIMED_OUT, LOST, ev.Exit(1)),
    ],
)
@pytest.mark.parametrize("self_claiming", [False, True])
def test_any_two_reasons_to_end_a_task_end_it_once(
    first: ev.Event | None, second: ev.Event, last: ev.Command | None, self_claiming: bool
) -> None:
    book = busy(
        *((CLAIM, RUN) if self_claiming else (RUN,)), self_claiming=self_claiming, timeout=10.0
    )
    assert (book.tell(first) if first else book.tick()) == [TERM]
    assert book.tell(second) == []
    commands = book.tell(TERMINATED)
    if self_claiming:
        assert commands == book.run(RELEASE)
        commands = book.tell(OK)
    assert commands[-1] == (last or (ready("cancel") if self_claiming else ready()))
