"""What befalls agents, beside all else: limits, logins, overload, and a machine that sleeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.agents.vendors import Vendor
from tests.simulation.mishaps import Mishaps

if TYPE_CHECKING:
    from tests.simulation.agents.world import AgentWorld

WITHOUT = ("clock: jumps",)
"""Resets are moments on the clock of the vendor: a clock that is wrong by a day waits for a day."""


class AgentMishaps(Mishaps):
    """The same, and more."""

    _world: AgentWorld

    def __init__(self, world: AgentWorld) -> None:
        super().__init__(world)
        self._sorts = [each for each in self._sorts if each[1] not in WITHOUT]
        self._sorts += [
            (12, "account: limit", self._limit),
            (4, "account: login lost", self._log_out),
            (6, "account: overloaded", self._overload),
            (10, "machine: sleeps", self._sleep),
        ]
        self._weights = [weight for weight, _, _ in self._sorts]

    def end(self) -> None:
        """Somebody logs in, and nothing is overloaded."""
        for vendor in self._world.vendors.values():
            vendor.recover()
        super().end()

    def _vendor(self) -> Vendor:
        return self._random.choice(list(self._world.vendors.values()))

    def _limit(self) -> bool:
        late = self._random.uniform(5.0, 120.0) if self._random.random() < 0.3 else 0.0
        told = self._random.random() < 0.8
        self._vendor().limit(self._random.uniform(10.0, 180.0), late, told=told)
        return True

    def _log_out(self) -> bool:
        vendor = self._vendor()
        vendor.logged_in = False
        self._world.agenda.after(self._random.expovariate(1 / 60.0), vendor.recover)
        return True

    def _overload(self) -> bool:
        until = self._world.wall() + self._random.expovariate(1 / 20.0)
        self._vendor().overloaded_until = until
        return True

    def _sleep(self) -> bool:
        self._world.sleep(self._random.choice((5.0, 60.0, 3600.0)) * self._random.random() + 1.0)
        if self._random.random() < 0.5:
            self._edit()
        return True
