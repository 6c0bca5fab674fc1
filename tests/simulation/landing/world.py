"""One seed: as ever, but what was done lands before it is closed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from beads_workers.core.base.settings import Agent, FleetSettings, Landing, Work
from tests.simulation.landing.checks import LandingChecks
from tests.simulation.landing.nodes import LandingNode
from tests.simulation.landing.repository import Repository
from tests.simulation.mishaps import Mishaps
from tests.simulation.mutants import Mutant
from tests.simulation.nodes import Node
from tests.simulation.world import Options, World

LANDING = Landing("bw-landing/main", "b", "main")
AGENT = Agent("shell", (), "")
"""It is not understood, and mends its branch all the same."""


class LandingWorld(World):
    """``repository``: of the project, on a disk that keeps everything."""

    node: LandingNode | None
    check: LandingChecks

    def __init__(self, options: Options, mutant: Mutant) -> None:
        super().__init__(options, mutant)
        self.self_claiming = self.own_self_claiming = self.functions = False
        self.repository = Repository(Random(options.seed + 2))
        self.unmade_until = 0.0
        self.mends = options.seed // 8 % 3 > 0
        self.check = LandingChecks(self)
        self.mishaps = LandingMishaps(self)

    def makes_worktrees(self) -> bool:
        """Whether one can be made now."""
        return self.peace or self.agenda.now >= self.unmade_until

    def cut_power(self) -> None:
        """The whole machine stops."""
        self.check.power_cut()
        super().cut_power()

    def make_node(self, settings: FleetSettings) -> Node:
        """Its branches land; in most worlds somebody mends those that do not."""
        work = replace(settings.work, lands=True)
        if self.mends:
            work = Work(agents=(AGENT,), timeout_seconds=60.0, lands=True)
        return LandingNode(self, replace(settings, work=work, landing=LANDING))


class LandingMishaps(Mishaps):
    """The same, a lander that is killed, and times in which no worktree can be made."""

    _world: LandingWorld

    def __init__(self, world: LandingWorld) -> None:
        super().__init__(world)
        self._sorts += [(12, "lander: killed", self._kill_lander)]
        self._sorts += [(2, "worktrees: none can be made", self._unmake)]
        self._weights = [weight for weight, _, _ in self._sorts]

    def _unmake(self) -> bool:
        self._world.unmade_until = self._world.agenda.now + self._random.expovariate(1 / 60.0)
        return True

    def _kill_lander(self) -> bool:
        node = self._world.node
        return node is not None and node.process.alive and node.kill_lander()
