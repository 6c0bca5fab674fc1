"""Our own worker processes: started, replaced when they die, fewer or more when asked.

Beside them are the conditions of the machine that keep new work away.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from beads_workers.core.base import limits
from beads_workers.core.base.model import value
from beads_workers.core.records import journal as rec
from beads_workers.core.schedule.commands import KillWorker, Spawn
from beads_workers.core.schedule.effects import Effects
from beads_workers.core.schedule.events import Degraded


@dataclass(slots=True)
class Member:
    """One of our own workers."""

    worker_id: str
    # Where its attempts run; "" for this machine.
    place: str = ""
    # None while it is not running.
    pid: int | None = None
    requested: bool = False
    started_at: float = 0.0
    # Short lives in a row.
    crashes: int = 0
    # It is to be dismissed.
    unwanted: bool = False
    killed: bool = False
    # How often in a row the machine had no process for it.
    refused: int = 0


@value
class RespawnDue:
    """Timer key: a worker that died is due to be started again."""

    worker_id: str


class Supervisor:
    """The workers that the user asked for with ``-n``, by worker id."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self.members: dict[str, Member] = {}
        self.by_pid: dict[int, Member] = {}
        self.reaped_pids: deque[int] = deque(maxlen=limits.REAPED_PIDS_KEPT)
        """Pids of our processes that ended last: one may have connected without being heard yet."""
        self.closing = False
        self._unwanted = 0
        self.crashed_out = False
        """True if the last worker to be given up had crashed too often."""

    def wanted(self) -> int:
        """Return how many workers there should be."""
        return len(self.members) - self._unwanted

    def of_place(self, place: str) -> list[Member]:
        """Return the workers that are to stay, and whose attempts run there."""
        members = self.members.values()
        return [each for each in members if each.place == place and not each.unwanted]

    def wanted_in(self, place: str) -> int:
        """Return how many workers there should be whose attempts run there."""
        return len(self.of_place(place))

    def starting(self) -> int:
        """Return how many workers are asked for, and have no process yet."""
        return sum(m.pid is None and not m.unwanted for m in self.members.values())

    def alive(self) -> list[Member]:
        """Return the workers with a process, or with one on its way."""
        return [m for m in self.members.values() if m.pid is not None or m.requested]

    def place_of(self, pid: int) -> str:
        """Return where the attempts of this process run; "" for this machine."""
        member = self.by_pid.get(pid)
        return member.place if member else ""

    def add(self, worker_id: str, place: str = "") -> None:
        """Add a worker, whose attempts run in this ``place``, and start it."""
        member = self.members[worker_id] = Member(worker_id, place)
        self._start(member)

    def spawned(self, worker_id: str, pid: int) -> None:
        """Note that a worker has a process now."""
        member = self.members[worker_id]
        member.pid, member.requested, member.killed, member.refused = pid, False, False, 0
        member.started_at = self._effects.now
        self.by_pid[pid] = member
        if pid in self.reaped_pids:
            self.reaped_pids.remove(pid)
        self._effects.write(rec.WorkerStarted(worker_id, pid))

    def reaped(self, worker_id: str, pid: int, status: int) -> None:
        """Handle the end of a worker's process: start it again, or give it up."""
        self._effects.write(rec.WorkerExited(worker_id, pid, status))
        self.by_pid.pop(pid, None)
        self.reaped_pids.append(pid)
        member = self.members.get(worker_id)
        if member is None or (member.pid is not None and member.pid != pid):
            return
        member.pid, member.requested = None, False
        if self.closing or member.unwanted:
            self._drop(member, "")
            return
        lived = self._effects.now - member.started_at
        member.crashes = member.crashes + 1 if lived < limits.CRASH_LOOP_SECONDS else 0
        if member.crashes >= limits.CRASH_LOOP_MAX:
            self._drop(member, f"ended {member.crashes} times right after its start")
            return
        delay = limits.RESPAWN_DELAY_SECONDS * 2.0 ** max(member.crashes - 1, 0)
        at = self._effects.now + min(delay, limits.RESPAWN_DELAY_MAX_SECONDS)
        self._effects.timers.set(RespawnDue(worker_id), at)

    def not_started(self, worker_id: str, error: str) -> None:
        """Try again later: the machine had no process for a worker, which is no crash."""
        member = self.members.get(worker_id)
        if member is None:
            return
        member.requested = False
        if self.closing or member.unwanted:
            self._drop(member, "")
            return
        if not member.refused:
            self._effects.note("warning", f"{worker_id} cannot be started: {error}; trying again")
        member.refused += 1
        delay = limits.RESPAWN_DELAY_SECONDS * 2.0 ** min(member.refused, 10)
        at = self._effects.now + min(delay, limits.RESPAWN_DELAY_MAX_SECONDS)
        self._effects.timers.set(RespawnDue(worker_id), at)

    def respawn(self, worker_id: str) -> None:
        """Start a worker again whose delay after its death is over."""
        if not self.closing and (member := self.members.get(worker_id)):
            self._start(member)

    def kill(self, pid: int) -> None:
        """Kill a worker's process with SIGKILL; once is enough."""
        member = self.by_pid.get(pid)
        if member and not member.killed:
            member.killed = True
            self._effects.ask(KillWorker(member.worker_id, pid))

    def dismiss(self, worker_id: str) -> None:
        """Have a worker not started again; drop it at once if it has no process."""
        member = self.members[worker_id]
        self._unwanted += not member.unwanted
        member.unwanted = True
        if member.pid is None and not member.requested:
            self._drop(member, "")

    def close(self) -> None:
        """Start no worker any more: the run ends."""
        self.closing = True
        for member in list(self.members.values()):
            if member.pid is None and not member.requested:
                self._drop(member, "")

    def _start(self, member: Member) -> None:
        member.requested = True
        self._effects.ask(Spawn(member.worker_id))

    def _drop(self, member: Member, reason: str) -> None:
        self._effects.timers.cancel(RespawnDue(member.worker_id))
        del self.members[member.worker_id]
        self._unwanted -= member.unwanted
        self.crashed_out = bool(reason)
        self._effects.write(rec.WorkerGone(member.worker_id, reason))
        if reason:
            self._effects.note("error", f"{member.worker_id} {reason}; not started again")


# --- degraded conditions -------------------------------------------------------------------------
# Conditions of the machine that block work, reported by the edge for as long as they last.
#
# No running attempt is ended for them: they only keep new work from being taken, if they would make
# it fail. A run does not end as empty meanwhile.


class DegradedConditions:
    """The conditions that hold now.
    ``stop``: nothing new is to be taken, and no worker to be started."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._standing: dict[str, Degraded] = {}

    @property
    def stop(self) -> bool:
        """Whether any condition keeps new work from being taken."""
        return any(each.stops for each in self._standing.values())

    @property
    def gone(self) -> bool:
        """Whether a folder that the fleet needs is not there."""
        return any(each.gone for each in self._standing.values())

    def degraded(self, event: Degraded) -> None:
        """Note that a condition holds from now on; the same once more changes nothing."""
        if self._standing.get(event.what) == event:
            return
        self._standing[event.what] = event
        self._effects.write(rec.DegradedBegan(event.what, event.text, event.todo, event.stops))

    def recovered(self, what: str) -> bool:
        """End a condition; return whether it was the last that kept new work away."""
        if (ended := self._standing.pop(what, None)) is None:
            return False
        self._effects.write(rec.DegradedEnded(what))
        return ended.stops and not self.stop
