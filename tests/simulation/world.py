"""One seed: a machine, a tracker, people, and everything that may go wrong, until all is done."""

from __future__ import annotations

import gc
import traceback
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from beads_workers.core.base.policy import Policy
from beads_workers.core.base.settings import EndRules, FleetSettings, Work
from tests.simulation.agenda import Agenda, Died
from tests.simulation.checkers import Checks, Violation
from tests.simulation.disk import Disk
from tests.simulation.extended import Extended
from tests.simulation.faults import Faults
from tests.simulation.folds import Disagreement
from tests.simulation.foreign import Foreign
from tests.simulation.mishaps import Mishaps
from tests.simulation.mutants import Mutant
from tests.simulation.nodes import Node
from tests.simulation.processes import Processes
from tests.simulation.tracker import Tracker

EPOCH = 1_700_000_000.0
PEACE_SECONDS = 7200.0
"""How long everything may take once nothing goes wrong any more."""
LOG_LINES = 400
STEPS_MAX = 2_000_000
GARBAGE_OBJECTS = 200_000
"""So many new ones are looked at once."""


@dataclass(frozen=True, slots=True)
class Options:
    """``minutes``: of trouble. ``rate`` scales all chances. ``faults_max``: None is no limit.

    ``push``: a push source, ``agents``: AI agents, ``landing``: branches that land, ``away``: other
    machines, whatever the seed. ``fickle``: workers of 1.1 announce now this, now that.
    """

    seed: int
    minutes: float = 10.0
    rate: float = 1.0
    faults_max: int | None = None
    push: bool = False
    agents: bool = False
    landing: bool = False
    away: bool = False
    fickle: bool = False
    verbose: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a seed. ``violation`` is empty where all held."""

    seed: int
    seconds: float
    faults: Counter[str]
    violation: str = ""
    number: int = 0
    log: tuple[str, ...] = ()
    closed: int = 0
    runs: int = 0


class World:
    """Everything is drawn from ``random``, in the order in which it happens."""

    node_class = Node

    def __init__(self, options: Options, mutant: Mutant) -> None:
        self.options = options
        self.mutant = mutant
        self.random = Random(options.seed)
        self.verbose = options.verbose
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self.agenda = Agenda()
        self.faults = Faults(Random(options.seed + 1), options.rate)
        self.faults.left = options.faults_max
        self.processes = Processes(self)
        self.disk = Disk(self.random)
        self.tracker = Tracker(self)
        self.check = Checks(self)
        kind = self.random.randrange(4)
        self.atomic = kind == 0
        self.self_claiming = kind >= 2
        self.own_self_claiming = kind == 3
        self.functions = options.seed % 3 == 1
        """Most tasks take less time than their way to a worker, which prefetches some."""
        self.attempts_max = self.random.choice((1, 2, 3, 3))
        self.until_empty = False
        self.wall_offset = 0.0
        self.prefetched = 0
        self.heard_late = 0
        self.broken_until = 0.0
        """Until then every task fails at its start, as where nobody is logged in."""
        self.peace = False
        self.node: Node | None = None
        self.armed: int | None = None
        self._power = False
        self._runs = 0
        self._over_at = 0.0
        self.mishaps = Mishaps(self)

    # --- what everybody may ask ---------------------------------------------------------------

    def wall(self) -> float:
        """The wall clock."""
        return EPOCH + self.agenda.now + self.wall_offset

    def delay(self) -> float:
        """How long something small takes; now and then long."""
        drawn = self.random.random()
        if drawn < 0.02 and self.faults.hits("late", 0.5):
            return 0.2 + drawn * 100.0
        return 0.0002 + drawn * 0.003

    def fate_of_work(self) -> tuple[float, int]:
        """How long a task takes, and its exit status."""
        if self.functions and self.random.random() < 0.95:
            return self.random.expovariate(1000.0), int(self.random.random() < 0.1)
        mean = 30.0 if self.random.random() < 0.3 else 3.0
        drawn, seconds = self.random.random(), 0.05 + self.random.expovariate(1.0 / mean)
        if self.agenda.now < self.broken_until and not self.peace:
            return 0.05, 1
        if drawn < 0.75 or self.peace:
            return seconds, 0
        if drawn < 0.9:
            return seconds, 1
        return (seconds, 75) if drawn < 0.96 else (400.0, 0)

    def labels(self, issue_id: str) -> tuple[str, ...]:
        """Of an issue, as its tracker has them."""
        return ()

    def is_held(self, issue_id: str) -> bool:
        """Whether the fleet believes that it has this issue."""
        node = self.node
        begun = node is not None and node.process.alive and node.run_id
        return bool(begun) and node is not None and issue_id in node.core._parts.tasks.in_flight

    def log(self, text: str) -> None:
        """A line for whoever reads a failing seed."""
        self._log.append(f"{self.agenda.now - 1000.0:10.3f}  {text}")

    def breach(self, number: int, text: str) -> None:
        """An invariant does not hold."""
        raise Violation(number, text)

    def point(self, where: str) -> None:
        """A place between two effects: the orchestrator may die here."""
        if self.armed is None:
            return
        self.armed -= 1
        if self.armed < 0:
            self.armed = None
            if self.verbose:
                self.log(f"*** dies {where}{' (power cut)' if self._power else ''}")
            what = "power cut" if self._power else "orchestrator killed"
            self.faults.counts[f"{what} {where}"] += 1
            raise Died(self._power)

    def arm(self, points: int, power: bool) -> None:
        """The orchestrator dies so many points from now."""
        self.armed, self._power = points, power

    # --- orchestrators ------------------------------------------------------------------------

    def start_node(self) -> None:
        """A person types ``start``."""
        if self.node is not None and self.node.process.alive and not self.mutant.ignores_lock:
            return  # Exit code 5: it says so and changes nothing.
        self._runs += 1
        settings = FleetSettings(
            workers=self.random.randint(1, 4),
            source="sim",
            tracker="/tracker",
            project="/project",
            state_directory="/project/.beads-workers",
            work=Work(
                command=("x",),
                timeout_seconds=60.0,
                allow_modules=("shop",) if self.functions else (),
            ),
            policy=Policy(self.attempts_max, self.random.choice((0.5, 0.5, 10.0))),
            ending=EndRules(until_empty=self.until_empty or self.random.random() < 0.5),
            orphan_grace_seconds=self.random.choice((None, 0.5, 30.0)),
        )
        node = self.node = self.make_node(settings)
        node.process.later(0.0, node.begin)

    def make_node(self, settings: FleetSettings) -> Node:
        """An orchestrator on this machine."""
        return self.node_class(self, settings)

    def crashed(self, node: Node, died: Died) -> None:
        """Its process is no more."""
        if died.power:
            self.cut_power()
        else:
            node.process.die()
        self._start_again(self.random.uniform(0.05, 20.0))

    def cut_power(self) -> None:
        """Processes end, and the disk keeps what was synced."""
        self.processes.cut_power()
        self.faults.counts["journal: torn line"] += self.disk.cut_power()
        self.check.accounts.power_cut()

    def over(self, node: Node, exit_code: int) -> None:
        """It ended by itself."""
        if self.verbose:
            self.log(f"{node.run_id} ended, exit code {exit_code}")
        run_id = node.run_id
        self.agenda.after(30.0, lambda: self.check.run_gone(run_id))
        self._start_again(self.random.uniform(0.05, 5.0))

    def _start_again(self, seconds: float) -> None:
        self.armed = None
        if not self.peace:
            self.agenda.after(seconds, self.start_node)

    def add_foreign(self) -> None:
        """A worker that somebody else started."""
        if self.node is not None and self.node.process.alive and self.node.run_id:
            Foreign(self.node)

    def add_extended(self) -> None:
        """One that speaks 1.1."""
        if self.node is not None and self.node.process.alive and self.node.run_id:
            Extended(self.node)

    # --- from the beginning to the end --------------------------------------------------------

    def run(self) -> Outcome:
        """The whole story of a seed."""
        violation, number = "", 0
        try:
            with _seldom_collected():
                self._live()
        except Violation as broken:
            violation, number = str(broken), broken.number
        except Disagreement as differs:
            violation, number = f"invariant 12: {differs}", 12
        except Exception:  # Whatever the core raises is what is looked for.
            violation, number = f"invariant 8: it crashed\n{traceback.format_exc()}", 8
        return Outcome(
            self.options.seed,
            self.agenda.now - 1000.0,
            self.faults.counts,
            violation,
            number,
            tuple(self._log),
            self.counts(),
            self._runs,
        )

    def counts(self) -> int:
        """How much was done in this world."""
        return sum(i.holding.status == "closed" for i in self.tracker.issues.values())

    def _live(self) -> None:
        self.mishaps.begin()
        self.start_node()
        until = 1000.0 + 60.0 * self.options.minutes
        while self.agenda.now < until and self.agenda.step():
            pass
        self._make_peace()
        until = self.agenda.now + PEACE_SECONDS
        while self.agenda.now < until and not self._all_quiet():
            assert self.agenda.step(), "something is always due before the end"
        if not self._all_quiet():
            self.breach(9, "it does not come to its end although nothing goes wrong any more")
        self.check.all_settled()
        self.check.all_done()

    def _make_peace(self) -> None:
        """No more faults; a last run is to do all that is left."""
        self.peace = True
        self.faults.rate = 0.0
        self.armed = None
        self.mishaps.end()
        self.agenda.after(60.0, self._last_run)

    def _last_run(self) -> None:
        node = self.node
        if node is not None and node.process.alive:
            self.mishaps.ask_to_stop(node)
            self.agenda.after(30.0, self._last_run)
            return
        self.until_empty = True
        self._last = True
        self.start_node()

    _last = False

    def _all_quiet(self) -> bool:
        node = self.node
        if not self._last or node is None or node.process.alive:
            return False
        if not self._over_at:
            self._over_at = self.agenda.now + 60.0
        return self.agenda.now >= self._over_at or not self.agenda.pending()


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """A world is a few megabytes, and looking for garbage in it was a seventh of its time."""
    before = gc.get_threshold()
    gc.set_threshold(GARBAGE_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
