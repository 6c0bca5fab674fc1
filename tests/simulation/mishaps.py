"""What the world does to a fleet: people, strangers, and everything that breaks by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from beads_workers.core.base.model import IssueId
from beads_workers.core.requests.release import ReleaseAskedFor
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.requests.scale import ScaleAsked
from beads_workers.core.requests.why import WhyAsked
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.events import Ticket
from beads_workers.trackers.settlement_rules import BLOCKED, CLOSED, IN_PROGRESS, Ownership
from tests.simulation.agenda import Died, Process
from tests.simulation.tracker import FREE

if TYPE_CHECKING:
    from tests.simulation.nodes import Node
    from tests.simulation.world import World


MEAN_SECONDS = 2.0
ISSUES_MAX = 60
BURST = 12
STRANGER = "somebody/else"
PERSON = "a person"
STOPPED = ("worker", "foreign", "extended", "task", "orchestrator")
"""What may be stopped, and goes on in peace."""


class Mishaps:
    """One every few seconds."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._sorts: list[tuple[int, str, Callable[[], bool]]] = [
            (10, "worker: killed", lambda: self._kill("worker")),
            (6, "task: killed", lambda: self._kill("task")),
            (4, "foreign worker: killed", lambda: self._kill("foreign", "extended")),
            (4, "call: caller's child killed", lambda: self._kill("bd")),
            (6, "worker: stopped", lambda: self._freeze("worker", "foreign", "extended")),
            (3, "task: stopped", lambda: self._freeze("task")),
            (2, "orchestrator: stopped", lambda: self._freeze("orchestrator")),
            (2, "orchestrator: stopped, and killed", self._freeze_and_kill),
            (8, "", lambda: self._arm(False)),
            (3, "", lambda: self._arm(True)),
            (3, "clock: jumps", self._jump),
            (3, "disk: full", self._fill_disk),
            (2, "command: fails at once", self._break_command),
            (8, "connection: cut from outside", self._cut),
            (3, "connection: silent", self._silent),
            (8, "foreign worker: joins", self._foreign),
            (12, "foreign worker: joins, of 1.1", self._extended),
            (10, "person: command", self._command),
            (4, "person: changes an issue", self._edit),
            (12, "stranger: claims", self._claim),
            (2, "second start", self._second_start),
        ]
        if world.options.fickle:
            self._sorts.append((30, "person: pauses a worker", self._pause))
        self._weights = [weight for weight, _, _ in self._sorts]
        self._on = True

    def begin(self) -> None:
        """Issues to start with, and the first mishap."""
        for _ in range(3 * BURST if self._world.functions else 8):
            self._add_issue()
        self._world.agenda.after(1.0, self._more_issues)
        self._world.agenda.after(1.0, self._next)

    def end(self) -> None:
        """Everything is repaired: clocks, disks, whatever was stopped."""
        self._on = False
        self._world.disk.room = None
        for process in self._world.processes.of(*STOPPED):
            process.resume()
        node = self._world.node
        if node is not None and node.process.alive and node.run_id:
            node.tell(ev.ResumeAsked(Ticket(1)))

    def ask_to_stop(self, node: Node) -> None:
        """``beads-workers stop``."""
        if node.run_id:
            node.tell(ev.StopAsked())

    def race(self, issue_id: str) -> None:
        """Between a read and a write of ours: somebody may be quicker."""
        if self._on and self._world.faults.hits("stranger: is quicker", 0.06):
            issue = self._world.tracker.issues[issue_id]
            if not self._take(issue_id) and self._random.random() < 0.3:
                self._world.tracker.put(issue.id, Ownership(IN_PROGRESS, STRANGER), PERSON)
                self._work_as_stranger(issue_id, by_force=True)

    # --- when ---------------------------------------------------------------------------------

    def _next(self) -> None:
        if not self._on:
            return
        self._world.agenda.after(self._random.expovariate(1.0 / MEAN_SECONDS), self._next)
        _, name, strike = self._random.choices(self._sorts, self._weights)[0]
        faults = self._world.faults
        if faults.left == 0 or not faults.rate:
            return
        if strike():
            if faults.left is not None:
                faults.left -= 1
            if name:  # A death is counted when it comes, under the place where it came.
                faults.counts[name] += 1
            if name and self._world.verbose:
                self._world.log(f"*** {name}")

    def _more_issues(self) -> None:
        if self._on:
            # What takes no time comes by the dozen, or nothing would ever wait.
            burst = BURST if self._world.functions else 1
            self._world.agenda.after(self._random.expovariate(0.2 / burst), self._more_issues)
            for _ in range(burst):
                self._add_issue()

    def _add_issue(self) -> None:
        issues = self._world.tracker.issues
        if len(issues) < ISSUES_MAX:
            behind = f"i{self._random.randrange(len(issues))}" if len(issues) > 3 else ""
            if self._random.random() < 0.8:
                behind = ""
            self._world.tracker.add(f"i{len(issues)}", self._random.randrange(5), behind)

    # --- processes ----------------------------------------------------------------------------

    def _one(self, *kinds: str) -> Process | None:
        found = self._world.processes.of(*kinds)
        return self._random.choice(found) if found else None

    def _kill(self, *kinds: str) -> bool:
        process = self._one(*kinds)
        if process is not None:
            process.die()
        return process is not None

    def _freeze(self, *kinds: str) -> bool:
        process = self._one(*kinds)
        if process is None or process.stopped:
            return False
        process.stop()
        self._world.agenda.after(self._random.expovariate(1 / 20.0), process.resume)
        return True

    def _freeze_and_kill(self) -> bool:
        """What workers say meanwhile is never read."""
        node = self._world.node
        if node is None or not node.process.alive or node.process.stopped:
            return False
        node.process.stop()

        def kill() -> None:
            if node.process.alive and node.process.stopped:
                self._world.crashed(node, Died(power=False))

        self._world.agenda.after(self._random.uniform(1.0, 20.0), kill)
        return True

    def _arm(self, power: bool) -> bool:
        if self._world.armed is not None:
            return False
        self._world.arm(self._random.randrange(40), power)
        return True

    def _cut(self) -> bool:
        node = self._world.node
        if node is None or not node.links:
            return False
        node.links[self._random.choice(list(node.links))].cut()
        return True

    def _silent(self) -> bool:
        node = self._world.node
        if node is None or not node.process.alive or not node.run_id:
            return False
        node.connect(Silent(self._world))
        return True

    def _foreign(self) -> bool:
        if len(self._world.processes.of("foreign")) >= 3:
            return False
        self._world.add_foreign()
        return True

    def _extended(self) -> bool:
        if len(self._world.processes.of("extended")) >= 2:
            return False
        self._world.add_extended()
        return True

    def _second_start(self) -> bool:
        node = self._world.node
        if node is None or not node.process.alive:
            return False
        self._world.start_node()
        return True

    # --- the machine --------------------------------------------------------------------------

    def _jump(self) -> bool:
        self._world.wall_offset += self._random.choice((-86400.0, -600.0, -5.0, 5.0, 600.0))
        return True

    def _fill_disk(self) -> bool:
        self._world.disk.room = self._random.randrange(400)
        self._world.agenda.after(self._random.expovariate(1 / 10.0), self._free_disk)
        return True

    def _break_command(self) -> bool:
        self._world.broken_until = self._world.agenda.now + self._random.expovariate(1 / 20.0)
        return True

    def _free_disk(self) -> None:
        self._world.disk.room = None

    # --- people -------------------------------------------------------------------------------

    def _command(self) -> bool:
        node = self._world.node
        if node is None or not node.process.alive or not node.run_id:
            return False
        choice, ticket = self._random.randrange(10), Ticket(1)
        worker = (f"W{self._random.randint(1, 8)}",)
        issues = self._world.tracker.issues
        blocked = [i for i, issue in issues.items() if issue.holding == Ownership(BLOCKED, "")]
        some = (IssueId(f"i{self._random.randrange(len(issues))}"),)
        quarantined = (IssueId(self._random.choice(blocked)),) if blocked else some
        asked: dict[int, ev.Event] = {
            0: ev.PauseAsked(ticket),
            1: ev.ResumeAsked(ticket),
            2: ScaleAsked(ticket, self._random.randint(0, 4)),
            3: ReleaseAskedFor(ticket, some),
            4: RetryAskedFor(ticket, some),
            5: RetryAskedFor(ticket, quarantined),
            6: ev.StopAsked(drain=True),
            7: ev.StopAsked(seconds=self._random.choice((0.0, 2.0, None))),
            8: ev.PauseAsked(ticket, worker),
        }
        if isinstance(event := asked.get(choice), ReleaseAskedFor | RetryAskedFor):
            self._world.check.given_back_by_hand(event.issue_ids)
        node.tell(event or WhyAsked(ticket))
        node.tell(ev.StatusWanted())
        if choice in (0, 8):
            self._world.agenda.after(15.0, lambda: node.tell(ev.ResumeAsked(ticket)))
        return True

    def _pause(self) -> bool:
        node = self._world.node
        if node is None or not node.process.alive or not node.links:
            return False
        named = [c.worker_id for c in node.core._parts.registry if c.worker_id]
        if not named:
            return False
        ticket, chosen = Ticket(1), (self._random.choice(named),)
        node.tell(ev.PauseAsked(ticket, chosen))
        seconds = self._random.choice((3.0, 15.0, 100.0))
        self._world.agenda.after(seconds, lambda: node.tell(ev.ResumeAsked(ticket, chosen)))
        return True

    def _edit(self) -> bool:
        issue = self._random.choice(list(self._world.tracker.issues.values()))
        held = self._random.choice(
            (
                FREE,
                Ownership(CLOSED, PERSON),
                Ownership(BLOCKED, ""),
                Ownership(IN_PROGRESS, PERSON),
            )
        )
        self._world.check.disturbed(issue.id)
        self._world.tracker.put(issue.id, held, PERSON)
        return True

    def _claim(self) -> bool:
        ready = self._world.tracker.ready(STRANGER)
        return bool(ready) and self._take(self._random.choice(ready).id)

    def _take(self, issue_id: str) -> bool:
        tracker = self._world.tracker
        if tracker.issues[issue_id].holding != FREE:
            return False
        tracker.put(issue_id, Ownership(IN_PROGRESS, STRANGER), STRANGER)
        self._work_as_stranger(issue_id)
        return True

    def _work_as_stranger(self, issue_id: str, *, by_force: bool = False) -> None:
        self._world.check.stranger_began(issue_id, by_force=by_force)
        self._world.agenda.after(
            self._random.expovariate(0.2), lambda: self._stranger_ends(issue_id)
        )

    def _stranger_ends(self, issue_id: str) -> None:
        self._world.check.stranger_over(issue_id)
        tracker = self._world.tracker
        if tracker.issues[issue_id].holding == Ownership(IN_PROGRESS, STRANGER):
            after = FREE if self._random.random() < 0.4 else Ownership(CLOSED, STRANGER)
            tracker.put(issue_id, after, STRANGER)


class Silent:
    """A peer that connects and never says a word."""

    def __init__(self, world: World) -> None:
        self.process = world.processes.start("silent")

    def heard(self, message: object) -> None:
        """It does not listen either."""

    def hung_up(self) -> None:
        """It was told to go."""
        self.process.die()
