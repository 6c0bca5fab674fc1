"""Ingress: what comes from senders, and what goes back to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, assert_never

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import CrashedRun, Settled, Settlement, Taken
from beads_workers.core.schedule.events import Arrived, ConnId, Withdrawn
from beads_workers.integrations.rrq import request_table as pending
from beads_workers.integrations.rrq.request_table import RequestTable
from beads_workers.integrations.rrq.source import RrqSource
from tests.simulation.agenda import Thread

if TYPE_CHECKING:
    from tests.simulation.push.nodes import PushNode
    from tests.simulation.push.senders import Call


SYNC_SECONDS = 0.0005
LENGTH_BYTES = 4
"""Of a frame, before its payload."""


class RrqPrompt:
    """The real source of RRQ requests, with the real ``RequestTable``."""

    def __init__(self, node: PushNode, actor: str) -> None:
        self._node = node
        self.serving = RequestTable()
        self._source = RrqSource(
            self.serving,
            actor=actor,
            place="sim",
            calls_functions=False,
            clock=lambda: node.world.agenda.now,
        )
        self.listing_began: float | None = None

    def take_now(self, limit: int, skip: Collection[IssueId]) -> Taken:
        """``Source.take``."""
        return self._source.take(limit, skip)

    def settle_now(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """``Source.settle``."""
        for each in settlements:
            self._node.world.check.about_to_settle(self._node, each)
        return self._source.settle(settlements)

    def recover(self, dead: CrashedRun) -> Thread:
        """``Source.recover``."""
        yield 0.0
        return self._source.recover(dead)

    def close(self) -> Thread:
        """``Source.close``."""
        yield 0.0


class RrqIngress:
    """Mirrors ``integrations.rrq.ingress.RrqIngress``."""

    def __init__(self, node: PushNode, serving: RequestTable) -> None:
        self._node = node
        self._world = node.world
        self._serving = serving
        self._calls: dict[ConnId, Call] = {}
        self._last = 0
        self._open = True
        self._timer: float | None = None
        node.process.at_death.append(self._died)

    def enter(self, call: Call) -> ConnId | None:
        """Somebody connects; None where nobody listens."""
        if not (self._open and self._node.process.alive):
            return None
        self._last += 1
        conn_id = ConnId(self._last)
        self._calls[conn_id] = call
        self._serving.connected(conn_id)
        return conn_id

    def heard(self, conn_id: ConnId, payload: bytes) -> None:
        """A frame."""
        self._serving.received(conn_id, payload, self._world.agenda.now, self._world.wall())
        self._node.loop._wake(0.0)

    def left(self, conn_id: ConnId) -> None:
        """The other end is gone."""
        if self._calls.pop(conn_id, None) is not None:
            self._serving.gone(conn_id)
            self._node.loop._wake(0.0)

    def flush(self) -> None:
        """``RrqIngress.flush``."""
        self._serving.on_deadline(self._world.agenda.now)
        commands = self._serving.collect()
        if any(isinstance(command, pending.Offer) for command in commands):
            self._node.tell(Arrived())
        for command in commands:
            self._carry_out(command)
        if self._serving.has_commands:
            self.flush()
        due = self._serving.deadline()
        if due is not None and due != self._timer:
            self._timer = due
            seconds = max(0.0, due - self._world.agenda.now)
            self._node.process.later(seconds, lambda: self._node.loop._wake(0.0))

    def _carry_out(self, command: pending.Command) -> None:
        match command:
            case pending.SendFrame(conn_id, data):
                call = self._calls.get(conn_id)
                lost = self._world.mutant.loses_answers and conn_id % 2 == 0
                for _ in range(2 if self._world.mutant.answers_twice else 1):
                    if call is not None and not lost:
                        call.answered(data[LENGTH_BYTES:])
            case pending.CloseConnection(conn_id):
                if (call := self._calls.pop(conn_id, None)) is not None:
                    call.ended()
                    self._serving.gone(conn_id)
            case pending.Offer():
                pass
            case pending.Withdraw(issue_id, why):
                self._node.tell(Withdrawn((issue_id,), why))
            case _:
                assert_never(command)

    def stop_accepting(self) -> None:
        """Nobody is let in any more, and nothing is begun."""
        if self._open:
            self._open = False
            self._serving.finish()

    def close(self) -> None:
        """The last answers."""
        self.stop_accepting()
        self._serving.abandon()
        self.flush()
        self._died()

    def _died(self) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.ended()


class BoxIngress:
    """What comes goes into the box, and is acknowledged when it is there for good."""

    def __init__(self, node: PushNode) -> None:
        self._node = node
        self._world = node.world
        self._open = True

    def accept(self, key: str, acknowledged: Callable[[], object]) -> None:
        """One arrival; the sender tries again until it hears of it."""
        if not self._open:
            return
        self._world.box.accept(key)
        self._node.tell(Arrived())
        if self._world.mutant.acknowledges_early:
            acknowledged()
        else:
            self._node.process.start(self._acknowledge(acknowledged))

    def _acknowledge(self, acknowledged: Callable[[], object]) -> Thread:
        yield SYNC_SECONDS
        self._world.point("before an arrival is on disk")
        self._world.box.sync()
        self._world.point("before an arrival is acknowledged")
        acknowledged()
        self._world.point("after an arrival was acknowledged")

    def withdraw(self, key: str) -> None:
        """Nobody wants it any more."""
        arrival = self._world.box.arrivals.get(key)
        if arrival is not None and self._world.box.withdraw(arrival):
            self.tell_withdrawn(key)

    def tell_withdrawn(self, key: str) -> None:
        """It may be with a worker of ours."""
        self._node.tell(Withdrawn((IssueId(key),), "cancelled"))

    def arrived(self) -> None:
        """There is something in the queue."""
        if self._open:
            self._node.tell(Arrived())

    def flush(self) -> None:
        """Nothing is pending here."""

    def stop_accepting(self) -> None:
        """Nothing more is taken in."""
        self._open = False

    def close(self) -> None:
        """The run is over."""
        self.stop_accepting()
