"""Our own workers: the real ``WorkerHalf`` with a simulated edge around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from beads_workers.core.base.model import Outcome, OutcomeKind
from beads_workers.core.base.plans import Plan, Step, StepKind
from beads_workers.core.base.settings import Work as WorkSettings
from beads_workers.core.base.wire import Failed, Resume, Task, ToWorker
from beads_workers.core.workers import worker_events as ev
from beads_workers.core.workers.worker import WorkerHalf
from tests.simulation.agenda import Thread
from tests.simulation.network import Link
from tests.simulation.tasks import Work
from tests.simulation.tracker import FREE

if TYPE_CHECKING:
    from tests.simulation.nodes import Node


BD = ("bd",)


class Worker:
    """Mirrors ``runtime/worker``: carries out what its half asks, in order."""

    def __init__(self, node: Node, worker_id: str) -> None:
        self._node = node
        self._world = node.world
        self.worker_id = worker_id
        self.process = self._world.processes.start("worker", node.run_id, holds_alive=True)
        self._self_claiming = node.self_claiming and self._world.own_self_claiming
        work = WorkSettings(
            command=("x",),
            bd_argv=BD if self._self_claiming else None,
            timeout_seconds=None,
            allow_modules=("shop",) if self._world.functions else (),
        )
        beat = self._world.random.choice((2.0, 60.0))
        size = self._world.random.choice((0, 0, 4))
        self._half = WorkerHalf(
            worker_id, work, self._plan, heartbeat_seconds=beat, batch_size=size
        )
        self._link: Link | None = None
        self.work: Work | None = None
        self._actor = f"{node.actor}/{worker_id}"
        self._timer: float | None = None
        self.process.later(self._world.delay(), lambda: self._do(self._half.start()))

    def heard(self, message: ToWorker) -> None:
        """``network.Peer``."""
        prefetched = len(self._half._prefetched)
        if isinstance(message, Resume) and self._half._paused and prefetched:
            self._world.breach(23, "tasks were queued in a pause, and never revoked")
        self._handle(ev.MessageReceived(message))
        self._world.prefetched += len(self._half._prefetched) > prefetched

    def hung_up(self) -> None:
        """``network.Peer``."""
        self._handle(ev.ConnectionLost())

    def _plan(self, task: Task) -> Plan:
        steps = [Step(StepKind.RUN, ("x",))]
        close = back = None
        if self._self_claiming:
            steps.insert(0, Step(StepKind.CLAIM, BD))
            close, back = Step(StepKind.CLOSE, BD), Step(StepKind.RELEASE, BD)
        return Plan(tuple(steps), "", str(task.issue_id), "", "", close=close, release=back)

    def _handle(self, event: ev.Event) -> None:
        self._do(self._half.handle(event, self._world.agenda.now))

    def _do(self, commands: list[ev.Command]) -> None:
        for command in commands:
            match command:
                case ev.Connect():
                    self.process.later(0.0, self._connect)
                case ev.SendMessage(message):
                    if isinstance(message, Failed) and message.error == "busy":
                        self._world.breach(23, f"{message}: it was sent too many")
                    if self._link is not None:
                        self._link.say(message)
                case ev.SpoolResult(message):
                    self._world.disk.spool_result(self._node.run_id, message)
                    self._world.check.accounts.word_left(self._node.run_id, message)
                case ev.RunStep(plan, step):
                    self._run_step(plan.issue_text, step)
                case ev.EndStep(hard):
                    self._end_step(hard)
                case ev.Exit():
                    if self._link is not None:
                        self._link.close()
                    self.process.die()
                    return
                case ev.Log() | ev.TellStep() | ev.SuspendStep():
                    pass
                case _:
                    assert_never(command)
        self._set_timer()

    def _set_timer(self) -> None:
        due = self._half.deadline()
        if due is not None and due != self._timer:
            self._timer = due
            self.process.later(max(0.0, due - self._world.agenda.now), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._do(self._half.on_deadline(self._world.agenda.now))

    def _connect(self) -> None:
        self._link = self._node.connect(self)
        self._handle(
            ev.ConnectFailed("refused") if self._link is None else ev.OrchestratorConnected()
        )

    def _run_step(self, issue_id: str, step: Step) -> None:
        if step.kind is StepKind.RUN:
            self.work = Work(self._world, issue_id, self._node.run_id, self._ended, self.process)
        else:
            self.process.start(self._call(issue_id, step.kind))

    def _end_step(self, hard: bool) -> None:
        if self.work is not None:
            self.work.end(hard)

    def _ended(self, status: int) -> None:
        self.work = None
        if status == 0 and self._world.faults.hits("task: wants its worker to end", 0.03):
            # As dispatcherd's tasks may; whatever else follows, its work is done.
            self._handle(ev.StepAnswered(Outcome(OutcomeKind.SUCCESS), is_stopping=True))
        else:
            self._handle(ev.StepEnded(status))

    def _call(self, issue_id: str, kind: StepKind) -> Thread:
        """The worker's own ``bd``, which is done before anybody can end it."""
        yield self._world.delay() + 0.05
        tracker = self._world.tracker
        status = 0
        if self._world.faults.hits("self-claiming call: fails", 0.05):
            status = 1
        elif kind is StepKind.CLAIM:
            tracker.set_in_progress(issue_id, self._actor)
        elif kind is StepKind.CLOSE:
            status = 0 if tracker.close(issue_id, self._actor) else 1
        else:
            held = tracker.issues[issue_id].holding
            if held.status == "in_progress" and held.assignee in ("", self._node.actor):
                tracker.swap(issue_id, held, FREE, self._actor)
        self._handle(ev.StepEnded(status))
