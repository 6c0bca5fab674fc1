"""A chaos while it runs: a fleet that is started again and again, and struck in between."""

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
from beads_workers.core.settings import FleetSettings
from beads_workers.exits import EXIT_TRACKER, EXIT_UNFINISHED
from beads_workers.runtime import sessions
from beads_workers.runtime.journal_file import read_journal

# --- targets -------------------------------------------------------------------------------------
# Who can be hit: the processes that this chaos has started, found by the token they inherit.
#
# Nothing is found by name or by number. A process is its pid together with its start time, and
# both are looked at again right before the signal.


VARIABLE = "BW_CHAOS"
"""Every process below us inherits it; its value belongs to this chaos alone."""

LANDERS = b"\0BW_WORKER_ID=lander\0"
"""In the environment of the lander, and of all that it starts: gates, and what runs in them."""

GONE_SECONDS = 10.0
"""Far above what the kernel needs to bury a killed process, unless its disk hangs."""
SWEEP_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class TargetProcess:
    """One process for good, and what it is to the fleet."""

    pid: int
    started: int
    target: Target | None
    name: str
    session: int

    def hit(self, number: int) -> bool:
        """Send it a signal; False when it is gone."""
        return sessions.kill(self.pid, self.started, number)


class Targets:
    """``everybody()`` and ``end_all()`` know nothing but this chaos' own processes."""

    def __init__(self) -> None:
        self._entry = f"{VARIABLE}={secrets.token_hex(8)}"
        os.environ[VARIABLE] = self._entry.partition("=")[2]

    def everybody(self, orchestrator: int = 0) -> list[TargetProcess]:
        """Whoever lives, in the order of pids; ``orchestrator`` is the pid of the one we know."""
        found = [_target_process(p, orchestrator) for p in sessions.with_variable(self._entry)]
        return sorted((process for process in found if process), key=lambda process: process.pid)

    def end_all(self) -> None:
        """KILL whatever is left, and wait until it is gone: what is dying still holds files."""
        limit = time.monotonic() + GONE_SECONDS
        while (left := self.everybody()) and time.monotonic() < limit:
            for process in left:
                process.hit(signal.SIGKILL)
            time.sleep(SWEEP_SECONDS)


def _target_process(process: sessions.Process, orchestrator: int) -> TargetProcess | None:
    try:
        with open(f"/proc/{process.pid}/comm") as file:
            name = file.read().strip()
        with open(f"/proc/{process.pid}/environ", "rb") as file:
            environment = b"\0" + file.read()
        is_lander = orchestrator and _parent(process.pid) == orchestrator
    except OSError:
        return None  # It has just ended.
    if LANDERS in environment:
        target: Target | None = Target.LANDER if is_lander else Target.GATE
    else:
        is_task = b"\0BW_ISSUE_ID=" in environment
        target = _target(process.pid, orchestrator, name, is_task)
    return TargetProcess(process.pid, process.started, target, name, process.session)


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def at_work(everybody: Collection[TargetProcess]) -> int:
    """How many workers run a task: what left its worker's session is none."""
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
# A chaos while it runs: a fleet that is started again and again, and struck in between.


MAX_ATTEMPTS = 3
RETRY_DELAY_SECONDS = 0.2
TERM_GRACE_SECONDS = 0.5
PATIENCE_SECONDS = 3.0
"""So long a blow waits for its kind of victim; then the orchestrator is hit in its place."""
LANDING_PATIENCE_SECONDS = 10.0
"""For the lander and its gates, which come only when some work is done."""
AT_WORK_SECONDS = 15.0
"""So long a blow waits for workers at work; at the end of a round there may be too few left."""
LOOK_SECONDS = 0.02
LOOK_SHARE = 5
"""So many times as long as a look took, it waits for the next one."""
IDLE_STARTS_MAX = 5
"""Starts in a row that ended by themselves, unhit, with work left over: there is no progress."""
RUN_SECONDS_MAX = 300.0
"""No run of these issues takes so long, unless it hangs."""


@dataclass(slots=True)
class KillTally:
    """What was done and seen so far."""

    kills: Counter[str] = field(default_factory=Counter)
    freezes: Counter[str] = field(default_factory=Counter)
    killed: set[int] = field(default_factory=set)
    """Every pid that was killed."""
    at_work: list[int] = field(default_factory=list)
    """At each blow, how many workers ran a task."""
    starts: int = 0
    rounds: int = 0
    issues: int = 0
    troubles: list[str] = field(default_factory=list)
    """What may never happen, whatever is killed."""


class Injector:
    """``run`` strikes every blow, and returns when everything is drained or nothing moves."""

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
        """``rows``: the issues of a round."""
        while self._next is not None and not self.tally.troubles:
            self.tally.rounds += 1
            round_rows = rows(self.tally.rounds)
            self.tally.issues += len(round_rows)
            self._workspace.tracker.add(plan.as_lines(round_rows))
            self._drain()
        self._read_journals(also_settled=True)
        return self.tally

    def _drain(self) -> None:
        """Start after start, until nothing is left to do."""
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
        # What is done and blocked waits for the next start to land it.
        waits = [i for i, s in statuses.items() if s == "blocked" and self.account.lives[i].done]
        return [*_unfinished(statuses), *waits]

    def _one_start(self) -> bool:
        """From a start to the end of that orchestrator; whether it died by our hand."""
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
        """Of runs that are settled: nobody adds to them, and later starts may remove them.

        ``also_settled``: and of all others.
        """
        for run_id in self._workspace.state.run_ids():
            if run_id in self._read:
                continue
            entries = list(read_journal(self._workspace.state.run(run_id) / "journal.jsonl"))
            if entries and not also_settled and not self._workspace.state.is_settled(run_id):
                return  # Those after it wait, too: they are read in their order.
            self._read.add(run_id)
            self.account.read(run_id, entries)

    def _until_its_end(self, launch: Launch) -> None:
        pidfd = os.pidfd_open(launch.pid)
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
            # On a machine with thousands of processes a look alone takes long.
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
            return False  # It has just ended by itself: the next look finds another.
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
    """As ``start --until-empty`` has them there; the environment has no say.

    ``self_claiming``: each worker claims and closes by itself (``--bd-calls worker``).
    """
    from beads_workers.cli.config import resolve
    from beads_workers.cli.preparation import prepare
    from beads_workers.options import TRUST_ALL, Options

    said = Options(
        workers=workers,
        source=source,
        bd_calls="worker" if self_claiming else None,
        until_empty=True,
        max_attempts=MAX_ATTEMPTS,
        retry_delay=RETRY_DELAY_SECONDS,
        term_grace=TERM_GRACE_SECONDS,
        poll=0.5,
        command=(sys.executable, "-I", "-S", str(TASK), str(workspace.folder)),
        worktree=True if workspace.landing else None,
        trust=TRUST_ALL,
        verify=shlex.join([sys.executable, "-I", "-S", str(GATE), str(workspace.folder)])
        if workspace.landing
        else None,
    )
    return prepare(resolve(said, workspace.project, {}), (), owned=True)


TASK = Path(__file__).with_name("task.py")
GATE = Path(__file__).with_name("gate.py")


def _unfinished(statuses: dict[str, str]) -> list[str]:
    return [i for i, status in statuses.items() if status not in ("closed", "blocked")]
