"""Who is connected: one entry per connection, which is the worker's identity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from beads_workers.core import messages
from beads_workers.core.events import ConnId
from beads_workers.core.jobs import IssueId
from beads_workers.core.moves import step
from beads_workers.core.states import CONNECTION, ConnReaction, ConnState, ConnStimulus


@dataclass(slots=True)
class Connection:
    """``worker_id`` is ours to give; ``own``: a process that we started; ``v1``: speaks 1 only.

    ``grouped``: we claim and close for it. ``issue_id``: of the task it has, or is to get.
    ``ahead``: of those that it was sent beside that one, in their order; ``keeps``: how many.
    ``retiring``: it gets no more work after this (scaled down). ``strays``: valid messages
    that made no sense in its state.
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
    keeps: int = 0
    ahead: list[IssueId] = field(default_factory=list)
    retiring: bool = False
    bad_lines: int = 0
    strays: int = 0

    def opt_in(self, ready: messages.Ready) -> None:
        """What a READY says of its sender's version; plain v1 where it says nothing."""
        self.v1 = ready.version != messages.VERSION
        self.grouped = not self.v1 and messages.GROUPED in ready.features
        self.cancellable = not self.v1 and messages.CANCEL in ready.features
        self.keeps = ready.ahead if self.grouped and self.cancellable else 0


class Roster:
    """All connections, kept by state: no question here costs more with more workers."""

    def __init__(self) -> None:
        self._connections: dict[ConnId, Connection] = {}
        self._by_state: dict[ConnState, dict[ConnId, Connection]] = {s: {} for s in ConnState}
        self._by_pid: Counter[int] = Counter()
        self._retiring = 0

    def add(self, conn_id: ConnId, pid: int, start_time: int = 0) -> Connection:
        """Somebody connected."""
        connection = Connection(conn_id, pid, start_time)
        self._connections[conn_id] = connection
        self._by_pid[pid] += 1
        self._by_state[connection.state][conn_id] = connection
        return connection

    def remove(self, conn_id: ConnId) -> Connection | None:
        """The connection is over."""
        connection = self._connections.pop(conn_id, None)
        if connection is not None:
            del self._by_state[connection.state][conn_id]
            self._retiring -= connection.retiring
            self._by_pid[connection.pid] -= 1
            if not self._by_pid[connection.pid]:
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
        return known - self._retiring

    def next_worker_id(self, taken: set[str]) -> str:
        """The lowest ``W{n}`` that nobody has; ``taken``: reserved for our own."""
        used = taken | {c.worker_id for c in self._connections.values()}
        number = 1
        while f"W{number}" in used:
            number += 1
        return f"W{number}"
