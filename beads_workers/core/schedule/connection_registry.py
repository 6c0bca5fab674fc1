"""The connected workers: one entry per connection, which is the worker's identity."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from beads_workers.core.base import wire
from beads_workers.core.base.model import IssueId, Job, value
from beads_workers.core.base.states import CONNECTION, ConnReaction, ConnState, ConnStimulus, step
from beads_workers.core.base.wire import Priority
from beads_workers.core.schedule.events import ConnId


@value
class Abilities:
    """The abilities beyond version 1 in a worker's READY. Source: docs/PROTOCOL.md, "Version
    1.1"."""

    # It speaks 1.1, or a later minor version.
    additions: bool = False
    # We claim and close for it.
    grouped: bool = False
    cancel: bool = False
    # Number of TASKs that it accepts behind its current one.
    prefetch_count: int = 0
    # Number of tasks that it accepts in one BATCH; 0: it accepts none.
    batch_size: int = 0
    # Longest silence that it promises; None: it promises nothing.
    heartbeat_seconds: float | None = None
    # It may say which tasks it accepts.
    priority: bool = False
    pause: bool = False
    status: bool = False

    @property
    def queues(self) -> bool:
        """Whether there may be tasks on the worker that it has not begun."""
        return self.prefetch_count > 0 or self.batch_size > 0


VERSION_1 = Abilities()


def abilities(ready: wire.Ready) -> Abilities:
    """Return the abilities that this READY announces."""
    if not wire.speaks_additions(ready.version):
        return VERSION_1
    grouped, cancel = wire.GROUPED in ready.features, wire.CANCEL in ready.features
    queues = grouped and cancel
    return Abilities(
        additions=True,
        grouped=grouped,
        cancel=cancel,
        prefetch_count=ready.prefetch_count if queues else 0,
        batch_size=ready.batch_size if queues and wire.BATCH in ready.features else 0,
        heartbeat_seconds=ready.heartbeat_seconds if wire.HEARTBEAT in ready.features else None,
        priority=wire.PRIORITY in ready.features,
        pause=wire.PAUSE in ready.features,
        status=wire.STATUS in ready.features,
    )


HAS_TASK = (ConnState.BUSY, ConnState.ENDING)
"""States in which a worker works on something."""


@value
class Pausing:
    """A pause of a worker: it is sent nothing new."""

    # Its READY is answered when the pause is over; else it is told to WAIT, and asks again.
    holds_ready: bool
    # It may have stopped its task, whose time begins anew when the pause is over.
    stops_clock: bool


@dataclass(slots=True)
class Complaints:
    """Faults of one connection, counted so that it fills no log and is closed in time."""

    # Lines that were no message, since ``bad_since`` (monotonic seconds).
    bad_lines: int = 0
    bad_since: float = -math.inf
    # Number of such lines in the log.
    shown: int = 0
    # Unknown types of messages that are in the log.
    unknown: set[str] = field(default_factory=set)
    # Valid messages that made no sense in its state.
    strays: int = 0


@dataclass(slots=True)
class Connection:
    """One worker's conversation with us."""

    conn_id: ConnId
    pid: int
    # Start of the process, in ticks since boot: a pid may come again.
    start_time: int = 0
    state: ConnState = ConnState.NEW
    # Assigned by us; every message to it carries it. "" until it has said something valid.
    worker_id: str = ""
    # We started the process.
    own: bool = False
    # Its last READY, and the abilities in it. With the first one its process has let go of what it
    # had before.
    ready: wire.Ready | None = None
    abilities: Abilities = VERSION_1
    # The task that it has, or is to get, and those queued on it behind that one, in their order.
    issue_id: IssueId | None = None
    prefetched: list[IssueId] = field(default_factory=list)
    # Its choice of tasks; None for all.
    wants: Priority | None = None
    pause: Pausing | None = None
    # It gets no more work after this: scaled down, or it said that it stops.
    retiring: bool = False
    # Its process has ended, and its messages come too late.
    dead: bool = False
    # It was told to leave, and had not when its time was over.
    overstayed: bool = False
    # Its process has had another connection beside it.
    several: bool = False
    # Time of its last message (monotonic seconds).
    heard_at: float = 0.0
    complaints: Complaints = field(default_factory=Complaints)

    def announces(self, ready: wire.Ready) -> None:
        """Take in a READY that differs from the one before."""
        self.ready, self.abilities = ready, abilities(ready)
        if not self.abilities.priority:
            self.wants = None

    def accepts(self, job: Job) -> bool:
        """Return whether this connection accepts the job."""
        off = self.retiring or self.pause is not None
        return not off and (self.wants is None or self.wants.accepts(job))


