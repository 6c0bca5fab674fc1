"""One seed: as ever, but those who do the work are agents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from beads_workers.core.base.budget import Budget
from beads_workers.core.base.settings import Agent, FleetSettings, ProbePace, Work
from tests.simulation.agents.checks import AgentChecks
from tests.simulation.agents.mishaps import AgentMishaps
from tests.simulation.agents.nodes import AgentNode, SimulatedAccountFile
from tests.simulation.agents.vendors import Vendor
from tests.simulation.mutants import Mutant
from tests.simulation.nodes import Node
from tests.simulation.world import EPOCH, Options, World

PACE = ProbePace(reset_grace_seconds=5.0, probe_seconds=60.0)
AGENTS = ("claude", "codex")


class AgentWorld(World):
    """``vendors``: by the agent. ``usage``: what stands in the usage files, by the request.
    ``slept``: seconds that only the boot clock, and the one on the wall, have gone on."""

    node: AgentNode | None
    check: AgentChecks

    def __init__(self, options: Options, mutant: Mutant) -> None:
        super().__init__(options, mutant)
        self.self_claiming = self.own_self_claiming = self.functions = False
        self.slept = 0.0
        count = 1 + options.seed // 4 % 2
        self.vendors = {name: Vendor(self, f"of {name}", name) for name in AGENTS[:count]}
        self.reviewer = AGENTS[1] if count > 1 and options.seed // 8 % 2 else None
        self.usage: dict[str, tuple[str, int]] = {}
        self.account_file = SimulatedAccountFile(self)
        self.check = AgentChecks(self)
        self.mishaps = AgentMishaps(self)

    def wall(self) -> float:
        """It is right, also after a sleep."""
        return EPOCH + self.agenda.now + self.slept

    def labels(self, issue_id: str) -> tuple[str, ...]:
        """Some issues are for one agent."""
        number, names = int(issue_id[1:]), list(self.vendors)
        wants = number % 3 == 0 and len(names) > 1 and self.reviewer is None
        return (f"agent:{names[number % 2]}",) if wants else ()

    def sleep(self, seconds: float) -> None:
        """The machine sleeps; whoever is elsewhere does not."""
        self.slept += seconds
        if self.node is not None and self.node.process.alive:
            self.node.machine_slept()

    def cut_power(self) -> None:
        """Processes end, and the disk keeps what was synced."""
        super().cut_power()
        self.check.power_cut()

    def used(self, request_id: str, agent: str, tokens: int) -> None:
        """An attempt writes into its usage file what it has used by now."""
        self.usage[request_id] = (agent, tokens)

    def make_node(self, settings: FleetSettings) -> Node:
        """Its agents, and in some worlds budgets; what is left in the end is done without one."""
        names = [name for name in self.vendors if name != self.reviewer]
        agents = {name: self._agent(name) for name in self.vendors}
        review = agents[self.reviewer] if self.reviewer else None
        work = Work(agents=tuple(agents[n] for n in names), review=review, timeout_seconds=60.0)
        budget, issue_budget = None, None
        if not self.peace:
            budget = self.random.choice((None, None, Budget(tokens=20_000), Budget(dollars=0.4)))
            issue_budget = self.random.choice((None, None, None, Budget(tokens=30_000)))
        more: dict[str, Any] = {"budget": budget, "issue_budget": issue_budget, "pace": PACE}
        return AgentNode(self, replace(settings, work=work, **more))

    def _agent(self, name: str) -> Agent:
        at_once = self.random.choice((None, None, 1))
        return Agent(name, (), "", adapter=name, account=f"of {name}", at_once=at_once)
