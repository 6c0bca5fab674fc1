"""The worker's half of the conversation: events and the time in, commands out."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from beads_workers.core.base import limits
from beads_workers.core.base.model import OCCUPIED, IssueId, Outcome, OutcomeKind
from beads_workers.core.base.plans import NotRunnable, Plan, Step, StepKind
from beads_workers.core.base.settings import Work
from beads_workers.core.base.states import (
    KEEPS,
    SETTLES,
    WITH_CONNECTION,
    WORKER,
    WorkerReaction,
    WorkerState,
    WorkerStimulus,
)
from beads_workers.core.base.states import step as look_up
from beads_workers.core.base.throttled_messages import Asides
from beads_workers.core.base.wire import (
    BATCH,
    CANCEL,
    CANNOT_PREPARE,
    CANNOT_START,
    GROUPED,
    HEARTBEAT,
    PAUSE,
    RETURNED_UNSTARTED,
    REVOKED,
    STATUS,
    VERSION,
    Aside,
    Batch,
    Cancel,
    ControlAsked,
    ControlReply,
    Done,
    Failed,
    Heartbeat,
    Pause,
    Progress,
    Ready,
    Resume,
    Shutdown,
    Status,
    StatusAsked,
    Task,
    Wait,
)
from beads_workers.core.workers import worker_events as ev
from beads_workers.core.workers.worker_events import (
    Command,
    Event,
    SendMessage,
    SpoolResult,
    StepAnswered,
    StepEnded,
    StepNotStarted,
    StepOver,
)

# --- step results --------------------------------------------------------------------------------
# The meaning of a step's end: exit statuses and output turned into an outcome.
#
# Source: docs/SEMANTICS.md, "Failure and retry". The exit status decides; output is only for
# people.


EX_TEMPFAIL = 75
"""sysexits.h: try again later, without fault of the task."""

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit statuses of shells, and of programs like ``env``, that could not run a command."""

ERROR_TEXT_SHOWN = 300
"""Characters of a quoted output line inside a longer error text."""


def failure(step: Step, ended: StepOver) -> Outcome:
    """Return the outcome of a step that did not succeed, for every kind of step.

    A claim or a preparation that fails is no fault of the task: a retry charges nothing, and backs
    off.
    """
    if isinstance(ended, StepAnswered):
        return ended.outcome
    if _occupied(step, ended):
        return Outcome(OutcomeKind.CANCELLED, _cap(_why(ended)))
    match step.kind:
        case StepKind.CLAIM:
            return Outcome(OutcomeKind.RETRY, _cap(f"claim failed: {_why(ended)}"))
        case StepKind.PREPARE:
            return Outcome(OutcomeKind.RETRY, _cap(f"no worktree: {_why(ended)}"))
        case StepKind.AWAY:
            return Outcome(OutcomeKind.RETRY, _cap(f"the line to its place: {_why(ended)}"))
        case StepKind.VALIDATE:
            return _not_valid(ended)
        case StepKind.VERIFY:
            return Outcome(_kind(ended), _cap(f"verify failed: {_why(ended)}"))
        case _:
            return Outcome(_kind(ended), _cap(_run_error(step, ended)))


def passed(ended: StepOver) -> bool:
    """Return whether a step came to a good end."""
    if isinstance(ended, StepAnswered):
        return ended.outcome.kind is OutcomeKind.SUCCESS
    return isinstance(ended, StepEnded) and ended.status == 0


def reported(ended: StepOver) -> Outcome:
    """Return the outcome of a task that had succeeded before its report.
    Whatever came of the report, and whoever ended it, the work is done."""
    if isinstance(ended, StepEnded) and ended.status == 0:
        return Outcome(OutcomeKind.SUCCESS, note=last_line(ended.tail))
    return Outcome(OutcomeKind.SUCCESS)


def timed_out(step: Step, seconds: float, ended: StepOver) -> Outcome:
    """Return the outcome of a task that was ended after its timeout.
    Steps before its work are no fault of the task. Nor is what its executor answers for: that it
    was never started, or ended for another's sake."""
    if isinstance(ended, StepAnswered) and ended.outcome.kind is OutcomeKind.RETRY:
        return ended.outcome
    if step.kind is StepKind.CLAIM:
        return Outcome(OutcomeKind.RETRY, "claim failed: the tracker did not answer")
    if step.kind is StepKind.PREPARE:
        return Outcome(OutcomeKind.RETRY, f"no worktree: not ready after {seconds:g} s")
    return Outcome(OutcomeKind.TIMEOUT, f"timed out after {seconds:g} s")


