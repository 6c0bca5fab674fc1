"""What must hold, by the number of its invariant in RELIABILITY.md; a breach ends a world."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from beads_workers.core.base.limits import ASIDE_SECONDS, BREAKER_SECONDS, REVOKE_SECONDS
from beads_workers.core.base.source import Action, Settlement
from beads_workers.core.base.states import ConnState, IssueState, RunState
from beads_workers.core.base.wire import (
    BATCH,
    CANCEL,
    PAUSE,
    STATUS,
    Batch,
    Cancel,
    Pause,
    Ready,
    Resume,
    StatusAsked,
    Task,
    ToWorker,
)
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry
from beads_workers.core.schedule.commands import Command, HangUp, Send
from beads_workers.core.schedule.events import ConnId, Event, PauseAsked, Received, ResumeAsked
from beads_workers.trackers.settlement_rules import BLOCKED, CLOSED, IN_PROGRESS, Ownership
from tests.simulation.accounts import Accounts
from tests.simulation.agenda import Process
from tests.simulation.disk import read_journal
from tests.simulation.extended import Extended
from tests.simulation.nodes import ACTOR

if TYPE_CHECKING:
    from tests.simulation.nodes import Node
    from tests.simulation.world import World


NEEDS = {StatusAsked: STATUS, Pause: PAUSE, Resume: PAUSE, Cancel: CANCEL, Batch: BATCH}
"""What a worker must have announced with its last READY, by the message."""


class Violation(AssertionError):
    """An invariant does not hold. ``number``: which; 9 is liveness."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"invariant {number}: {text}")
        self.number = number


@dataclass(slots=True)
class TrackedIssue:
    """What the world knows of one issue. ``at_work``: pids of our tasks on it.

    ``disturbed``: a person took it by force from those who were at work on it. ``quarantined``: it
    is blocked, by us. ``free_at``: a worker of somebody else that is lost has had its grace then.
    """

    at_work: set[int] = field(default_factory=set)
    stranger: bool = False
    disturbed: bool = False
    successes: int = 0
    taken: bool = False
    quarantined: bool = False
    free_at: float = inf


