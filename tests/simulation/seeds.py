"""Many seeds on every core, and the smallest number of faults that still breaks one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from importlib.util import find_spec

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.world import Options, Outcome, World

PUSHES = find_spec("tests.simulation.push.world") is not None
"""Whether there are such worlds: their sources are code of integrations, which may be left out."""

PUSH_EACH = 4
"""Every so many seeds are worlds with a push source."""

AGENTS_EACH = 4
"""Every so many seeds are worlds with agents."""

LANDING_EACH = 4
"""Every so many seeds are worlds in which branches land."""

AWAY_EACH = 8
"""Every so many seeds are worlds in which attempts run on other machines."""

FICKLE_EACH = 8
"""Every so many seeds are worlds in which workers announce now this, now that."""

BATCH = 10
"""Seeds that one core does before it reports."""


@dataclass(slots=True)
class Figures:
    """Sums over seeds. ``seconds``: simulated. ``broken``: outcomes with a violation."""

    seeds: int = 0
    seconds: float = 0.0
    runs: int = 0
    closed: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    broken: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """One more seed."""
        self.seeds += 1
        self.seconds += outcome.seconds
        self.runs += outcome.runs
        self.closed += outcome.closed
        self.faults += outcome.faults
        if outcome.violation:
            self.broken.append(outcome)

    @property
    def injected(self) -> int:
        """How many faults in all."""
        return self.faults.total()


def run_seed(options: Options, mutant: str = "") -> Outcome:
    """One world from its beginning to its end."""
    planted = MUTANTS[mutant] if mutant else Mutant()
    chosen = options.agents or options.landing or options.away
    pushes = options.push or (options.seed % PUSH_EACH == 1 and not chosen)
    push = planted.push if mutant else pushes
    has_agents = options.seed % AGENTS_EACH == 3 and not (options.landing or options.away)
    agents = planted.agents if mutant else options.agents or has_agents
    landing = (
        planted.landing
        if mutant
        else options.landing or (options.seed % LANDING_EACH == 2 and not options.away)
    )
    away = planted.away if mutant else options.away or options.seed % AWAY_EACH == 0
    if push and PUSHES:
        kind = push_world()
    elif away and not (agents or landing):
        kind = away_world()
    elif agents or landing:
        kind = agent_world() if agents else landing_world()
    else:
        kind = World
    options = replace(options, fickle=kind is World and options.seed % FICKLE_EACH == 4)
    with planted.plant():
        return kind(options, planted).run()


def away_world() -> type[World]:
    """The world with other machines."""
    from tests.simulation.away.world import AwayWorld

    return AwayWorld


def agent_world() -> type[World]:
    """The world with agents."""
    from tests.simulation.agents.world import AgentWorld

    return AgentWorld


def landing_world() -> type[World]:
    """The world in which branches land."""
    from tests.simulation.landing.world import LandingWorld

    return LandingWorld


def push_world() -> type[World]:
    """The world with a push source; of the code of integrations, which may be left out."""
    from tests.simulation.push.world import PushWorld

    return PushWorld


def run_batch(options: Options, mutant: str, count: int) -> list[Outcome]:
    """Some worlds in a row, the first with the seed of ``options``."""
    seeds = range(options.seed, options.seed + count)
    return [run_seed(replace(options, seed=seed), mutant) for seed in seeds]


def run_many(
    options: Options, mutant: str, goes_on: Callable[[int], bool], jobs: int
) -> Iterator[Outcome]:
    """Outcomes as they come, for as long as ``goes_on`` wants the seed that it is asked about."""
    seed = options.seed
    with ProcessPoolExecutor(jobs) as pool:
        under_way: set[Future[list[Outcome]]] = set()
        while True:
            while len(under_way) < 2 * jobs and goes_on(seed):
                count = sum(goes_on(seed + n) for n in range(BATCH))
                batch = replace(options, seed=seed)
                under_way.add(pool.submit(run_batch, batch, mutant, count))
                seed += count
            if not under_way:
                return
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                yield from future.result()


def shrink(options: Options, mutant: str, outcome: Outcome) -> int:
    """The smallest number of first faults that still breaks this seed, found by halving.

    Fewer faults change what comes after them, so it is small, and not always the smallest.
    """
    low, high = 0, outcome.faults.total()
    while low < high:
        middle = (low + high) // 2
        if run_seed(replace(options, faults_max=middle), mutant).violation:
            high = middle
        else:
            low = middle + 1
    return high if run_seed(replace(options, faults_max=high), mutant).violation else -1


def cores() -> int:
    """How many of them we may use."""
    return len(os.sched_getaffinity(0))