def detail(step: Step, task: Task, ended: StepOver) -> str:
    """Return a FAILED's ``error_detail``.
    ``CANNOT_START``: no task of this fleet can run, because its own command is missing.
    ``CANNOT_PREPARE``: there is no worktree, or its work cannot be committed. ``OCCUPIED``: a
    person stands in the worktree."""
    if isinstance(ended, StepAnswered):
        return CANNOT_PREPARE if ended.outcome.unprepared else ""
    if folder := _occupied(step, ended):
        return f"{OCCUPIED}{folder}"
    if step.kind is StepKind.PREPARE:
        return CANNOT_PREPARE
    missing = isinstance(ended, StepNotStarted) and ended.missing
    of_fleet = step.kind is StepKind.RUN and not task.payload.get("command")
    return CANNOT_START if missing and of_fleet else ""


def _occupied(step: Step, ended: StepEnded | StepNotStarted) -> str:
    """Return the worktree in which a person stands, as the preparation says; "" if nobody does."""
    if step.kind is not StepKind.PREPARE or not isinstance(ended, StepEnded):
        return ""
    lines = ended.tail.splitlines() if ended.status == EX_TEMPFAIL else []
    found = (line.removeprefix(OCCUPIED) for line in lines if line.startswith(OCCUPIED))
    return next(found, "")


def last_line(tail: str) -> str:
    """Return the last line of ``tail`` that shows anything, without what would steer a terminal."""
    return next(_from_the_end(tail), "")


def reason(tail: str) -> str:
    """Return the last line that says why something failed.
    Lines of make, and the sums of test runners, only say that it did."""
    last = last_line(tail)
    return next((line for line in _from_the_end(tail) if not _ONLY_THAT.match(line)), last)


def _from_the_end(tail: str) -> Iterator[str]:
    for line in reversed(_LINE_END.split(_ESCAPE.sub("", tail))):
        if shown := _CONTROL.sub("", line).strip():
            yield shown[: limits.ERROR_CHARS_MAX].rstrip()


def _not_valid(ended: StepEnded | StepNotStarted) -> Outcome:
    """Return the outcome of a script that its validator did not pass.
    A validator that could not say anything has not refused it, but nothing is run without its
    word."""
    why = _why(ended)
    if isinstance(ended, StepNotStarted) or ended.status in (
        EX_TEMPFAIL,
        NOT_EXECUTABLE,
        NOT_FOUND,
    ):
        return Outcome(OutcomeKind.RETRY, _cap(f"not validated: {why}"))
    if ended.status < 0:
        return Outcome(OutcomeKind.ERROR, _cap(f"not validated: {why}"))
    return Outcome(OutcomeKind.NOT_FOUND, _cap(f"refused: {why}"))


def _kind(ended: StepEnded | StepNotStarted) -> OutcomeKind:
    if isinstance(ended, StepNotStarted):
        # A machine that is full is no fault of the task.
        return OutcomeKind.RETRY if ended.degraded else OutcomeKind.ERROR
    if ended.status == EX_TEMPFAIL:
        return OutcomeKind.RETRY
    return OutcomeKind.ERROR


def _run_error(step: Step, ended: StepEnded | StepNotStarted) -> str:
    if isinstance(ended, StepNotStarted):
        return f"Task execution failed: {ended.error}"
    error_text = (ended.said or reason(ended.tail))[:ERROR_TEXT_SHOWN]
    if ended.status == NOT_FOUND:
        return f"Task execution failed: command not found: {error_text or step.name}"
    if ended.status == NOT_EXECUTABLE:
        return f"Task execution failed: not executable: {error_text or step.name}"
    return _why(ended)


def _why(ended: StepEnded | StepNotStarted) -> str:
    if isinstance(ended, StepNotStarted):
        return ended.error
    error_text = ended.said or reason(ended.tail)
    if ended.status < 0:
        killed = _LIMITS.get(ended.signal) or f"killed by signal {ended.signal or -ended.status}"
        return f"{killed} ({error_text[:ERROR_TEXT_SHOWN]})" if error_text else killed
    return error_text or f"exit status {ended.status}"


_LIMITS = {"XCPU": "used up its CPU time", "XFSZ": "a file grew beyond its limit"}
"""Signals that say by themselves which limit was met."""


