"""The worker's half of the conversation: events and the time in, commands out.

Source: docs/PROTOCOL.md, "Conversation". ``core.worker_states`` holds every move; here is
what each reaction does. The edge carries out the commands in order, and comes back with
``on_deadline`` when ``deadline()`` has passed. Times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from beads_workers.core import limits
from beads_workers.core import worker_events as ev
from beads_workers.core.current import Current
from beads_workers.core.last_words import LastWords
from beads_workers.core.message_types import (
    CANCEL,
    GROUPED,
    RECALLED,
    VERSION,
    Cancel,
    ControlAsked,
    ControlReply,
    Failed,
    Ready,
    Shutdown,
    Task,
    Wait,
)
from beads_workers.core.moves import step as look_up
from beads_workers.core.outcomes import OutcomeKind
from beads_workers.core.plans import NotRunnable, Plan, Step, StepKind
from beads_workers.core.settings import Work
from beads_workers.core.step_results import failure, passed
from beads_workers.core.worker_ahead import Ahead
from beads_workers.core.worker_events import Command, Event
from beads_workers.core.worker_states import (
    GOES_ON,
    SETTLES,
    WORKER,
    WorkerReaction,
    WorkerState,
    WorkerStimulus,
)


@dataclass(slots=True)
class WorkerHalf:
    """One worker. ``make_plan`` is pure; ``connect_delays`` lie between the tries to connect."""

    worker_id: str
    work: Work
    make_plan: Callable[[Task], Plan | NotRunnable]
    connect_delays: Sequence[float] = limits.CONNECT_DELAYS_SECONDS
    state: WorkerState = WorkerState.CONNECTING
    current: Current | None = None
    _tries: int = 0
    _deadline: float | None = None
    _planned: Plan | NotRunnable | None = None
    _ahead: Ahead = field(init=False)
    _taken: str = ""
    """The request that was begun last: its TASK may come once more when it is over."""
    _words: LastWords = field(init=False)
    _out: list[Command] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ahead, self._words = Ahead(self.work.tasks_ahead), LastWords(self.work.tasks_ahead)

    def start(self) -> list[Command]:
        """The first commands; call once, before anything else."""
        return [ev.Connect()]

    def deadline(self) -> float | None:
        """When ``on_deadline`` is due; None: only an event can change anything."""
        return self._deadline

    def on_deadline(self, now: float) -> list[Command]:
        """Call when ``deadline()`` has passed; harmless when it has not."""
        if self._deadline is None or now < self._deadline:
            return []
        self._deadline = None
        return self._move(WorkerStimulus.TIMER, None, now)

    def handle(self, event: Event, now: float) -> list[Command]:
        """Tell it what happened; carry out what it answers, in order."""
        if self.state is WorkerState.GONE:
            return []
        if isinstance(event, ev.StepAsked):
            # Beside the conversation: what a task asks, and hears, changes no state.
            return [ev.Send(ControlAsked(event.command, event.control_data))]
        if isinstance(event, ev.Received) and isinstance(event.message, ControlReply):
            return [ev.TellStep(event.message.reply)]
        if isinstance(event, ev.Received) and isinstance(event.message, Cancel):
            issue_id, why = event.message.issue_id, event.message.reason
            if back := self._ahead.give_back(self.worker_id, why, issue_id):
                return [self._words.say(each, each.request_id) for each in back]
        return self._move(self._sort(event), event, now)

    # --- events to stimuli --------------------------------------------------------------------

    def _sort(self, event: ev.Moving) -> WorkerStimulus:
        match event:
            case ev.Connected():
                return WorkerStimulus.CONNECTED
            case ev.ConnectFailed():
                left = self._tries < len(self.connect_delays)
                return WorkerStimulus.CONNECT_FAILED if left else WorkerStimulus.OUT_OF_TRIES
            case ev.Received(message):
                return self._sort_message(message)
            case ev.ConnectionLost():
                self._out += self._words.leave()
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
            case Task(issue_id) if ours == issue_id or self._ahead.has(issue_id):
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
            case Shutdown():
                return WorkerStimulus.SHUTDOWN
            case Cancel() if message.issue_id == ours and message.reason != RECALLED:
                return WorkerStimulus.CANCEL
            case _:
                return WorkerStimulus.OTHER_CANCEL

    def _sort_end(self, ended: ev.StepOver) -> WorkerStimulus:
        current = self._busy()
        if self.state in SETTLES and not passed(ended):
            # No failure of the task: whoever reads DONE or FAILED looks at the issue, settles it.
            why = failure(current.step, ended).error
            self._log(f"{current.step.kind.value} of {current.task.issue_id} failed: {why}")
        stimulus = current.step_ended(self.state, ended)
        if stimulus is WorkerStimulus.TASK_OVER and self._ahead and not current.is_stopping:
            return WorkerStimulus.NEXT_DUE
        return stimulus

    # --- stimuli to reactions -----------------------------------------------------------------

    def _move(self, stimulus: WorkerStimulus, event: Event | None, now: float) -> list[Command]:
        move = look_up(WORKER, self.state, stimulus)
        before, self.state = self.state, move.to
        if self._ahead and self.state not in GOES_ON:
            back = self._ahead.give_back(self.worker_id, "its worker takes no more")
            self._out += [self._words.say(each, each.request_id) for each in back]
        self._react(move.reaction, before, event, now)
        self._planned = None
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
                assert isinstance(event, ev.Received) and isinstance(event.message, Wait)
                self._deadline = now + event.message.wait_seconds
            case WorkerReaction.START:
                assert isinstance(self._planned, Plan)
                self._start(_task(event), self._planned, now)
            case WorkerReaction.KEEP:
                assert isinstance(self._planned, Plan)
                if not self._ahead.keep(_task(event), self._planned):
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
            case WorkerReaction.ANSWER_NEXT:
                self._answer(now)
                self._start(*self._ahead.next(), now)
            case WorkerReaction.ANSWER_LEAVE:
                self._answer(now)
                self._exit(0)
            case WorkerReaction.LEAVE:
                self._exit(0)
            case WorkerReaction.FAIL:
                if self.current is not None:
                    self._answer(now)
                self._log("the orchestrator is gone")
                self._exit(1)
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
        features = {CANCEL} if self.work.bd_argv else {CANCEL, GROUPED}
        ready = Ready(self.worker_id, VERSION, frozenset(features), self._ahead.room)
        self._out.append(ev.Send(ready))

    def _start(self, task: Task, plan: Plan, now: float) -> None:
        self._taken = task.request_id
        timeout = task.timeout_seconds or self.work.timeout_seconds
        times_out_at = now + timeout if timeout else None
        self.current = Current(task, plan, now, times_out_at, plan.steps[0])
        self._run(self.current, plan.steps[0], now)

    def _run(self, current: Current, step: Step, now: float) -> None:
        current.step = step
        if step.kind is StepKind.CLAIM:
            limit = now + limits.LITERAL_CALL_SECONDS
            self._deadline = min(limit, current.times_out_at or limit)
        elif step.kind in (StepKind.CLOSE, StepKind.GIVE_BACK):
            self._deadline = now + limits.LITERAL_CALL_SECONDS
        else:
            self._deadline = current.times_out_at
        self._out.append(ev.RunStep(current.plan, step))

    def _end(self, now: float) -> None:
        current = self._busy()
        current.was_asked = current.asks_first
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
        if not isinstance(why, NotRunnable) or (busy and not self._ahead.room):
            why = NotRunnable("busy", OutcomeKind.CANCELLED)
        refusal = Failed(_task(event).issue_id, self.worker_id, why.error, 0, why.outcome)
        self._out.append(ev.Send(refusal))
        if not busy:
            self._ask()

    def _answer(self, now: float) -> None:
        answer, self.current = self._busy().report(self.worker_id, now), None
        self._out.append(self._words.say(answer, self._taken))

    def _exit(self, status: int) -> None:
        self._deadline = None
        self._out.append(ev.Exit(status))

    def _log(self, text: str) -> None:
        self._out.append(ev.Log(text))

    def _busy(self) -> Current:
        assert self.current is not None, f"no task in {self.state}"
        return self.current


def _task(event: Event | None) -> Task:
    assert isinstance(event, ev.Received) and isinstance(event.message, Task)
    return event.message
