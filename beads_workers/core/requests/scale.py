"""A change of the number of workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.framing import ProtocolError, as_integer
from beads_workers.core.base.model import value
from beads_workers.core.base.states import ConnState, RunState
from beads_workers.core.control import MORE_WORKERS, Control
from beads_workers.core.schedule.commands import Answer
from beads_workers.core.schedule.events import FleetRequest, Ticket

WORKERS_MAX = 1000


@value
class ScaleAsked(FleetRequest):
    """A person wants this many workers of ours; ``relative``: so many more, or fewer. ``place``:
    those whose attempts run there; "" for this machine."""

    workers: int
    relative: bool = False
    place: str = ""

    @classmethod
    def read(cls, data: Mapping[str, Any], ticket: Ticket) -> ScaleAsked:
        """See ``FleetRequest``."""
        relative = data.get("relative") is True
        least = -WORKERS_MAX if relative else 0
        workers = as_integer(data.get("workers"))
        if workers is None or not least <= workers <= WORKERS_MAX:
            raise ProtocolError(f"workers must be a whole number from {least} to {WORKERS_MAX}")
        place = data.get("place", "")
        if not isinstance(place, str):
            raise ProtocolError("place must be a text")
        return cls(ticket, workers, relative, place)

    def answer(self, fleet: Control) -> None:
        """Start or dismiss workers.
        Idle workers go first; a busy one finishes its task and then leaves."""
        if fleet.parts.state not in _STANDING:
            fleet.refuse(self.ticket)
            return
        supervisor, place = fleet.parts.supervisor, self.place
        if place and place not in {each.name for each in fleet.parts.settings.places}:
            error = f"no such place: {place}"[: limits.ERROR_CHARS_MAX]
            fleet.parts.effects.ask(Answer(self.ticket, error=error, not_found=True))
            return
        before = supervisor.wanted_in(place)
        workers = max(0, before + self.workers) if self.relative else self.workers
        if workers > limits.LISTEN_BACKLOG:
            error = f"{workers} workers are too many: {limits.LISTEN_BACKLOG} at most"
            fleet.parts.effects.ask(Answer(self.ticket, error=error))
            return
        most = fleet.parts.settings.workers_max
        if most is not None and workers > most and not place:
            error = f"more than {most} would share one checkout; {MORE_WORKERS}"
            fleet.parts.effects.ask(Answer(self.ticket, error=error))
            return
        while supervisor.wanted_in(place) < workers:
            used = {c.worker_id for c in fleet.parts.registry} | supervisor.members.keys()
            supervisor.add(fleet.parts.registry.next_worker_id(used), place)
        for worker_id in _superfluous(fleet, place, supervisor.wanted_in(place) - workers):
            _dismiss(fleet, worker_id)
        fleet.scheduler.reschedule()
        fleet.say(self.ticket, f"workers{f' of {place}' if place else ''}: {before} -> {workers}")


REQUEST = ScaleAsked

_STANDING = (RunState.RECOVERING, RunState.WAITING, RunState.RUNNING, RunState.PAUSED)


def _superfluous(fleet: Control, place: str, count: int) -> list[str]:
    if count <= 0:
        return []
    working = (ConnState.RESERVED, ConnState.BUSY)
    busy = {c.pid for c in fleet.parts.registry if c.own and c.state in working}
    members = fleet.parts.supervisor.of_place(place)
    # Idle before busy, the youngest numbers first.
    members.reverse()
    members.sort(key=lambda m: m.pid in busy)
    return [m.worker_id for m in members[:count]]


def _dismiss(fleet: Control, worker_id: str) -> None:
    pid = fleet.parts.supervisor.members[worker_id].pid
    fleet.parts.supervisor.dismiss(worker_id)
    for connection in fleet.parts.registry:
        if connection.own and connection.pid == pid:
            fleet.parts.registry.retire(connection)
            if connection.state in (ConnState.READY, ConnState.IDLE):
                fleet.sender.shut_down(connection)