def _cap(text: str) -> str:
    return text[: limits.ERROR_CHARS_MAX]


_ONLY_THAT = re.compile(
    r"g?make(\[\d+\])?: (\*\*\* (\[.*\] )?Error \d+|Leaving directory |Target .* not remade)"
    r"|ninja: build stopped: subcommand failed|error: [Rr]ecipe `.*` failed "
    r"|FAILED \(.*\)$|Ran \d+ tests? in |[-=]{5,}$"  # unittest
    r"|=* ?\d+ (failed|passed|errors?|skipped)\b.* in [\d.]+s\b"  # pytest
    r"|FAIL(\t.*)?$|exit status \d+$"  # go
    r"|npm (ERR!|error) |Node\.js v\d|at .+:\d+:\d+\)?$|[{}\]]+,?$"  # JavaScript
    r"|# (tests|pass|fail|duration_ms|suites|cancelled|skipped|todo) |\d+ tests? failed$"
    r"|error: (test failed|could not compile|aborting due)|ERR_PNPM_|ELIFECYCLE"
)
_LINE_END = re.compile(r"[\r\n\v\f\x85\u2028\u2029]")
_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links and other strings
    r"|\x1b[ -/]*[0-~]"
)
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


# --- current -------------------------------------------------------------------------------------
# The task that a worker has in hand, and its progress through the steps.


@dataclass(slots=True)
class Current:
    """The task that a worker has in hand. Times are monotonic seconds."""

    task: Task
    plan: Plan
    started: float
    times_out_at: float | None
    step: Step
    position: int = 0
    # Known once its steps have ended.
    answer: Outcome | None = None
    error_detail: str = ""
    # The JSON text that a successful step returned, or ``result_file``, the path of a file with it.
    result: str = ""
    result_file: str = ""
    # It has said that its worker is to end.
    is_stopping: bool = False
    # It was asked to end by itself; it has not been told yet.
    was_asked: bool = False
    # It is stopped since then.
    suspended_at: float | None = None
    # What it needs is being set up since then, and its own time has not begun.
    set_up_since: float | None = None
    # The receipt of an agent's attempt.
    receipt: Mapping[str, Any] | None = None

    @property
    def is_dispatched(self) -> bool:
        """Whether it is a task of dispatcherd.
        As its author expects, such a task is asked to end before it is told, and its time begins
        once its worker class is ready."""
        return self.step.call is not None and self.step.call.message is not None

    def postpone(self, seconds: float) -> None:
        """Move the task's times by the seconds for which they stood still."""
        self.started += seconds
        if self.times_out_at is not None:
            self.times_out_at += seconds

    def next_step(self) -> Step:
        """Go on to the next step, and return it."""
        self.position += 1
        return self.plan.steps[self.position]

    def step_ended(self, state: WorkerState, ended: StepOver) -> WorkerStimulus:
        """Take in the end of its step, while its worker was in ``state``; return the stimulus."""
        well = passed(ended)
        if isinstance(ended, StepAnswered):
            self.is_stopping, self.receipt = ended.is_stopping, ended.receipt
        if well and isinstance(ended, StepAnswered):
            self.result = ended.outcome.result
            self.result_file = ended.outcome.result_file
        elif well and isinstance(ended, StepEnded) and self.step.speaks:
            self.result, self.result_file = ended.result, ended.result_file
        pending: Step | None = None
        match state:
            case _ if self.step.kind is StepKind.REPORT:
                self.answer = reported(ended)
                pending = None if state is WorkerState.TIMING_OUT else self.plan.close
            case WorkerState.WORKING if well and self.position + 1 < len(self.plan.steps):
                return WorkerStimulus.STEP_PASSED
            case WorkerState.WORKING if well:
                note = ended.outcome.note if isinstance(ended, StepAnswered) else ""
                self.answer = Outcome(OutcomeKind.SUCCESS, note=note)
                pending = self.plan.close
            case WorkerState.WORKING:
                self.answer = failure(self.step, ended)
                self.error_detail = detail(self.step, self.task, ended)
            case WorkerState.TIMING_OUT if self.set_up_since is not None:
                seconds = limits.SET_UP_SECONDS
                self.answer = Outcome(OutcomeKind.TIMEOUT, f"not set up after {seconds:g} s")
            case WorkerState.TIMING_OUT:
                seconds = (self.times_out_at or self.started) - self.started
                self.answer = timed_out(self.step, seconds, ended)
                self.error_detail = detail(self.step, self.task, ended)
            case WorkerState.ABANDONING if well and self._has_returned(ended):
                # The function was done before it was told to end: although nobody hears it, it
                # stays done. An exit status says less: many programs exit with 0 on TERM.
                self.answer = Outcome(OutcomeKind.SUCCESS)
                pending = self.plan.close
            case WorkerState.CANCELLING | WorkerState.STOPPING | WorkerState.ABANDONING:
                why = "cancelled" if state is WorkerState.CANCELLING else "worker shut down"
                self.answer = Outcome(OutcomeKind.CANCELLED, why)
                pending = self.plan.release
            case _:
                pass  # The answer was known before the settling.
        if pending is None:
            return WorkerStimulus.TASK_OVER
        self.step = pending
        return WorkerStimulus.SETTLE_DUE

    def _has_returned(self, ended: StepOver) -> bool:
        """Return whether its last step is a function that came to its end, wanted or not."""
        return isinstance(ended, StepAnswered) and self.position + 1 == len(self.plan.steps)

    def report(self, worker_id: str, now: float) -> Done | Failed:
        """Return the answer to the orchestrator."""
        answer = self.answer
        assert answer is not None
        issue_id, ms = self.task.issue_id, round((now - self.started) * 1000)
        if answer.kind is OutcomeKind.SUCCESS:
            result = self._result(answer)
            file, stops = self.result_file, self.is_stopping
            return Done(issue_id, worker_id, ms, result, file, self.receipt, stops)
        return Failed(
            issue_id,
            worker_id,
            answer.error,
            ms,
            answer.kind,
            answer.retry_after_seconds,
            self.error_detail,
            self.receipt,
            self.is_stopping,
        )

    def _result(self, answer: Outcome) -> object:
        if self.result:
            return json.loads(self.result)
        return {"note": answer.note} if answer.note else None