class Checks:
    """Told of everything that happens; raises ``Violation``."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen: dict[str, TrackedIssue] = {}
        self.accounts = Accounts(world)
        self._facts: dict[tuple[str, str, str], list[int]] = {}
        self._turns = 0
        self._kept_since = inf
        self._announced: dict[ConnId, frozenset[str]] = {}
        self._held: set[str] = set()
        """Workers of ours that a person has paused."""
        self._shown: dict[tuple[str, type], float] = {}

    def of(self, issue_id: str) -> TrackedIssue:
        """The entry of an issue."""
        return self._seen.setdefault(issue_id, TrackedIssue())

    # --- 1: one at a time, closed at most once per success ------------------------------------

    def work_began(self, issue_id: str, process: Process, token: str) -> None:
        """A task process of ours begins."""
        seen = self.of(issue_id)
        if self._world.verbose:
            self._world.log(f"work on {issue_id} begins: {process.pid} of {token or 'a stranger'}")
        if not seen.disturbed:
            if seen.at_work:
                raise Violation(1, f"{issue_id} is worked on twice: {seen.at_work}, {process.pid}")
            if seen.stranger:
                raise Violation(1, f"{issue_id} is somebody else's, and we work on it")
        seen.at_work.add(process.pid)

    def work_over(self, issue_id: str, process: Process) -> None:
        """A task process has ended."""
        self.of(issue_id).at_work.discard(process.pid)
        self._calm(issue_id)

    def work_succeeded(self, issue_id: str) -> None:
        """It did all that it had to do."""
        self.of(issue_id).successes += 1

    def stranger_began(self, issue_id: str, *, by_force: bool = False) -> None:
        """Somebody else claimed it, by the rules or by force, and works on it."""
        seen = self.of(issue_id)
        seen.disturbed = seen.disturbed or by_force
        if seen.at_work and not seen.disturbed:
            raise Violation(1, f"{issue_id} went to a stranger while {seen.at_work} work on it")
        seen.stranger = True

    def stranger_over(self, issue_id: str) -> None:
        """They are done with it."""
        self.of(issue_id).stranger = False
        self._calm(issue_id)

    def disturbed(self, issue_id: str) -> None:
        """A person changed it, whoever was at work on it."""
        self.of(issue_id).disturbed = True
        self._calm(issue_id)

    def _calm(self, issue_id: str) -> None:
        # A fleet that has claimed it and does not know yet may still begin with it.
        seen = self.of(issue_id)
        busy = bool(seen.at_work or seen.stranger) or self._world.is_held(issue_id)
        seen.disturbed = seen.disturbed and busy

    def tracker_changed(self, issue_id: str, before: Ownership, after: Ownership, by: str) -> None:
        """Somebody wrote to the tracker."""
        seen = self.of(issue_id)
        ours = by.startswith(ACTOR)
        if self._world.verbose:
            self._world.log(f"tracker: {issue_id} {before} -> {after} by {by}")
        if ours and seen.stranger and not seen.disturbed:
            raise Violation(1, f"{issue_id} is a stranger's, and {by} wrote {after}")
        if ours and after.status == IN_PROGRESS:
            seen.taken = True
        seen.quarantined = ours and after.status == BLOCKED
        if ours and after.status == CLOSED:
            # What a self-claiming worker closed and a person opened again looks like a close that
            # is still pending, for as long as the tracker was not asked about it.
            if not seen.successes and not self.accounts.is_unclosed(issue_id):
                raise Violation(1, f"{issue_id} is closed by {by} without a success")
            seen.successes = 0

    # --- 23: what workers are promised ---------------------------------------------------------

    def handles(self, node: Node, event: Event) -> None:
        """The core is about to be told this."""
        if isinstance(event, PauseAsked):
            self._held |= set(event.worker_ids) & node.core._parts.supervisor.members.keys()
        elif isinstance(event, ResumeAsked):
            self._held.difference_update(event.worker_ids or tuple(self._held))
        elif isinstance(event, Received) and isinstance(event.message, Ready):
            self._announced[event.conn_id] = event.message.features

    def asks(self, node: Node, command: Command) -> None:
        """The core wants it done."""
        if isinstance(command, Send) and (needs := NEEDS.get(type(command.message))):
            if needs not in self._announced.get(command.conn_id, ()):
                raise Violation(23, f"{command}, and {needs} is not announced any more")
        elif isinstance(command, HangUp) and command.reason.startswith("silent"):
            link = node.links.get(command.conn_id)
            if link is not None and isinstance(link.peer, Extended):
                link.peer.called_silent()

    def decided(self, node: Node, record: rec.Record) -> None:
        """It is about to be written, or shown."""
        parts, now = node.core._parts, self._world.agenda.now
        match record:
            case rec.WorkerJoined(worker_id=worker_id):
                self._shown = {k: at for k, at in self._shown.items() if k[0] != worker_id}
                if not record.own:
                    self._held.discard(worker_id)
            case rec.Started(issue_id, worker_id) if worker_id in self._held:
                raise Violation(23, f"{issue_id} for {worker_id}, which a person has paused")
            case rec.AsideHeard(worker_id, message) | rec.StatusHeard(worker_id, message):
                key = worker_id, type(message)
                if now - self._shown.get(key, -inf) < ASIDE_SECONDS - 1e-6:
                    raise Violation(23, f"{record} is shown too soon after another one")
                self._shown[key] = now
                issue = parts.effects.issues.known.get(message.issue_id)
                if isinstance(record, rec.AsideHeard) and (
                    issue is None
                    or (issue.state, issue.worker_id) != (IssueState.RUNNING, worker_id)
                ):
                    raise Violation(23, f"{record} is shown, and its attempt is over")
            case rec.Finished(issue_id) if (
                parts.breaker.is_open and parts.tasks.last_seconds < BREAKER_SECONDS
            ):
                if record.outcome == "error" and record.charged >= record.attempt:
                    raise Violation(5, f"{issue_id} is charged in a spawn storm")
            case _:
                pass

    # --- 3: the journal first -----------------------------------------------------------------

    def written(self, node: Node, entry: Entry, offset: int) -> None:
        """A record is in the file now, up to this offset."""
        self.accounts.written(node.run_id, entry, offset)
        record = entry.record
        for action, issue_id in _justified(record):
            # A turn may still be about the first one when somebody asks a second time.
            offsets = self._facts.setdefault((node.run_id, action, issue_id), [])
            offsets[:] = [*offsets[-1:], offset]
        if isinstance(record, rec.OwnerLost | rec.Inherited):
            grace, now = record.grace_seconds, self._world.agenda.now
            self.of(record.issue_id).free_at = now + grace if grace else inf
        elif isinstance(record, rec.Finished | rec.Requeued):
            self._given_back(record.issue_id)
        if isinstance(record, rec.RunChanged) and record.reason == "idle_timeout":
            self._found_empty(node)

    def given_back_by_hand(self, issue_ids: Iterable[str]) -> None:
        """A person is about to release or retry them, knowing who may be at work on them."""
        for issue_id in issue_ids:
            self.of(issue_id).free_at = self._world.agenda.now

    def _given_back(self, issue_id: str) -> None:
        # After its grace, or by hand, an issue goes back although a worker of somebody else may be
        # at work on it: the overlaps that are decided (RELIABILITY.md, "Simulated worlds").
        seen, processes = self.of(issue_id), self._world.processes
        found = (processes.get(pid) for pid in seen.at_work)
        foreign = any(process is not None and not process.token for process in found)
        if foreign and self._world.agenda.now >= seen.free_at:
            seen.disturbed = True
        seen.free_at = inf

    def about_to_say(self, node: Node, message: ToWorker) -> None:
        """A message leaves."""
        tasks = message.tasks if isinstance(message, Batch) else (message,)
        for task in (each for each in tasks if isinstance(each, Task)):
            key = (node.run_id, "start", str(task.issue_id))
            if key not in self._facts:
                raise Violation(3, f"TASK {task.issue_id} before its record")

    def about_to_settle(self, node: Node, settlement: Settlement) -> None:
        """The tracker is about to be written; to be asked, for a ``CONFIRM``."""
        if settlement.action is Action.CONFIRM:
            return
        key = (node.run_id, settlement.action.value, str(settlement.issue_id))
        offsets = self._facts.get(key)
        if offsets is None:
            raise Violation(3, f"the tracker is told {settlement} and the journal does not know")
        if min(offsets) > node.journal.synced:
            raise Violation(3, f"the tracker is told {settlement} before it is on disk")

    def call_begins(self, node: Node, pid: int) -> None:
        """A process of the tracker begins with what it was asked."""
        if (node.run_id, "call", str(pid)) not in self._facts:
            raise Violation(3, f"bd {pid} acts, and no journal knows of it")

    def journals_read_back(self) -> None:
        """Whatever was written and survived can be read."""
        for folder in self._world.disk.folders.values():
            told = self.accounts.count(folder.run_id)
            if told > (found := sum(1 for _ in read_journal(folder.kept()))):
                raise Violation(3, f"{folder.run_id}: {told} records written, {found} read back")

    # --- 4: a failure to ask is never an answer -----------------------------------------------

    def _found_empty(self, node: Node) -> None:
        """A run says that there is nothing left to do, or nothing but closes that fail."""
        if node.core._parts.round_trips.pending:
            return
        began = node.source.listing_began
        if began is None or began < node.last_settled:
            raise Violation(4, "it ended as empty without an answer that says so")
        off = node.core._parts.retry_state.not_to_take()
        for issue in self._world.tracker.ready(node.actor):
            if issue.since < began and issue.id not in off:
                raise Violation(4, f"it ended as empty although {issue.id} was ready")

    # --- 6 and 7: processes -------------------------------------------------------------------

    def signalled(self, node: Node, pid: int) -> None:
        """A node sends KILL."""
        process = self._world.processes.get(pid)
        if process is not None and (process.kind != "worker" or process.token != node.run_id):
            raise Violation(6, f"KILL went to {process.kind} {pid}, which is not ours")

    def run_gone(self, run_id: str) -> None:
        """Nothing of this run may live any more."""
        for process in self._world.processes.of_run(run_id):
            raise Violation(6, f"{process.kind} {process.pid} has outlived {run_id}")

    def node_began(self, node: Node) -> None:
        """An orchestrator has its lock."""
        self._held.clear()
        self._announced.clear()
        self._shown.clear()
        others = [p for p in self._world.processes.of("orchestrator") if p is not node.process]
        if others:
            raise Violation(7, "a second orchestrator works on the same tracker")

    # --- 8: bounds ----------------------------------------------------------------------------

    def turn_over(self, node: Node) -> None:
        """Now and then, look at what could grow."""
        self._is_left_to_others(node)
        self._turns += 1
        if self._turns % 32:
            return
        parts, issues = node.core._parts, len(self._world.tracker.issues)
        if node.journal.folds is not None:
            node.journal.folds.believed(node.core, self._world.agenda.now, whole=True)
        sizes = {
            "registry": (len(parts.registry), node.connections_made_lately()),
            "in_flight": (len(parts.tasks.in_flight), issues),
            "pending": (len(parts.round_trips.pending), issues),
            "issues": (len(parts.effects.issues.known), issues),
            "timers": (len(parts.effects.timers._heap), 200 + 8 * issues),
        }
        for name, (size, limit) in sizes.items():
            if size > limit:
                raise Violation(8, f"{name} grew to {size}, more than {limit}")

    def _is_left_to_others(self, node: Node) -> None:
        parts, now = node.core._parts, self._world.agenda.now
        off = parts.state is RunState.RUNNING and parts.registry.idle_paused() and not parts.slots()
        kept = off and parts.effects.issues.count(IssueState.CLAIMED)
        self._kept_since = min(self._kept_since, now) if kept else inf
        if now - self._kept_since > 5.0:
            raise Violation(23, "all are paused, and it keeps what it has claimed")
        tasks = parts.tasks.in_flight
        for worker in parts.registry.in_state(ConnState.BUSY):
            queued = [i for i in worker.prefetched if not tasks[i].cancelled]
            if not queued or worker.abilities.batch_size or self._world.disk.room is not None:
                continue
            if worker.issue_id and tasks[worker.issue_id].started_at + 3 * REVOKE_SECONDS < now:
                raise Violation(23, f"{queued} are never revoked")

    # --- 2 and liveness: at the end of the world ----------------------------------------------

    def all_settled(self) -> None:
        """Every issue is closed, requeued, quarantined or somebody else's; nothing lives."""
        for issue in self._world.tracker.issues.values():
            in_flight = issue.holding
            stuck = in_flight == Ownership(IN_PROGRESS, "") or in_flight.assignee.startswith(ACTOR)
            if stuck and in_flight.status != CLOSED and self.of(issue.id).taken:
                raise Violation(2, f"{issue.id} is left behind: {in_flight}")
            if self.of(issue.id).quarantined and not self.accounts.is_quarantined(issue.id):
                raise Violation(2, f"{issue.id} is blocked, and no journal says why")
        for process in self._world.processes.of("worker", "task"):
            if process.token:
                raise Violation(6, f"{process.kind} {process.pid} outlived everything")

    def all_done(self) -> None:
        """What could be taken was taken to its end."""
        if ready := self._world.tracker.ready(ACTOR):
            raise Violation(9, f"nobody did {[i.id for i in ready]}")


