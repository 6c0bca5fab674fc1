"""One orchestrator process: mirrors ``runtime/fleet.Fleet``, and what the zygote does for
it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from beads_workers.core.base.night import NightSoFar
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.orchestrator import Orchestrator
from beads_workers.core.records.journal import (
    CallEnded,
    CallStarted,
    CheckpointEnded,
    Entry,
    Finished,
    Record,
    RunStarted,
    Started,
)
from beads_workers.core.records.landing import Order
from beads_workers.core.schedule.commands import End, ReadUsage, RoundTrip, TellGuard
from beads_workers.core.schedule.events import (
    ConnId,
    Disconnected,
    Event,
    UsageRead,
    WorkerReaped,
    WorkerSpawned,
)
from beads_workers.core.views.recovery import RecoveryState
from tests.simulation.agenda import Promise, Thread
from tests.simulation.journal import Journal
from tests.simulation.loop import Loop
from tests.simulation.network import Link, Peer
from tests.simulation.source import Source
from tests.simulation.tracker_thread import TrackerThread
from tests.simulation.workers import Worker

if TYPE_CHECKING:
    from tests.simulation.world import World


TRACKER_STOP_SECONDS = 10.0
ACTOR = "beads-workers/host"
"""What the actors of all our runs begin with."""


class Node:
    """``begin`` is what ``Fleet.run`` does before its loop; a crash may come anywhere in it."""

    push = False
    """Whether it has a push source."""
    journal_class = Journal
    loop_class = Loop

    def __init__(self, world: World, settings: FleetSettings) -> None:
        self.world = world
        self.process = world.processes.start("orchestrator")
        self.process.crashed = lambda died: world.crashed(self, died)
        self.process.at_death.append(self._died)
        self.settings = settings
        self.self_claiming = world.self_claiming
        self.links: dict[ConnId, Link] = {}
        self.last_settled = 0.0
        """When the tracker last answered what it was told."""
        self.workers: dict[int, Worker] = {}
        self._last_conn = 0
        self.run_id = ""
        self.core: Orchestrator
        self.journal: Journal
        self.tracker_thread: TrackerThread
        self.loop: Loop
        self.source: Source

    def begin(self) -> None:
        """From the lock to the first turn of the loop."""
        world = self.world
        world.check.node_began(self)
        world.check.journals_read_back()
        unsettled, last = world.disk.left_over()
        folder = world.disk.create_run()
        self.run_id, self.actor = folder.run_id, f"{ACTOR}/{folder.run_id}"
        self.journal = self.journal_class(world, folder, self._written)
        self.source = self.make_source()
        checkpoint = last.checkpoint()
        # All runs of a world are one night.
        night = NightSoFar(min(world.disk.folders), len(world.disk.folders))
        self.core = world.mutant.orchestrator(
            replace(self.settings, night=night),
            self.run_id,
            world.agenda.now,
            self_claiming=self.self_claiming,
            push=self.push,
            checkpointed=() if world.mutant.forgets_attempts else checkpoint,
            epoch=world.wall(),
            **self.boot(),
        )
        began = RunStarted(
            *(self.run_id, self.process.pid, self.actor, "sim", "/project"),
            lands=self.settings.landing is not None,
            approves=self.settings.approves,
        )
        for record in (began, *checkpoint, CheckpointEnded()):
            self.journal.append(record)
        self.process.start(self._begin_journal())
        self.loop = self.loop_class(self)
        self.tracker_thread = self.make_tracker_thread(unsettled)

    def make_source(self) -> Source:
        """``runtime/sources.open_source``."""
        return Source(self, self.actor)

    def make_tracker_thread(self, unsettled: Sequence[RecoveryState]) -> TrackerThread:
        """``Fleet._lane``."""
        return TrackerThread(self, self.source, unsettled)

    def flush_ingress(self) -> None:
        """``Loop._turn``, where there is an ingress."""

    def boot(self) -> dict[str, float]:
        """The clock that goes on while the machine sleeps, where it does."""
        return {}

    def before_loop(self) -> None:
        """What ``Fleet`` does before the first turn."""

    def handles(self, event: Event) -> None:
        """The core is about to be told this."""
        self.world.check.handles(self, event)

    def decided(self, record: Record) -> None:
        """``Loop._perform``: this is about to be journalled."""
        self.world.check.decided(self, record)

    def asked_for(self, round_trip: RoundTrip) -> None:
        """``Loop._perform``: the core has composed this."""

    def read_usage(self, ended: ReadUsage | Started | Finished) -> UsageRead | None:
        """``usage_file.usage_read``: no agent works here."""
        return None

    def start_lander(self) -> None:
        """``LanderProcess.start``: nothing lands here."""

    def tell_lander(self, order: Order) -> None:
        """``LanderProcess.tell``."""

    def tell_guard(self, command: TellGuard) -> None:
        """``Loop.places``: there are no other machines here."""

    def make_worker(self, worker_id: str) -> Worker:
        """A worker of ours."""
        return Worker(self, worker_id)

    def _begin_journal(self) -> Thread:
        try:
            self.journal.flush()
        except OSError:
            self.process.die()
            self.world.over(self, 1)
            return
        yield from self.journal.sync()
        self.before_loop()
        self.loop.begin()
        self.process.start(self.tracker_thread.run())

    # --- what the loop and the tracker thread ask for --------------------------------------------

    def tell(self, event: Event) -> None:
        """An event for the core."""
        if self.process.alive:
            self.loop.tell(event)

    post = tell
    """From the tracker thread: ``Mailbox.post``."""

    def connect(self, peer: Peer) -> Link | None:
        """Somebody connects; None where nobody listens."""
        if not self.process.alive or self.loop.ended is not None:
            return None
        self._last_conn += 1
        return Link(self, peer, ConnId(self._last_conn))

    def hang_up(self, conn_id: ConnId, reason: str) -> None:
        """``WorkerServer.hang_up``."""
        link = self.links.get(conn_id)
        if link is not None:
            link.hang_up()
            self.tell(Disconnected(conn_id, reason))

    def spawn(self, worker_id: str) -> None:
        """``ZygoteClient.spawn``: the zygote forks it, and says so before it can connect."""
        self.world.agenda.after(self.world.delay(), lambda: self._fork(worker_id))

    def _fork(self, worker_id: str) -> None:
        if not self.process.alive:
            return
        worker = self.make_worker(worker_id)
        pid = worker.process.pid
        self.workers[pid] = worker
        worker.process.at_death.append(lambda: self._worker_died(worker))
        self.tell(WorkerSpawned(worker_id, pid))

    def kill(self, pid: int) -> None:
        """``ZygoteClient.kill``."""
        self.world.check.signalled(self, pid)
        if pid in self.workers:
            self.workers[pid].process.die()

    def _worker_died(self, worker: Worker) -> None:
        self.world.agenda.after(0.001 + self.world.delay(), lambda: self._bury(worker))

    def _bury(self, worker: Worker) -> None:
        # The zygote ends with the orchestrator; then the next start sweeps.
        if not self.process.alive:
            return
        if worker.work is not None and not self.world.mutant.leaves_tasks:
            worker.work.process.die()
        del self.workers[worker.process.pid]
        self.tell(WorkerReaped(worker.worker_id, worker.process.pid, 1))

    def connections_made_lately(self) -> int:
        """How many connections the core may know of: those that stand, or end just now."""
        return len(self.links) + 40

    def journal_call_started(self, pid: int) -> Thread:
        """``JournalCalls.started``."""
        return self.journal.write_now(CallStarted(pid, pid, ("bd",)))

    def journal_call_ended(self, pid: int) -> Thread:
        """``JournalCalls.ended``."""
        return self.journal.write_now(CallEnded(pid))

    def _written(self, entry: Entry, offset: int) -> None:
        self.world.check.written(self, entry, offset)

    # --- its end ------------------------------------------------------------------------------

    def loop_ended(self, end: End) -> None:
        """``Fleet._end``: let the tracker thread finish, say what is settled, sync, exit."""
        for link in list(self.links.values()):
            link.hang_up()
        self.tracker_thread.abandoned = True
        self.process.start(self._end(end))

    def _end(self, end: End) -> Thread:
        self.tracker_thread.begin(None)
        over = Promise()
        self.tracker_thread.ended.then(over.keep)
        self.process.later(TRACKER_STOP_SECONDS, over.keep)
        yield over
        self.world.point("before the run is marked as settled")
        if end.settled:
            self.world.disk.folders[self.run_id].settled = True
        yield from self.journal.sync()
        self.process.die()
        self.world.over(self, end.exit_code)

    def _died(self) -> None:
        for link in list(self.links.values()):
            link.hang_up()