# --- prefetched tasks ----------------------------------------------------------------------------
# The TASKs queued on a worker, in their order: none of them has started.
#
# Source: docs/SEMANTICS.md, "Prefetch".


@dataclass(slots=True)
class Prefetched:
    """``room``: maximum length of the queue."""

    room: int
    _kept: deque[tuple[Task, Plan]] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, task: Task, plan: Plan) -> bool:
        """Queue a task; return False if the queue is full."""
        if len(self._kept) >= self.room:
            return False
        self._kept.append((task, plan))
        return True

    def next(self) -> tuple[Task, Plan]:
        """Remove and return the task to begin now."""
        return self._kept.popleft()

    def has(self, issue_id: IssueId) -> bool:
        """Return whether the issue is queued."""
        return any(task.issue_id == issue_id for task, _ in self._kept)

    def release(self, worker_id: str, why: str, only: IssueId | None = None) -> list[Failed]:
        """Drop one task, or all, from the queue; return the messages to the orchestrator."""
        back = [task for task, _ in self._kept if only in (None, task.issue_id)]
        self._kept = deque(kept for kept in self._kept if kept[0] not in back)
        return [
            Failed(
                task.issue_id,
                worker_id,
                why,
                0,
                OutcomeKind.CANCELLED,
                error_detail=RETURNED_UNSTARTED,
                request_id=task.request_id,
            )
            for task in back
        ]


# --- unheard results -----------------------------------------------------------------------------
# The last answers of a worker, which it spools if its orchestrator may not have read them.
#
# Source: docs/SEMANTICS.md, "Result spool".


class UnheardResults:
    """``is_alone``: the connection is lost, and nobody reads what is said from now on."""

    def __init__(self, prefetch_count: int) -> None:
        """``prefetch_count``: that of its worker.
        No more than these and one can be answered before the orchestrator has read any of the
        answers."""
        self.is_alone = False
        self._answers: deque[tuple[str, Done | Failed]] = deque(maxlen=prefetch_count + 1)

    def say(
        self, answer: Done | Failed, request_id: str, *, v1: bool = False
    ) -> SendMessage | SpoolResult:
        """Return the command for an answer to the TASK with this ``request_id``.

        ``v1``: as it was said. A failure that nobody hears is none: its task is begun again.
        """
        if isinstance(answer, Failed) and answer.error_detail != RETURNED_UNSTARTED:
            return SendMessage(answer, v1)
        if self.is_alone:
            return SpoolResult(replace(answer, request_id=request_id))
        # This runs for each task: it does no more than it has to.
        self._answers.append((request_id, answer))
        return SendMessage(answer, v1)

    def leave(self) -> list[SpoolResult]:
        """Return the spooled answers that may not have been read: the connection is lost."""
        self.is_alone = True
        unread = [SpoolResult(replace(answer, request_id=named)) for named, answer in self._answers]
        self._answers.clear()
        return unread