class ConnectionRegistry:
    """All connections, kept by state: no question here costs more with more workers."""

    def __init__(self) -> None:
        self._connections: dict[ConnId, Connection] = {}
        self._by_state: dict[ConnState, dict[ConnId, Connection]] = {s: {} for s in ConnState}
        self._by_pid: dict[int, dict[ConnId, Connection]] = {}
        self._retiring = 0
        self.paused: dict[ConnId, Connection] = {}
        """Connections that are paused."""

    def add(self, conn_id: ConnId, pid: int, start_time: int = 0) -> Connection:
        """Register a new connection."""
        connection = Connection(conn_id, pid, start_time)
        self._connections[conn_id] = connection
        self._by_pid.setdefault(pid, {})[conn_id] = connection
        self._by_state[connection.state][conn_id] = connection
        return connection

    def remove(self, conn_id: ConnId) -> Connection | None:
        """Remove a connection that is over; return it, or None if it is unknown."""
        connection = self._connections.pop(conn_id, None)
        if connection is not None:
            del self._by_state[connection.state][conn_id]
            self._retiring -= connection.retiring
            self.paused.pop(conn_id, None)
            of_process = self._by_pid[connection.pid]
            del of_process[conn_id]
            if not of_process:
                del self._by_pid[connection.pid]
        return connection

    def move(self, connection: Connection, stimulus: ConnStimulus) -> ConnReaction:
        """Change a connection's state by the table; return the reaction."""
        move = step(CONNECTION, connection.state, stimulus)
        if move.to is not connection.state:
            del self._by_state[connection.state][connection.conn_id]
            self._by_state[move.to][connection.conn_id] = connection
            connection.state = move.to
        return move.reaction

    def retire(self, connection: Connection) -> None:
        """Give a connection no more work."""
        if not connection.retiring:
            connection.retiring = True
            self._retiring += 1

    def get(self, conn_id: ConnId | None) -> Connection | None:
        """Return the connection, or None if it is over or there is none."""
        return self._connections.get(conn_id) if conn_id is not None else None

    def own_id(self, worker_id: str, announced: str) -> str:
        """Return the worker id of a connection of our process.
        A process with several slots has one connection for each: W1, W1.2, W1.3."""
        number = announced.removeprefix(f"{worker_id}.")
        if number == announced or not (number.isdecimal() and number.isascii() and len(number) < 6):
            return worker_id
        return (
            worker_id
            if any(c.worker_id == announced for c in self._connections.values())
            else announced
        )

    def joined(self, connection: Connection) -> None:
        """Note that a connection is a worker now, and maybe not the only one of its process."""
        others = [c for c in self._by_pid[connection.pid].values() if c.worker_id]
        for each in others if len(others) > 1 else ():
            each.several = True

    def of_process(self, pid: int) -> list[Connection]:
        """Return the connections of a process."""
        return list(self._by_pid.get(pid, {}).values())

    def is_connected(self, pid: int) -> bool:
        """Return whether a process has any connection."""
        return pid in self._by_pid

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._connections.values()))

    def __len__(self) -> int:
        return len(self._connections)

    def in_state(self, *states: ConnState) -> list[Connection]:
        """Return the connections in these states, longest in it first."""
        return [c for state in states for c in self._by_state[state].values()]

    def count(self, *states: ConnState) -> int:
        """Return how many connections are in one of these states."""
        number = 0
        for state in states:  # A dozen calls a task: a generator takes twice as long.
            number += len(self._by_state[state])
        return number

    def slots(self) -> int:
        """Return how many connections could have a task: known, and not on their way out."""
        states = self._by_state  # Called five times a task.
        known = len(states[ConnState.IDLE]) + len(states[ConnState.READY])
        known += len(states[ConnState.RESERVED]) + len(states[ConnState.BUSY])
        return known - self._retiring - (self.idle_paused() if self.paused else 0)

    def pause(self, connection: Connection, pause: Pausing | None) -> None:
        """Pause a connection, or end its pause with None."""
        connection.pause = pause
        if pause is not None:
            self.paused[connection.conn_id] = connection
        else:
            self.paused.pop(connection.conn_id, None)

    def idle_paused(self, *, own: bool = False) -> int:
        """Return how many paused connections have no task; ``own``: only of our processes."""
        idle = (ConnState.IDLE, ConnState.READY)
        paused = (c for c in self.paused.values() if c.state in idle and not c.retiring)
        return sum(c.own or not own for c in paused)

    def busy_paused(self) -> int:
        """Return how many paused connections have a task."""
        busy = (ConnState.RESERVED, ConnState.BUSY)
        return sum(c.state in busy and not c.retiring for c in self.paused.values())

    def of_worker(self, worker_id: str) -> list[Connection]:
        """Return a worker's connections: a process of ours with several slots has one for each."""
        every = self._connections.values()
        return [c for c in every if worker_id in (c.worker_id, c.worker_id.partition(".")[0])]

    def batch_room(self) -> int:
        """Return how many tasks beyond one each the waiting connections take in batches."""
        waiting = self._by_state[ConnState.READY].values()
        sizes = (c.abilities.batch_size for c in waiting if c.pause is None)
        return sum(size - 1 for size in sizes if size)

    def next_worker_id(self, taken: set[str]) -> str:
        """Return the lowest ``W{n}`` that is free; ``taken``: reserved for our own."""
        used = taken | {c.worker_id for c in self._connections.values()}
        number = 1
        while f"W{number}" in used:
            number += 1
        return f"W{number}"
