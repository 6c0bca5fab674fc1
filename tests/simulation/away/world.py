"""One seed: as ever, but most attempts run on other machines."""

from __future__ import annotations

from dataclasses import replace

from beads_workers.core.base.settings import FleetSettings, PlaceSettings
from beads_workers.core.records.journal import Leased
from tests.simulation.away.hosts import Host
from tests.simulation.away.nodes import PLACE, AwayNode
from tests.simulation.checkers import Checks, Violation
from tests.simulation.mishaps import Mishaps
from tests.simulation.mutants import Mutant
from tests.simulation.nodes import Node
from tests.simulation.world import Options, World

HOSTS = 3


class AwayWorld(World):
    """``lease``: seconds that an attempt goes on without a word."""

    node: AwayNode | None
    check: AwayChecks

    def __init__(self, options: Options, mutant: Mutant) -> None:
        super().__init__(options, mutant)
        self.self_claiming = self.own_self_claiming = self.functions = False
        self.lease = self.random.choice((10.0, 30.0, 120.0))
        self.hosts = [Host(self, f"n{number}") for number in range(HOSTS)]
        self.check = AwayChecks(self)
        self.mishaps = AwayMishaps(self)

    def make_node(self, settings: FleetSettings) -> Node:
        """Some starts have no place any more, and find what an earlier one has left there."""
        slots = self.random.choice((0, settings.workers, settings.workers))
        places = (PlaceSettings(PLACE, "sim", slots, lease_seconds=self.lease),) if slots else ()
        return AwayNode(self, replace(settings, workers=settings.workers + 1, places=places))


class AwayChecks(Checks):
    """The same, and that nothing begins before its lease is on disk."""

    def __init__(self, world: AwayWorld) -> None:
        super().__init__(world)
        self._leases: dict[str, int] = {}

    def leased(self, lease: Leased, offset: int) -> None:
        """A lease is in the file, up to this offset."""
        self._leases.setdefault(lease.nonce, offset)

    def told_to_begin(self, node: Node, lease: Leased) -> None:
        """A host is told to begin."""
        offset = self._leases.get(lease.nonce)
        if offset is None or offset > node.journal.synced:
            raise Violation(3, f"{lease} begins before it is on disk")


class AwayMishaps(Mishaps):
    """The same, and what happens to other machines and on the way to them."""

    _world: AwayWorld

    def __init__(self, world: AwayWorld) -> None:
        super().__init__(world)
        self._sorts += [
            (8, "guard: killed", lambda: self._kill("guard")),
            (30, "host: cut off", self._cut_off),
            (6, "host: sleeps", self._sleep),
            (6, "host: is started anew", self._restart),
        ]
        self._weights = [weight for weight, _, _ in self._sorts]

    def end(self) -> None:
        """Every machine can be reached, and is awake."""
        super().end()
        for host in self._world.hosts:
            host.cut = False
            host._wake()
        for process in self._world.processes.of("guard"):
            process.resume()

    def _seconds(self) -> float:
        return self._random.expovariate(1.0 / self._world.lease) * self._random.choice((0.2, 2.0))

    def _cut_off(self) -> bool:
        host = self._random.choice(self._world.hosts)
        if host.cut:
            return False
        host.cut = True

        def mend() -> None:
            host.cut = False

        self._world.agenda.after(self._seconds(), mend)
        return True

    def _sleep(self) -> bool:
        host = self._random.choice(self._world.hosts)
        if host.asleep:
            return False
        host.sleep(self._seconds())
        return True

    def _restart(self) -> bool:
        self._random.choice(self._world.hosts).restart()
        return True
