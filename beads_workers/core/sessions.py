"""Who is connected: one entry per connection, which is the worker's identity."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from beads_workers.core import limits, wire
from beads_workers.core.asides import Asides
from beads_workers.core.events import ConnId
from beads_workers.core.model import IssueId, Job
from beads_workers.core.states import CONNECTION, ConnReaction, ConnState, ConnStimulus, step
from beads_workers.core.wire import Priority


@dataclass(slots=True)
class Connection:
    """``worker_id`` is ours to give; ``own``: a process that we started; ``v1``: speaks 1 only.

    ``grouped``: we claim and close for it. ``issue_id``: of the task it has, or is to get.
    ``prefetched``: the tasks queued on it behind that one, in their order; ``prefetch_count``: how
    many it accepts. ``retiring``: it gets no more work after this (scaled down). ``strays``: valid
    messages that made no sense in its state. ``bad_lines``: since ``bad_since`` (monotonic);
    ``bad_shown``: how many the log has; ``unknown``: types that it has. ``several``: its process
    has had another one beside it. ``overstayed``: it was told to leave, and had not when its time
    was over. ``said_ready``: by that its process has let go of what it had before.
    ``heartbeat_seconds``: it says something that often; ``heard_at``: when it did last.
    ``excused``: a silence that may have been ours, by the ``heard_at`` before it. ``chooses``: it
    may say which tasks it takes; ``wants``: which; None for all. ``batch_size``: how many tasks it
    takes at once, 0 for one. ``pauses``: it understands PAUSE; ``answers``: STATUS. ``held``: a
    person has paused it, and ``told``: it knows; ``paused``: it wants nothing itself.
    """

    conn_id: ConnId
    pid: int
    start_time: int = 0
    state: ConnState = ConnState.NEW
    worker_id: str = ""
    own: bool = False
    v1: bool = True
    grouped: bool = False
    cancellable: bool = False
    issue_id: IssueId | None = None
    prefetch_count: int = 0
    prefetched: list[IssueId] = field(default_factory=list)
    retiring: bool = False
    asides: Asides = field(default_factory=Asides)
    bad_lines: int = 0
    bad_since: float = -math.inf
    bad_shown: int = 0
    unknown: set[str] = field(default_factory=set)
    strays: int = 0
    several: bool = False
    dead: bool = False
    overstayed: bool = False
    said_ready: bool = False
    heartbeat_seconds: float | None = None
    heard_at: float = 0.0
    excused: float = -math.inf
    chooses: bool = False
    wants: Priority | None = None
    batch_size: int = 0
    pauses: bool = False
    answers: bool = False
    held: bool = False
    told: bool = False
    paused: bool = False

    def opt_in(self, ready: wire.Ready) -> None:
        """What a READY says of its sender's version; plain v1 where it says nothing."""
        self.said_ready = True
        self.v1 = not wire.speaks_additions(ready.version)
        self.grouped = not self.v1 and wire.GROUPED in ready.features
        self.cancellable = not self.v1 and wire.CANCEL in ready.features
        self.prefetch_count = ready.prefetch_count if self.grouped and self.cancellable else 0
        beats = not self.v1 and wire.HEARTBEAT in ready.features
        self.heartbeat_seconds = ready.heartbeat_seconds if beats else None
        self.chooses = not self.v1 and wire.PRIORITY in ready.features
        self.wants = self.wants if self.chooses else None
        batches = self.grouped and self.cancellable and wire.BATCH in ready.features
        self.batch_size = ready.batch_size if batches else 0
        self.pauses = not self.v1 and wire.PAUSE in ready.features
        self.answers = not self.v1 and wire.STATUS in ready.features

    @property
    def queues(self) -> bool:
        """Whether there may be tasks on it that it has not begun."""
        return self.prefetch_count > 0 or self.batch_size > 0

    def takes(self, job: Job) -> bool:
        """Whether it may be given this one."""
        off = self.retiring or self.is_paused
        return not off and (self.wants is None or self.wants.takes(job))

    @property
    def is_paused(self) -> bool:
        """Whether it is to be sent nothing new."""
        return self.held or self.paused

    @property
    def silent_from(self) -> float:
        """When it counts as lost unless it says something; infinite where it promised nothing."""
        return self.heard_at + (self.heartbeat_seconds or math.inf) * limits.HEARTBEATS_MISSED