# --- worker --------------------------------------------------------------------------------------
# The worker's half of the conversation: events and the time in, commands out.
#
# Source: docs/PROTOCOL.md, "Conversation". ``core.base.states`` holds every move; here is what each
# reaction does. The edge carries out the commands in order, and comes back with ``on_deadline``
# when ``deadline()`` has passed. Times are monotonic seconds.


@dataclass(slots=True)
class WorkerHalf:
    """One worker."""

    worker_id: str
    work: Work
    # A pure function.
    make_plan: Callable[[Task], Plan | NotRunnable]
    # They lie between the tries to connect.
    connect_delays: Sequence[float] = limits.CONNECT_DELAYS_SECONDS
    # It is never silent for longer; None announces none.
    heartbeat_seconds: float | None = limits.WORKER_HEARTBEAT_SECONDS
    batch_size: int = 0
    state: WorkerState = WorkerState.CONNECTING
    current: Current | None = None
    _tries: int = 0
    _deadline: float | None = None
    _planned: Plan | NotRunnable | None = None
    _prefetched: Prefetched = field(init=False)
    _taken: str = ""
    """The request that was begun last: its TASK may come once more when it is over."""
    _unheard: UnheardResults = field(init=False)
    _asides: Asides = field(default_factory=Asides)
    _paused: bool = False
    _activity: str = ""
    _beat_at: float | None = None
    """Time at which it has been silent for long enough; None while nobody is there to hear it."""
    _out: list[Command] = field(default_factory=list)

    def __post_init__(self) -> None:
        room = max(self.work.prefetch_count, self.batch_size - 1)
        self._prefetched, self._unheard = Prefetched(room), UnheardResults(room)

    def start(self) -> list[Command]:
        """Return the first commands; call once, before anything else."""
        return [ev.Connect()]

    def deadline(self) -> float | None:
        """Return when ``on_deadline`` is due; None: only an event can change anything."""
        due = [self._deadline, self._asides.deadline(), self._beat_at]
        return min((each for each in due if each is not None), default=None)

    def on_deadline(self, now: float) -> list[Command]:
        """Handle the deadlines that have passed; harmless if none has."""
        commands = self._due_asides(now)
        if self._deadline is not None and now >= self._deadline:
            self._deadline = None
            commands += self._move(WorkerStimulus.TIMER, None, now)
        return self._beating(commands, now)

    def handle(self, event: Event, now: float) -> list[Command]:
        """Handle an event; return the commands to carry out, in order."""
        if self.state is WorkerState.GONE:
            return []
        return self._beating(self._handle(event, now), now)

    def _handle(self, event: Event, now: float) -> list[Command]:
        if isinstance(event, ev.StepSaid):
            # Beside the conversation: what a task says, and hears, changes no state.
            return self._say_aside(event.message, now)
        if isinstance(event, ev.StepBegun):
            self._begin(now)
            return []
        if isinstance(event, ev.MessageReceived) and isinstance(event.message, ControlReply):
            return [ev.TellStep(event.message.reply)]
        if isinstance(event, ev.MessageReceived) and isinstance(event.message, StatusAsked):
            return [ev.SendMessage(self._status())]
        if isinstance(event, ev.MessageReceived) and isinstance(event.message, Batch):
            return self._take_batch(event.message, now)
        if isinstance(event, ev.MessageReceived) and isinstance(event.message, Cancel):
            issue_id, why = event.message.issue_id, event.message.reason
            if back := self._prefetched.release(self.worker_id, why, issue_id):
                self._out += [self._unheard.say(each, each.request_id) for each in back]
                if self.state is WorkerState.HELD and not self._prefetched:
                    return self._move(WorkerStimulus.QUEUE_EMPTY, event, now)
                return self._take_commands()
        return self._move(self._sort(event), event, now)

    def _beating(self, commands: list[Command], now: float) -> list[Command]:
        """Add a HEARTBEAT if nothing else has been said for long; every message puts it off."""
        every, speaks_v1 = self.heartbeat_seconds, self.current and self.current.task.v1
        if every is None or speaks_v1 or self.state not in WITH_CONNECTION:
            self._beat_at = None
        elif self._beat_at is None or any(isinstance(each, SendMessage) for each in commands):
            self._beat_at = now + every
        elif now >= self._beat_at:
            self._beat_at = now + every
            commands.append(ev.SendMessage(Heartbeat()))
        return commands

    def _status(self) -> Status:
        """Return what the worker does; the edge adds the resources it uses."""
        state = "waiting" if self.state is WorkerState.WAITING else "idle"
        if self.current is None:
            return Status("paused" if self._paused else state)
        task = self.current.task
        state = "paused" if self._paused else "busy"
        return Status(state, task.issue_id, task.request_id, self._activity)

    def _take_batch(self, batch: Batch, now: float) -> list[Command]:
        """Take a TASK, and others behind it; say READY only if none of them could be begun."""
        commands: list[Command] = []
        for task in batch.tasks:
            commands += self._move(self._sort_message(task), ev.MessageReceived(task), now)
        asks = [c for c in commands if isinstance(c, SendMessage) and isinstance(c.message, Ready)]
        if not asks:
            return commands
        answers = [each for each in commands if each not in asks]
        return [*answers, asks[-1]] if self.state is WorkerState.ASKING else answers

    def _say_aside(self, message: ControlAsked | Aside, now: float) -> list[Command]:
        if isinstance(message, ControlAsked):
            return [ev.SendMessage(message)]
        if self.current is None or not self.current.task.request_id:
            return []  # The message came too late, or the orchestrator speaks version 1 only.
        if isinstance(message, Progress):
            self._activity = message.activity
        self._asides.add(replace(message, issue_id=self.current.task.issue_id))
        return self._due_asides(now)

    def _due_asides(self, now: float) -> list[Command]:
        return [ev.SendMessage(message) for message in self._asides.take(now)]

    # --- events to stimuli --------------------------------------------------------------------

    def _sort(self, event: ev.Moving) -> WorkerStimulus:
        match event:
            case ev.OrchestratorConnected():
                return WorkerStimulus.CONNECTED
            case ev.ConnectFailed():
                left = self._tries < len(self.connect_delays)
                return WorkerStimulus.CONNECT_FAILED if left else WorkerStimulus.OUT_OF_TRIES
            case ev.MessageReceived(message):
                return self._sort_message(message)
            case ev.ConnectionLost():
                self._out += self._unheard.leave()
                return WorkerStimulus.LOST
            case ev.Interrupted():
                return WorkerStimulus.SHUTDOWN
            case ev.StepEnded() | ev.StepAnswered() | ev.StepNotStarted():
                return self._sort_end(event)
            case _:
                assert_never(event)

    def _sort_message(self, message: Task | Wait | Shutdown | Cancel | object) -> WorkerStimulus:
        ours = self.current.task.issue_id if self.current else None
        match message:
            case Task(issue_id) if ours == issue_id or self._prefetched.has(issue_id):
                return WorkerStimulus.REPEATED_TASK
            case Task() if self._taken == message.request_id != "":
                return WorkerStimulus.REPEATED_TASK
            case Task():
                self._taken = self._taken if ours else message.request_id
                self._planned = self.make_plan(message)
                refused = isinstance(self._planned, NotRunnable)
                return WorkerStimulus.NOT_RUNNABLE if refused else WorkerStimulus.TASK
            case Wait():
                return WorkerStimulus.WAIT
            case Pause():
                return WorkerStimulus.PAUSE
            case Resume():
                return WorkerStimulus.RESUME
            case Shutdown():
                return WorkerStimulus.SHUTDOWN
            case Cancel() if message.issue_id == ours and message.reason != REVOKED:
                return WorkerStimulus.CANCEL
            case _:
                return WorkerStimulus.OTHER_CANCEL

    def _sort_end(self, ended: ev.StepOver) -> WorkerStimulus:
        current = self._busy()
        if self.state in SETTLES and not passed(ended):
            # No failure of the task: the reader of DONE or FAILED looks at the issue, and settles
            # it.
            why = failure(current.step, ended).error
            self._log(f"{current.step.kind.value} of {current.task.issue_id} failed: {why}")
        stimulus = current.step_ended(self.state, ended)
        if stimulus is WorkerStimulus.TASK_OVER and self._prefetched and not current.is_stopping:
            return WorkerStimulus.HELD_DUE if self._paused else WorkerStimulus.NEXT_DUE
        return stimulus

    # --- stimuli to reactions -----------------------------------------------------------------

    def _move(self, stimulus: WorkerStimulus, event: Event | None, now: float) -> list[Command]:
        move = look_up(WORKER, self.state, stimulus)
        before, self.state = self.state, move.to
        if self._prefetched and self.state not in KEEPS:
            back = self._prefetched.release(self.worker_id, "its worker takes no more")
            self._out += [self._unheard.say(each, each.request_id) for each in back]
        self._react(move.reaction, before, event, now)
        self._planned = None
        return self._take_commands()

    def _take_commands(self) -> list[Command]:
        commands, self._out = self._out, []
        return commands

    def _react(
        self, reaction: WorkerReaction, before: WorkerState, event: Event | None, now: float
    ) -> None:
        match reaction:
            case WorkerReaction.NONE:
                pass
            case WorkerReaction.NOTE:
                self._log(f"ignored {ev.name_of(event)} ({before.name})")
            case WorkerReaction.CONNECT:
                self._out.append(ev.Connect())
            case WorkerReaction.BACK_OFF:
                self._back_off(event, now)
            case WorkerReaction.GIVE_UP:
                self._log(f"cannot connect, giving up: {getattr(event, 'error', '')}")
                self._exit(1)
            case WorkerReaction.ASK:
                self._ask()
            case WorkerReaction.REST:
                assert isinstance(event, ev.MessageReceived) and isinstance(event.message, Wait)
                self._deadline = now + event.message.wait_seconds
            case WorkerReaction.START:
                assert isinstance(self._planned, Plan)
                self._start(_task(event), self._planned, now)
            case WorkerReaction.KEEP:
                assert isinstance(self._planned, Plan)
                if not self._prefetched.keep(_task(event), self._planned):
                    self._refuse(event, busy=True)
            case WorkerReaction.CONTINUE:
                self._run(self._busy(), self._busy().next_step(), now)
            case WorkerReaction.REFUSE | WorkerReaction.REFUSE_ASK:
                self._refuse(event, busy=reaction is WorkerReaction.REFUSE)
            case WorkerReaction.END:
                self._end(now)
            case WorkerReaction.KILL:
                self._kill(now)
            case WorkerReaction.SETTLE:
                self._run(self._busy(), self._busy().step, now)
            case WorkerReaction.ANSWER_ASK:
                self._answer(now)
                self._ask()
            case WorkerReaction.ANSWER_HOLD:
                self._answer(now)
            case WorkerReaction.ANSWER_NEXT:
                self._answer(now)
                self._start(*self._prefetched.next(), now)
            case WorkerReaction.PAUSE | WorkerReaction.RESUME | WorkerReaction.NEXT:
                self._pause(reaction, now)
            case WorkerReaction.ANSWER_LEAVE:
                self._answer(now)
                self._exit(0)
            case WorkerReaction.LEAVE:
                self._exit(0)
            case WorkerReaction.FAIL:
                self._fail(now)
            case WorkerReaction.BUG:
                raise AssertionError(f"{event} in {before}")
            case _:
                assert_never(reaction)

    def _back_off(self, event: Event | None, now: float) -> None:
        assert isinstance(event, ev.ConnectFailed)
        delay = self.connect_delays[self._tries]
        self._tries += 1
        self._deadline = now + delay
        self._log(f"cannot connect, trying again in {delay:g} s: {event.error}")

    def _ask(self) -> None:
        self._deadline = None
        beat, batch_size = self.heartbeat_seconds, 0 if self.work.bd_argv else self.batch_size
        features = {CANCEL} if self.work.bd_argv else {CANCEL, GROUPED}
        features |= (
            {PAUSE, STATUS} | ({HEARTBEAT} if beat else set()) | ({BATCH} if batch_size else set())
        )
        counts = self.work.prefetch_count, beat, batch_size
        ready = Ready(self.worker_id, VERSION, frozenset(features), *counts)
        self._out.append(ev.SendMessage(ready))

    def _start(self, task: Task, plan: Plan, now: float) -> None:
        self._taken, self._activity = task.request_id, ""
        timeout = task.timeout_seconds or self.work.timeout_seconds
        times_out_at = now + timeout if timeout and not plan.keeps_time else None
        self.current = Current(task, plan, now, times_out_at, plan.steps[0])
        self._run(self.current, plan.steps[0], now)

    def _run(self, current: Current, step: Step, now: float) -> None:
        current.step = step
        if step.kind is StepKind.CLAIM:
            limit = now + limits.SELF_CLAIM_CALL_SECONDS
            self._deadline = min(limit, current.times_out_at or limit)
        elif step.kind in (StepKind.CLOSE, StepKind.RELEASE):
            self._deadline = now + limits.SELF_CLAIM_CALL_SECONDS
        elif current.is_dispatched:
            current.set_up_since = now
            has_limit = current.times_out_at is not None
            self._deadline = now + limits.SET_UP_SECONDS if has_limit else None
        else:
            self._deadline = current.times_out_at
        self._out.append(ev.RunStep(current.plan, step))
        self._suspend(now)

    def _begin(self, now: float) -> None:
        current = self.current
        if current is None or current.set_up_since is None:
            return
        waited, current.set_up_since = now - current.set_up_since, None
        current.postpone(waited)
        if self.state is WorkerState.WORKING:
            self._deadline = current.times_out_at

    def _pause(self, reaction: WorkerReaction, now: float) -> None:
        self._paused = reaction is WorkerReaction.PAUSE
        if self._paused:
            self._suspend(now)
        elif reaction is WorkerReaction.RESUME:
            self._continue(now)
        else:
            self._start(*self._prefetched.next(), now)

    def _suspend(self, now: float) -> None:
        """Stop the command of a paused worker, if that can bear it; its time stands still."""
        current = self.current
        if current is None or not (self._paused and self.work.suspends):
            return
        step, works = current.step, self.state is WorkerState.WORKING
        is_command = step.kind is StepKind.RUN and not (step.call or step.is_attempt)
        if works and is_command and current.suspended_at is None:
            current.suspended_at, self._deadline = now, None
            self._out.append(ev.SuspendStep(on=True))

    def _continue(self, now: float) -> None:
        current = self.current
        if current is None or current.suspended_at is None:
            return
        paused, current.suspended_at = now - current.suspended_at, None
        current.postpone(paused)
        self._deadline = current.times_out_at
        self._out.append(ev.SuspendStep(on=False))

    def _end(self, now: float) -> None:
        current = self._busy()
        self._continue(now)  # A stopped process hears nothing.
        current.was_asked = current.is_dispatched
        self._deadline = now + self._grace() / (2 if current.was_asked else 1)
        self._out.append(ev.EndStep(hard=False, ask=current.was_asked))

    def _kill(self, now: float) -> None:
        asked = self.current is not None and self.current.was_asked
        if self.current is not None and asked:
            self.current.was_asked = False
            self._deadline = now + self._grace() / 2
        self._out.append(ev.EndStep(hard=not asked))

    def _grace(self) -> float:
        grace, alone = self.work.term_grace_seconds, self.state is WorkerState.ABANDONING
        return min(grace, limits.ABANDON_GRACE_SECONDS) if alone else grace

    def _refuse(self, event: Event | None, *, busy: bool) -> None:
        why = self._planned
        if not isinstance(why, NotRunnable) or (busy and not self._prefetched.room):
            why = NotRunnable("busy", OutcomeKind.CANCELLED)
        task = _task(event)
        refusal = Failed(task.issue_id, self.worker_id, why.error, 0, why.outcome)
        self._out.append(ev.SendMessage(refusal, task.v1))
        if not busy:
            self._ask()

    def _answer(self, now: float) -> None:
        current, self.current, self._deadline = self._busy(), None, None
        self._asides.forget()
        answer = current.report(self.worker_id, now)
        self._out.append(self._unheard.say(answer, self._taken, v1=current.task.v1))

    def _fail(self, now: float) -> None:
        if self.current is not None:
            self._answer(now)
        self._log("the orchestrator is gone")
        self._exit(1)

    def _exit(self, status: int) -> None:
        self._deadline = None
        self._out.append(ev.Exit(status))

    def _log(self, text: str) -> None:
        self._out.append(ev.Log(text))

    def _busy(self) -> Current:
        assert self.current is not None, f"no task in {self.state}"
        return self.current


def _task(event: Event | None) -> Task:
    assert isinstance(event, ev.MessageReceived) and isinstance(event.message, Task)
    return event.message