def _justified(record: rec.Record) -> list[tuple[str, str]]:
    match record:
        case rec.Started(issue_id=issue_id):
            return [("start", issue_id)]
        case rec.Claimed(issue_id=issue_id):
            return [(Action.RELEASE.value, issue_id)]
        case rec.ClaimDelegated(issue_id=issue_id):
            return [(Action.HAND_OVER.value, issue_id)]
        case rec.RetryAsked(issue_id=issue_id) | rec.Refunded(issue_id=issue_id):
            return [(Action.REOPEN.value, issue_id)]
        case rec.CallStarted(pid=pid):
            return [("call", str(pid))]
        case rec.Finished(issue_id=issue_id, verdict="finish"):
            return [(Action.CLOSE.value, issue_id)]
        case rec.BranchLanded(issue_id=issue_id):
            return [(Action.CLOSE.value, issue_id)]
        case rec.LandingEnded(issue_id=issue_id, verdict="quarantined"):
            return [(Action.QUARANTINE.value, issue_id)]
        case rec.LandingEnded(issue_id=issue_id):
            back = (Action.SHELVE, Action.RELEASE, Action.REOPEN)
            return [(action.value, issue_id) for action in back]
        case rec.Finished(issue_id=issue_id, verdict="quarantined"):
            return [(Action.QUARANTINE.value, issue_id)]
        case rec.Finished(issue_id=issue_id):
            return [(Action.RELEASE.value, issue_id)]
        case _:
            return []