class ConnectionRegistry:
    """All connections, kept by state: no question here costs more with more workers."""

    def __init__(self) -> None:
        self._connections: dict[ConnId, Connection] = {}
        self._by_state: dict[ConnState, dict[ConnId, Connection]] = {s: {} for s in ConnState}
        self._by_pid: dict[int, dict[ConnId, Connection]] = {}
        self._retiring = 0
        self._paused: dict[ConnId, Connection] = {}
        self.held: set[str] = set()
        """The ids of workers that a person has paused; a new process under one is paused, too."""

    def add(self, conn_id: ConnId, pid: int, start_time: int = 0) -> Connection:
        """Somebody connected."""
        connection = Connection(conn_id, pid, start_time)
        self._connections[conn_id] = connection
        self._by_pid.setdefault(pid, {})[conn_id] = connection
        self._by_state[connection.state][conn_id] = connection
        return connection

    def remove(self, conn_id: ConnId) -> Connection | None:
        """The connection is over."""
        connection = self._connections.pop(conn_id, None)
        if connection is not None:
            del self._by_state[connection.state][conn_id]
            self._retiring -= connection.retiring
            self._paused.pop(conn_id, None)
            of_process = self._by_pid[connection.pid]
            del of_process[conn_id]
            if not of_process:
                del self._by_pid[connection.pid]
        return connection

    def move(self, connection: Connection, stimulus: ConnStimulus) -> ConnReaction:
        """Change its state by the table; returns what is to be done."""
        move = step(CONNECTION, connection.state, stimulus)
        if move.to is not connection.state:
            del self._by_state[connection.state][connection.conn_id]
            self._by_state[move.to][connection.conn_id] = connection
            connection.state = move.to
        return move.reaction

    def retire(self, connection: Connection) -> None:
        """It gets no more work."""
        if not connection.retiring:
            connection.retiring = True
            self._retiring += 1

    def get(self, conn_id: ConnId) -> Connection | None:
        """The connection, unless it is over."""
        return self._connections.get(conn_id)

    def own_id(self, worker_id: str, said: str) -> str:
        """A process of ours with several slots has a connection for each: W1, W1.2, W1.3."""
        number = said.removeprefix(f"{worker_id}.")
        if number == said or not (number.isdecimal() and number.isascii() and len(number) < 6):
            return worker_id
        return worker_id if any(c.worker_id == said for c in self._connections.values()) else said

    def joined(self, connection: Connection) -> None:
        """It is a worker now, and maybe not the only one of its process."""
        others = [c for c in self._by_pid[connection.pid].values() if c.worker_id]
        for each in others if len(others) > 1 else ():
            each.several = True

    def of_process(self, pid: int) -> list[Connection]:
        """The connections of a process."""
        return list(self._by_pid.get(pid, {}).values())

    def is_connected(self, pid: int) -> bool:
        """Whether a process has a connection, or several."""
        return pid in self._by_pid

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._connections.values()))

    def __len__(self) -> int:
        return len(self._connections)

    def in_state(self, *states: ConnState) -> list[Connection]:
        """Connections in one of these states, longest in it first."""
        return [c for state in states for c in self._by_state[state].values()]

    def count(self, *states: ConnState) -> int:
        """How many are in one of these states."""
        number = 0
        for state in states:  # Asked a dozen times a task: a generator takes twice as long.
            number += len(self._by_state[state])
        return number

    def slots(self) -> int:
        """How many could have a task: known, and not on their way out."""
        states = self._by_state  # Asked five times a task.
        known = len(states[ConnState.IDLE]) + len(states[ConnState.READY])
        known += len(states[ConnState.RESERVED]) + len(states[ConnState.BUSY])
        return known - self._retiring - (self.idle_paused() if self._paused else 0)

    def pause(self, connection: Connection) -> None:
        """It is paused, or is not any more."""
        if connection.is_paused:
            self._paused[connection.conn_id] = connection
        else:
            self._paused.pop(connection.conn_id, None)

    def idle_paused(self, *, own: bool = False) -> int:
        """How many have no task and are to get none; ``own``: of ours."""
        idle = (ConnState.IDLE, ConnState.READY)
        paused = (c for c in self._paused.values() if c.state in idle and not c.retiring)
        return sum(c.own or not own for c in paused)

    def of_worker(self, worker_id: str) -> list[Connection]:
        """Its connections: a process of ours with several slots has one for each."""
        every = self._connections.values()
        return [c for c in every if worker_id in (c.worker_id, c.worker_id.partition(".")[0])]

    def batch_room(self) -> int:
        """How many more tasks than one those take together who wait for their reply."""
        waiting = self._by_state[ConnState.READY].values()
        return sum(c.batch_size - 1 for c in waiting if c.batch_size and not c.is_paused)

    def next_worker_id(self, taken: set[str]) -> str:
        """The lowest ``W{n}`` that nobody has; ``taken``: reserved for our own."""
        used = taken | {c.worker_id for c in self._connections.values()}
        number = 1
        while f"W{number}" in used:
            number += 1
        return f"W{number}"
