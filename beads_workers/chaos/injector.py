"""A running chaos: a fleet that is started again and again, and struck in between."""

from __future__ import annotations

import heapq
import os
import re
import secrets
import select
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from beads_workers.chaos import plan
from beads_workers.chaos.account import ChaosAccount
from beads_workers.chaos.plan import Blow, Target
from beads_workers.chaos.workspace import ChaosWorkspace
from beads_workers.cli.launch import Launch
from beads_workers.core.base.settings import FleetSettings
from beads_workers.exits import EXIT_TRACKER, EXIT_UNFINISHED
from beads_workers.runtime import sessions
from beads_workers.runtime.journal_file import read_journal
from beads_workers.runtime.kernel import system

# --- targets -------------------------------------------------------------------------------------
# Possible victims: the processes that this chaos has started, found by an inherited token.
#
# No process is found by name or number. A process is identified by pid and start time, and both are
# checked again right before the signal.


VARIABLE = "BW_CHAOS"
"""Environment variable that every process below us inherits; its value is unique to this chaos."""

LANDERS = b"\0BW_WORKER_ID=lander\0"
"""Entry in the environment of the lander and of all it starts: gates, and their processes."""

GONE_SECONDS = 10.0
"""Time for killed processes to be gone: far more than the kernel needs, unless its disk hangs."""
SWEEP_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class TargetProcess:
    """One process, identified for good, and its role in the fleet."""

    pid: int
    started: int
    target: Target | None
    name: str
    session: int

    def hit(self, number: int) -> bool:
        """Send the process a signal; return False if it is gone."""
        return sessions.kill(self.pid, self.started, number)


class Targets:
    """The processes of this chaos. ``everybody()`` and ``end_all()`` know no others."""

    def __init__(self) -> None:
        self._entry = f"{VARIABLE}={secrets.token_hex(8)}"
        os.environ[VARIABLE] = self._entry.partition("=")[2]

    def everybody(self, orchestrator: int = 0) -> list[TargetProcess]:
        """Return the living processes by pid; ``orchestrator``: pid of the current orchestrator."""
        found = [_target_process(p, orchestrator) for p in sessions.with_variable(self._entry)]
        return sorted((process for process in found if process), key=lambda process: process.pid)

    def end_all(self) -> None:
        """KILL all processes that are left, and wait until they are gone: dying ones still hold
        files."""
        limit = time.monotonic() + GONE_SECONDS
        while (left := self.everybody()) and time.monotonic() < limit:
            for process in left:
                process.hit(signal.SIGKILL)
            time.sleep(SWEEP_SECONDS)


def _target_process(process: sessions.Process, orchestrator: int) -> TargetProcess | None:
    try:
        name = system.name_of(process.pid)
        environment = b"\0" + b"\0".join(system.environment_of(process.pid))
        is_lander = orchestrator and _parent(process.pid) == orchestrator
    except OSError:
        return None  # The process has just ended.
    if LANDERS in environment:
        target: Target | None = Target.LANDER if is_lander else Target.GATE
    else:
        is_task = b"\0BW_ISSUE_ID=" in environment
        target = _target(process.pid, orchestrator, name, is_task)
    return TargetProcess(process.pid, process.started, target, name, process.session)


def _parent(pid: int) -> int:
    stat = system.stat_of(pid)
    return stat.parent if stat is not None else 0


def at_work(everybody: Collection[TargetProcess]) -> int:
    """Return how many workers run a task; tasks outside the session of a worker do not count."""
    workers = {process.pid for process in everybody if process.target is Target.WORKER}
    return len({p.session for p in everybody if p.target is Target.TASK} & workers)


def _target(pid: int, orchestrator: int, name: str, is_task: bool) -> Target | None:
    if pid == orchestrator:
        return Target.ORCHESTRATOR
    if is_task:
        return Target.TASK
    if name == "bw-zygote":
        return Target.ZYGOTE
    if re.fullmatch(r"bw-W\d+", name):
        return Target.WORKER
    return Target.BD if name == "bd" else None


# --- injector ------------------------------------------------------------------------------------
# A running chaos: a fleet that is started again and again, and struck in between.


MAX_ATTEMPTS = 3
RETRY_DELAY_SECONDS = 0.2
TERM_GRACE_SECONDS = 0.5
PATIENCE_SECONDS = 3.0
"""Time that a blow waits for its kind of victim; then the orchestrator is hit instead."""
LANDING_PATIENCE_SECONDS = 10.0
"""The same for the lander and its gates, which only run once some work is done."""
AT_WORK_SECONDS = 15.0
"""Time that a blow waits for workers at work; at the end of a round there may be too few."""
LOOK_SECONDS = 0.02
LOOK_SHARE = 5
"""Pause between two looks at the processes, as a multiple of the time that a look takes."""
IDLE_STARTS_MAX = 5
"""Most starts in a row that end unhit with work left over; beyond that there is no progress."""
RUN_SECONDS_MAX = 300.0
"""Longest run: a longer one hangs."""


