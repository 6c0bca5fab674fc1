"""One seed: as ever, but work comes by itself, and its senders await answers."""

from __future__ import annotations

from beads_workers.core.base.policy import Policy
from beads_workers.core.base.settings import FleetSettings, TrackerRules
from tests.simulation.mutants import Mutant
from tests.simulation.nodes import Node
from tests.simulation.push.box import Box
from tests.simulation.push.checks import PushChecks
from tests.simulation.push.mishaps import PushMishaps
from tests.simulation.push.nodes import PushNode
from tests.simulation.push.senders import Senders
from tests.simulation.world import PEACE_SECONDS, Options, World

KINDS = ("rrq", "spool", "queue")
LOOK_SECONDS = 5.0


class PushWorld(World):
    """``kind``: which source, by the seed."""

    node: PushNode | None
    check: PushChecks

    def __init__(self, options: Options, mutant: Mutant) -> None:
        super().__init__(options, mutant)
        self.kind = mutant.kind or KINDS[options.seed // 2 % len(KINDS)]
        self.atomic, self.self_claiming, self.own_self_claiming = True, False, False
        self.check = PushChecks(self)
        self.box = Box(self, forgets=self.kind == "spool")
        self.senders = Senders(self)
        self.mishaps = PushMishaps(self)
        # A worker that says READY twice is told its TASK once more, maybe when it has just done
        # it: it would only be noticed here, where nobody may work on what is answered.
        self.faults.without = frozenset({"message: said twice"})

    def make_node(self, settings: FleetSettings) -> Node:
        """Retries are the sender's, but of what lies in a queue."""
        policy = settings.policy if self.kind == "queue" else Policy(hand_back=True)
        return PushNode(
            self,
            FleetSettings(
                workers=max(1, settings.workers),
                source=settings.source,
                tracker=settings.tracker,
                project=settings.project,
                state_directory=settings.state_directory,
                work=settings.work,
                policy=policy,
                tracking=TrackerRules(
                    poll_seconds=3600.0 if self.kind == "rrq" else settings.tracking.poll_seconds
                ),
            ),
        )

    def cut_power(self) -> None:
        """Of the box, too, where it is on this machine."""
        super().cut_power()
        self.box.cut_power()

    def _live(self) -> None:
        self.mishaps.begin()
        self.start_node()
        until = 1000.0 + 60.0 * self.options.minutes
        while self.agenda.now < until and self.agenda.step():
            pass
        self.peace, self.armed = True, None
        self.faults.rate = 0.0
        self.mishaps.end()
        self._attend()
        until = self.agenda.now + PEACE_SECONDS
        while self.agenda.now < until and not self._is_over():
            assert self.agenda.step(), "something is always due before the end"
        if not self._is_over():
            self.check.all_done()
            self.breach(9, "it does not come to its end although nothing goes wrong any more")
        self.check.all_settled()
        self.check.all_done()

    def _attend(self) -> None:
        """Whenever nobody works on what is pending, a person starts a fleet; then stops it."""
        node = self.node
        alive = node is not None and node.process.alive
        if self.senders.pending():
            if not alive:
                self.start_node()
        elif alive and node is not None:
            self.mishaps.ask_to_stop(node)
        self.agenda.after(LOOK_SECONDS, self._attend)

    def _is_over(self) -> bool:
        node = self.node
        dead = node is None or not node.process.alive
        return dead and not self.senders.pending() and not self.processes.of("worker", "task")

    def counts(self) -> int:
        """How many arrivals have their answer."""
        return len(self.senders.jobs) - len(self.senders.pending())
