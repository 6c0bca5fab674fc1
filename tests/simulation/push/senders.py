"""Who sends work: tries again until it is sure, sends twice, loses connections, and withdraws."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from beads_workers.core.schedule.events import ConnId
from beads_workers.integrations.rrq import wire
from beads_workers.integrations.rrq.wire import parse
from tests.simulation.push.ingresses import BoxIngress, RrqIngress

if TYPE_CHECKING:
    from tests.simulation.push.nodes import PushNode
    from tests.simulation.push.world import PushWorld


AGAIN_SECONDS = 5.0
ARRIVALS_MAX = 60


class Senders:
    """One for the whole world; it is on another machine, and never dies."""

    def __init__(self, world: PushWorld) -> None:
        self._world = world
        self.jobs: dict[str, Job] = {}
        self.acknowledged: set[str] = set()

    def another(self) -> None:
        """One more job."""
        if len(self.jobs) < ARRIVALS_MAX:
            key = f"p{len(self.jobs)}"
            self.jobs[key] = Job(self._world, self, key)
            self.jobs[key].send()

    def pending(self) -> list[str]:
        """Jobs whose senders still wait for something."""
        return [key for key, job in self.jobs.items() if not job.is_over()]

    def node(self) -> PushNode | None:
        """The orchestrator, where one can be reached."""
        node = self._world.node
        if node is None or not (node.process.alive and node.run_id) or node.process.stopped:
            return None
        return node


@dataclass(slots=True)
class Job:
    """One, from its first sending to all that its sender wants to know of it."""

    world: PushWorld
    senders: Senders
    key: str
    attempt: int = 0
    over: bool = False
    calls: list[Call] = field(default_factory=list)

    def is_over(self) -> bool:
        """Whether its sender has what it waits for."""
        if self.world.kind == "rrq":
            return self.over
        return self.key in self.senders.acknowledged and self.world.check.is_answered(self.key)

    def send(self) -> None:
        """Once, and once more as long as nothing is heard of it."""
        if self.over or self.key in self.senders.acknowledged:
            return
        wait = AGAIN_SECONDS * (0.5 + self.world.random.random())
        self.world.agenda.after(wait, self.send)
        if self.world.kind == "queue":
            self._push()
        elif (node := self.senders.node()) is not None:
            if isinstance(node.ingress, RrqIngress):
                self._ask(node.ingress)
            else:
                self._hand_in(node.ingress)

    # --- into a box ---------------------------------------------------------------------------

    def _push(self) -> None:
        """Into the queue, which is always there; its answer may be lost."""
        self.world.box.accept(self.key)
        if (node := self.senders.node()) is not None and isinstance(node.ingress, BoxIngress):
            self.world.agenda.after(self.world.delay(), node.ingress.arrived)
        if not self.world.faults.hits("push: done, told it failed", 0.1):
            self._acknowledged()

    def _hand_in(self, ingress: BoxIngress) -> None:
        faults, agenda = self.world.faults, self.world.agenda
        if faults.hits("sender: connection lost before the acknowledgement", 0.1):
            return
        lost = faults.hits("sender: connection lost, acknowledgement on its way", 0.1)

        def acknowledged() -> None:
            if not lost:
                agenda.after(self.world.delay(), self._acknowledged)

        def arrive() -> None:
            if (node := self.senders.node()) is not None and node.ingress is ingress:
                node.process.later(0.0, lambda: ingress.accept(self.key, acknowledged))

        agenda.after(self.world.delay(), arrive)
        if faults.hits("sender: sends twice", 0.1):
            agenda.after(self.world.delay() + self.world.random.expovariate(1.0), arrive)

    def _acknowledged(self) -> None:
        if self.key in self.senders.acknowledged:
            return
        self.senders.acknowledged.add(self.key)
        if self.world.faults.hits("sender: withdraws", 0.15):
            self.world.agenda.after(self.world.random.expovariate(0.2), self._withdraw)
        if self.world.faults.hits("sender: sends again what was acknowledged", 0.1):
            self.world.agenda.after(self.world.random.expovariate(0.1), self._once_more)

    def _once_more(self) -> None:
        if self.world.kind == "queue":
            self.world.box.accept(self.key)
        elif (node := self.senders.node()) is not None and isinstance(node.ingress, BoxIngress):
            ingress = node.ingress
            node.process.later(0.0, lambda: ingress.accept(self.key, lambda: None))

    def _withdraw(self) -> None:
        node = self.senders.node()
        if self.world.kind == "queue":
            arrival = self.world.box.arrivals[self.key]
            held = self.world.box.withdraw(arrival)
            if held and node is not None and isinstance(node.ingress, BoxIngress):
                self.world.agenda.after(0.1, lambda: self._tell(node))
        elif node is not None and isinstance(node.ingress, BoxIngress):
            ingress = node.ingress
            node.process.later(0.0, lambda: ingress.withdraw(self.key))

    def _tell(self, node: PushNode) -> None:
        if node.process.alive and isinstance(node.ingress, BoxIngress):
            node.ingress.tell_withdrawn(self.key)

    # --- as a request -------------------------------------------------------------------------

    def _ask(self, ingress: RrqIngress) -> None:
        if any(call.conn_id is not None for call in self.calls):
            return  # It has been asked, and whoever was asked is still there.
        self.attempt += 1
        version = wire.V1 if self.world.random.random() < 0.5 else wire.V2
        context = wire.RequestContext(self.key, 1, self.world.wall(), "sim")
        if self.world.random.random() < 0.2:
            seconds = self.world.random.uniform(1.0, 60.0)
            deadline = self.world.wall() + seconds
            context = wire.RequestContext(self.key, 1, self.world.wall(), "sim", deadline)
        name = f"{self.key}.{self.attempt}"
        request = wire.Request(name, self.key, "work", context, protocol_version=version)
        call = Call(self.world, self, request)
        self.calls.append(call)
        call.begin(ingress)

    def heard(self, outcome: wire.RequestOutcome) -> None:
        """An answer; what may be tried again is."""
        kind = outcome.error.type if outcome.error is not None else None
        again = outcome.status is wire.RequestStatus.RETRY or kind in (
            wire.CANCELLED,
            "worker_lost",
        )
        if not again or self.attempt > 20:
            self.over = True


@dataclass(slots=True, eq=False)
class Call:
    """One connection with one request, which may be said twice. ``conn_id``: while it stands."""

    world: PushWorld
    job: Job
    request: wire.Request
    conn_id: ConnId | None = None
    sent: int = 0
    answers: int = 0
    _ingress: RrqIngress | None = None
    _at: float = 0.0

    def begin(self, ingress: RrqIngress) -> None:
        """Connect and ask."""
        self._ingress, self.conn_id = ingress, ingress.enter(self)
        if self.conn_id is None:
            return
        faults, random = self.world.faults, self.world.random
        self._say(self.request)
        if faults.hits("sender: asks twice", 0.1):
            self._say(self.request)
        if faults.hits("sender: cancels", 0.15):
            named = self.request.request_id if random.random() < 0.5 else None
            cancel = wire.CancelRequest(self.job.key, named)
            self.world.agenda.after(random.expovariate(0.3), lambda: self._say(cancel))
        if faults.hits("sender: leaves before its answer", 0.15):
            self.world.agenda.after(random.expovariate(0.3), self._leave)

    def _say(self, envelope: wire.Request | wire.CancelRequest) -> None:
        self.sent += isinstance(envelope, wire.Request)
        self._inward(lambda ingress, conn_id: ingress.heard(conn_id, wire.encode(envelope)))

    def _leave(self) -> None:
        if self.conn_id is not None:
            self._inward(lambda ingress, conn_id: ingress.left(conn_id))
            self.conn_id = None

    def _inward(self, do: object) -> None:
        ingress, conn_id = self._ingress, self.conn_id
        assert callable(do)
        if ingress is None or conn_id is None:
            return
        agenda = self.world.agenda
        self._at = max(self._at, agenda.now + self.world.delay())
        node = ingress._node
        agenda.after(
            self._at - agenda.now, lambda: node.process.later(0.0, lambda: do(ingress, conn_id))
        )

    def answered(self, payload: bytes) -> None:
        """The executor has sent an answer."""
        outcome = parse(payload)
        assert isinstance(outcome, wire.RequestOutcome)
        self.world.agenda.after(self.world.delay(), lambda: self._heard(outcome))

    def _heard(self, outcome: wire.RequestOutcome) -> None:
        if self.conn_id is None and self.answers < self.sent:
            return  # It has left, and hears nothing.
        self.answers += 1
        self.world.check.request_answered(self, outcome)
        duplicate = outcome.error is not None and outcome.error.code == "duplicate_request"
        if not duplicate:
            self.job.heard(outcome)
        if self.answers >= self.sent:
            self._leave()

    def ended(self) -> None:
        """The executor has gone, or has had enough."""
        self.conn_id = None