@dataclass(slots=True)
class KillTally:
    """Counts of what was done and seen so far."""

    kills: Counter[str] = field(default_factory=Counter)
    freezes: Counter[str] = field(default_factory=Counter)
    killed: set[int] = field(default_factory=set)
    """Every pid that was killed."""
    at_work: list[int] = field(default_factory=list)
    """Number of workers that ran a task, at each blow."""
    starts: int = 0
    rounds: int = 0
    issues: int = 0
    troubles: list[str] = field(default_factory=list)
    """Events that must never happen, whatever is killed."""


class Injector:
    """``run`` strikes all blows, and returns once all issues are drained or nothing moves."""

    def __init__(
        self,
        workspace: ChaosWorkspace,
        targets: Targets,
        settings: Callable[[], FleetSettings],
        blows: Iterable[Blow],
        report: Callable[[KillTally], None],
    ) -> None:
        self._workspace = workspace
        self._targets = targets
        self._settings = settings
        self._blows: Iterator[Blow] = iter(blows)
        self._report = report
        self._next = next(self._blows, None)
        self._due = self._waits_since = 0.0
        self._thaws: list[tuple[float, int, TargetProcess]] = []
        self.tally = KillTally()
        self.account = ChaosAccount(self.tally.killed, MAX_ATTEMPTS)
        self._read: set[str] = set()

    def run(self, rows: Callable[[int], list[dict[str, object]]]) -> KillTally:
        """Strike all blows; return the tally. ``rows``: makes the issues of a round."""
        while self._next is not None and not self.tally.troubles:
            self.tally.rounds += 1
            round_rows = rows(self.tally.rounds)
            self.tally.issues += len(round_rows)
            self._workspace.tracker.add(plan.as_lines(round_rows))
            self._drain()
        self._read_journals(also_settled=True)
        return self.tally

    def _drain(self) -> None:
        """Start the orchestrator again and again until no work is left."""
        idle = 0
        while idle < IDLE_STARTS_MAX:
            struck = sum(self.tally.kills.values())
            died = self._one_start()
            if died or sum(self.tally.kills.values()) > struck:
                idle = 0
            else:
                idle += 1
            if self.tally.troubles:
                return
            if not died and not self._unfinished():
                return
        left = ", ".join(self._unfinished()[:5])
        self.tally.troubles.append(f"{IDLE_STARTS_MAX} starts in a row did not finish {left}")

    def _unfinished(self) -> list[str]:
        statuses = self._workspace.tracker.statuses()
        if not self._workspace.landing:
            return _unfinished(statuses)
        # Finished issues that are blocked wait for the next start to land them.
        waits = [i for i, s in statuses.items() if s == "blocked" and self.account.lives[i].done]
        return [*_unfinished(statuses), *waits]

    def _one_start(self) -> bool:
        """Start an orchestrator, and wait for its end; return whether we killed it."""
        self.tally.starts += 1
        bd_kills = self.tally.kills[Target.BD.value]
        self._await_next()
        launch = Launch()
        with closing(launch.client):
            launch.send(self._settings())
            self._until_its_end(launch)
        self._thaw_all()
        _, status = os.waitpid(launch.pid, 0)
        self._read_journals()
        died = launch.pid in self.tally.killed
        code = os.waitstatus_to_exitcode(status)
        # A start whose check of the tracker was killed is refused; it has done nothing.
        refused = code == EXIT_TRACKER and self.tally.kills[Target.BD.value] > bd_kills
        if not died and not refused and code not in (0, EXIT_UNFINISHED):
            self.tally.troubles.append(f"the orchestrator (pid {launch.pid}) ended with {code}")
        return died

    def _read_journals(self, *, also_settled: bool = False) -> None:
        """Read the journals of settled runs: they are complete, and later starts may remove them.

        ``also_settled``: read those of all other runs, too.
        """
        for run_id in self._workspace.state.run_ids():
            if run_id in self._read:
                continue
            entries = list(read_journal(self._workspace.state.run(run_id) / "journal.jsonl"))
            if entries and not also_settled and not self._workspace.state.is_settled(run_id):
                return  # The journals are read in order: later runs wait, too.
            self._read.add(run_id)
            self.account.read(run_id, entries)

    def _until_its_end(self, launch: Launch) -> None:
        pidfd = system.exit_descriptor(launch.pid)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(launch.client, select.POLLIN)
        limit = time.monotonic() + RUN_SECONDS_MAX
        try:
            while time.monotonic() < limit:
                ready = dict(poll.poll(self._patience() * 1000))
                if pidfd in ready:
                    return
                if ready and launch.client.receive()[1]:
                    poll.unregister(launch.client)
                self._thaw()
                self._strike(launch.pid)
            self.tally.troubles.append(f"a run hung for {RUN_SECONDS_MAX:.0f} s")
            self._targets.end_all()
        finally:
            os.close(pidfd)

    def _patience(self) -> float:
        now = time.monotonic()
        moments = [now + 1.0, *(at for at, _, _ in self._thaws[:1])]
        if self._next is not None:
            moments.append(max(self._due, now + LOOK_SECONDS))
        return max(0.0, min(moments) - now)

    # --- blows --------------------------------------------------------------------------------

    def _strike(self, orchestrator: int) -> None:
        if (blow := self._next) is None or (now := time.monotonic()) < self._due:
            return
        everybody = self._targets.everybody(orchestrator)
        running = at_work(everybody)
        if running < blow.at_work and now < self._waits_since + AT_WORK_SECONDS:
            # With thousands of processes, a look at them takes long.
            looked_seconds = time.monotonic() - now
            self._due = now + max(blow.wait_seconds, LOOK_SECONDS, LOOK_SHARE * looked_seconds)
            return
        lands = blow.target in (Target.LANDER, Target.GATE)
        patience = LANDING_PATIENCE_SECONDS if lands else PATIENCE_SECONDS
        hit = self._victims(blow, everybody, patient=now < self._due + patience)
        if hit and self._strike_at(blow, hit):
            self.tally.at_work.append(running)
            self._next = next(self._blows, None)
            self._await_next()
            self._report(self.tally)

    def _await_next(self) -> None:
        self._waits_since = time.monotonic()
        self._due = self._waits_since + (self._next.wait_seconds if self._next else 0.0)

    def _victims(
        self, blow: Blow, everybody: list[TargetProcess], *, patient: bool
    ) -> list[TargetProcess]:
        if blow.target is Target.EVERYTHING:
            return everybody
        hit = [process for process in everybody if process.target is blow.target]
        if not hit and not patient:
            hit = [process for process in everybody if process.target is Target.ORCHESTRATOR]
        return [hit[min(int(blow.pick * len(hit)), len(hit) - 1)]] if hit else []

    def _strike_at(self, blow: Blow, hit: list[TargetProcess]) -> bool:
        number = signal.SIGSTOP if blow.freeze_seconds else signal.SIGKILL
        struck = [process for process in hit if process.hit(number)]
        if not struck:
            return False  # The victim has just ended by itself: the next look finds another.
        everything = blow.target is Target.EVERYTHING
        target = blow.target if everything else struck[0].target or blow.target
        if blow.freeze_seconds:
            self.tally.freezes[target.value] += 1
            at = time.monotonic() + blow.freeze_seconds
            heapq.heappush(self._thaws, (at, struck[0].pid, struck[0]))
        else:
            self.tally.kills[target.value] += 1
            self.tally.killed.update(process.pid for process in struck)
        return True

    def _thaw(self) -> None:
        while self._thaws and self._thaws[0][0] <= time.monotonic():
            heapq.heappop(self._thaws)[2].hit(signal.SIGCONT)

    def _thaw_all(self) -> None:
        for _, _, process in self._thaws:
            process.hit(signal.SIGCONT)
        self._thaws.clear()


