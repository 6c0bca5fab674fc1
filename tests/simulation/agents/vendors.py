"""Whoever runs the models: one account each, which takes requests or refuses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beads_workers.core.records.receipts import Receipt

if TYPE_CHECKING:
    from tests.simulation.agents.world import AgentWorld


class Vendor:
    """Times are on the wall clock. ``said``: the reset that is told, None where none is; ``until``:
    when it really comes, which may be later."""

    def __init__(self, world: AgentWorld, account: str, agent: str) -> None:
        self._world = world
        self.account = account
        self.agent = agent
        self.said: float | None = None
        self.until = 0.0
        self.logged_in = True
        self.overloaded_until = 0.0

    def limit(self, seconds: float, late: float, *, told: bool) -> None:
        """A window is used up."""
        now = self._world.wall()
        self.said = now + seconds if told else None
        self.until = now + seconds + late

    def refusal(self) -> Receipt | None:
        """What a request is answered now, where it is refused."""
        now = self._world.wall()
        if not self.logged_in:
            return Receipt("needs_person", "Not logged in", agent=self.agent)
        if now < self.until:
            said = "5-hour limit"
            return Receipt("limited", said, agent=self.agent, until=self.said, window=said)
        if now < self.overloaded_until:
            return Receipt("transient", "overloaded", agent=self.agent)
        return None

    def recover(self) -> None:
        """Whatever a person, or a technician, has to do is done."""
        self.logged_in, self.overloaded_until = True, 0.0
