"""Connections: in order within one direction, late, and sometimes open on one side only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from beads_workers.core.base.wire import FromWorker, ToWorker
from beads_workers.core.schedule.events import Connected, ConnId, Disconnected, Misread, Received

if TYPE_CHECKING:
    from tests.simulation.agenda import Process
    from tests.simulation.nodes import Node


class Peer(Protocol):
    """The worker's end of a connection."""

    process: Process

    def heard(self, message: ToWorker) -> None:
        """A message of the orchestrator."""

    def hung_up(self) -> None:
        """The end of the stream."""


class Link:
    """One connection. ``core_open`` and ``peer_open``: whose end still stands."""

    def __init__(self, node: Node, peer: Peer, conn_id: ConnId) -> None:
        self._node = node
        self.peer = peer
        self._world = node.world
        self.conn_id = conn_id
        self.core_open = self.peer_open = True
        self._to_core_at = self._to_peer_at = 0.0
        self._inward(Connected(conn_id, peer.process.pid))
        peer.process.at_death.append(self._peer_died)
        node.links[conn_id] = self

    # --- the worker's end ---------------------------------------------------------------------

    def say(self, message: FromWorker) -> None:
        """The worker sends; dropped where the other end is gone."""
        if not self.peer_open:
            return
        if not self.core_open or not self._node.process.alive:
            self._world.agenda.after(0.0001, self._peer_hears_the_end)
            return
        faults = self._world.faults
        self._inward(Received(self.conn_id, message))
        if faults.hits("message: said twice", 0.04):
            self._inward(Received(self.conn_id, message))
        if faults.hits("message: garbage", 0.04):
            self._inward(Misread(self.conn_id, "no JSON", "{"))
        if faults.hits("connection: cut", 0.02):
            self.cut()

    def close(self) -> None:
        """The worker closes its end."""
        if self.peer_open:
            self.peer_open = False
            self._inward(Disconnected(self.conn_id, "closed"))

    def cut(self) -> None:
        """Both ends find the stream at its end; or one of them only, much later."""
        half = self._world.random.random() < 0.6
        self._inward(Disconnected(self.conn_id, "reset"))
        delay = self._world.random.uniform(5.0, 90.0) if half else 0.001
        self._world.agenda.after(delay, self._peer_hears_the_end)

    # --- the orchestrator's end ---------------------------------------------------------------

    def tell(self, message: ToWorker) -> None:
        """The orchestrator sends."""
        twice = self._world.faults.hits("message: told twice", 0.03)
        # In one go: on a stream nothing comes a second time after its answer has gone back.
        self._outward(message, message) if twice else self._outward(message)

    def hang_up(self) -> None:
        """The orchestrator closes its end, or died."""
        if self.core_open:
            self.core_open = False
            self._node.links.pop(self.conn_id, None)
            delay = max(0.0001, self._to_peer_at - self._world.agenda.now)
            self._world.agenda.after(delay, self._peer_hears_the_end)

    # --- on the way ---------------------------------------------------------------------------

    def _inward(self, event: Connected | Received | Misread | Disconnected) -> None:
        agenda = self._world.agenda
        self._to_core_at = max(self._to_core_at, agenda.now + self._world.delay())

        def arrive() -> None:
            if not self.core_open or not self._node.process.alive:
                return
            if isinstance(event, Disconnected):
                self.core_open = False
                self._node.links.pop(self.conn_id, None)
            self._node.tell(event)

        agenda.after(self._to_core_at - agenda.now, arrive)

    def _outward(self, *messages: ToWorker) -> None:
        agenda = self._world.agenda
        self._to_peer_at = max(self._to_peer_at, agenda.now + self._world.delay())

        def arrive() -> None:
            if self.peer_open:
                self.peer.process.later(0.0, lambda: [self._hear(each) for each in messages])

        agenda.after(self._to_peer_at - agenda.now, arrive)

    def _hear(self, message: ToWorker) -> None:
        if self.peer_open:
            self.peer.heard(message)

    def _peer_hears_the_end(self) -> None:
        if self.peer_open:
            self.peer_open = False
            self.peer.process.later(0.0, self.peer.hung_up)

    def _peer_died(self) -> None:
        # A child of the dead process may keep the socket open for a while.
        if self.peer_open:
            late = self._world.faults.hits("connection: end seen late", 0.2)
            self.peer_open = False
            delay = self._world.random.uniform(1.0, 30.0) if late else 0.0
            self._to_core_at = max(self._to_core_at, self._world.agenda.now + delay)
            self._inward(Disconnected(self.conn_id, "the other end closed it"))