def fleet_settings(
    workspace: ChaosWorkspace, source: str, workers: int, *, self_claiming: bool
) -> FleetSettings:
    """Return the settings of ``start --until-empty`` there, independent of the environment.

    ``self_claiming``: workers claim and close issues themselves (``--bd-calls worker``).
    """
    from beads_workers.cli.config import resolve
    from beads_workers.cli.preparation import prepare
    from beads_workers.options import TRUST_ALL

    script = [sys.executable, "-I", "-S"]
    options: dict[str, object] = {
        "workers": workers,
        "source": source,
        "bd_calls": "worker" if self_claiming else "grouped",
        "until_empty": True,
        "max_attempts": MAX_ATTEMPTS,
        "retry_delay": RETRY_DELAY_SECONDS,
        "term_grace": TERM_GRACE_SECONDS,
        "poll": 0.5,
        "command": (*script, str(TASK), str(workspace.folder)),
        "trust": TRUST_ALL,
    }
    if workspace.landing:
        gate = shlex.join([*script, str(GATE), str(workspace.folder)])
        options |= {"worktree": True, "verify": gate}
    return prepare(resolve(options, workspace.project, {}), (), owned=True)


TASK = Path(__file__).with_name("task.py")
GATE = Path(__file__).with_name("gate.py")


def _unfinished(statuses: dict[str, str]) -> list[str]:
    return [i for i, status in statuses.items() if status not in ("closed", "blocked")]
