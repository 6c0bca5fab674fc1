"""The proof of workers that others started: a mixed fleet, and what befalls each of its workers.

    python -m tests.proof.workers --tracker 1.3.0 [--cases N] [--json] [--progress]

A case is a worker, an injury and a tracker. All cases of one injury are tried in one fleet: each
victim has an issue in hand when it is struck. One more worker is one more row of ``WORKERS``, one
more injury one more row of ``INJURIES``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from beads_workers.runtime import sessions
from tests.end_to_end.test_draining import backlog, blockers_of
from tests.proof.hands import SCRIPT, Hand, Log, Loss, not_once, out_of_order, too_early
from tests.proof.injured import NEVER, WORKERS, Victim, Worker, slowed
from tests.support.bd import NEW, OLD, BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, until

EMBEDDED = "embedded"
TRACKERS = (EMBEDDED, OLD, NEW)
ISSUES = 60
GRACE = 3.0
MARGIN = 20.0
"""On top of what is promised: until an issue is open, found, claimed and begun on a busy machine.
A start of ``bd`` 1.3.0 takes half of it."""
LEAVE_SECONDS = 10.0
LOOK_SECONDS = 0.05
DRAIN_SECONDS = 300.0


class Trial:
    """A fleet with a backlog behind a gate, and its victims. ``broken``: what each was found at."""

    def __init__(self, folder: Path, tracker: str, workers: Sequence[Worker], injury: Injury):
        folder.mkdir()
        is_bd = tracker != EMBEDDED
        self.project: Any = BdProject(folder, tracker) if is_bd else EmbeddedProject(folder)
        self.injury = injury
        self.victims = [Victim(worker) for worker in workers]
        self.foreign = [victim for victim in self.victims if not victim.is_ours]
        self.rows = backlog(injury.issues or 2 * len(self.victims))
        self.ids = [str(i) for i in self.project.create_many(self.rows)]
        self.fleets: list[Fleet] = []
        self.broken: dict[str, list[str]] = {worker.name: [] for worker in workers}
        self.seconds: dict[str, float] = {}
        """From the injury until its issue was in other hands."""
        self.struck = 0.0
        self._hands = folder / "hands"
        self._hands.mkdir()
        (self._hands / "log").touch()
        (self._hands / "task.sh").write_text(SCRIPT)
        self._command = ("sh", str(self._hands / "task.sh"))
        self._variables = {"HANDS": str(self._hands)}
        self._joined: list[Victim] = []

    # --- steps --------------------------------------------------------------------------------

    def run(self) -> None:
        """To the last issue; what came in between is in ``broken``."""
        try:
            self.injury.run(self)
            self.judge()
        except Exception as error:  # Whatever it is, it is told, and the other trials go on.
            traceback.print_exc()
            self.all_broken(f"{type(error).__name__}: {str(error)[:300]}")
        finally:
            for victim in self._joined:
                victim.end()
            for fleet in self.fleets:
                fleet.end()

    @property
    def fleet(self) -> Fleet:
        """The newest one."""
        return self.fleets[-1]

    def start(self, ours: int) -> None:
        """An orchestrator with so many workers of its own."""
        grace = "never" if self.injury.grace is None else f"{self.injury.grace}s"
        options = ("-n", str(ours), "--orphan-grace", grace, "--retry-delay", "0.1s")
        options += ("--max-attempts", "9", "--", *self._command)
        fleet = Fleet(self.project, *options, environment=self._variables)
        self.fleets.append(fleet)
        fleet.started()

    def join(self, victims: Sequence[Victim]) -> None:
        """These connect to it."""
        for victim in victims:
            victim.join(self.fleet, self.project, self._command, **self._variables)
            self._joined.append(victim)

    def begin(self) -> None:
        """Each victim has an issue in hand, of which nobody opens the gate."""
        self.start(len(self.victims) - len(self.foreign))
        self.join(self.foreign)
        until(lambda: len(self.log().hands) == len(self.victims), what="nobody took an issue")
        known = {victim.mark for victim in self.foreign}
        found = {hand.worker: hand for hand in self.log().hands}
        for victim in self.victims:
            if victim.is_ours:
                (victim.mark,) = found.keys() - known
            victim.issue_id = found[victim.mark].issue_id
        self.struck = time.time()

    def helpers(self) -> None:
        """Healthy workers of ours, as many as there may be issues that are ready."""
        assert self.fleet.call("scale", str(len(self.rows))).returncode == 0

    def each(self, do: Callable[[Victim], None]) -> None:
        """Do it to all victims."""
        for victim in self.victims:
            do(victim)

    def crash(self) -> None:
        """The orchestrator is killed."""
        os.kill(self.fleet.pid, signal.SIGKILL)
        self.fleet.wait()

    def open_gate(self) -> None:
        """What is in hand is done, and all that is left after it."""
        (self._hands / "gate").touch()
        until(lambda: self.log().done().keys() == set(self.ids), DRAIN_SECONDS, "it stands still")
        until(lambda: {s for s, _ in self.project.read_all().values()} == {"closed"})

    def log(self) -> Log:
        """What the tasks have written so far, without half a line."""
        text = (self._hands / "log").read_text()
        return Log.read(text[: text.rfind("\n") + 1])

    # --- what is promised ---------------------------------------------------------------------

    def moves(self, victims: Sequence[Victim], since: float, after: float = 0.0) -> None:
        """Each one's issue is in other hands, ``after`` so many seconds and some more."""
        for victim in victims:
            limit = after + MARGIN
            if not came_true(partial(self._next, victim), since + limit - time.time()):
                self.broken[victim.worker.name].append(f"stranded for {limit:.0f} s")
                continue
            began = self._next(victim)[0].began
            seconds = began - (since if since < began else self.struck)
            self.seconds.setdefault(victim.worker.name, seconds)

    def stays(self, victims: Sequence[Victim], seconds: float = 0.0) -> None:
        """For so long nobody else gets their issues."""
        time.sleep(seconds)
        for victim in victims:
            if self._next(victim):
                self.broken[victim.worker.name].append("its issue was handed on")

    def wakes(self, loses: Sequence[Victim]) -> float:
        """All are thawed; when. Those that have lost their issue find out, and end their task."""
        woken = time.time()
        self.each(Victim.thaw)
        for victim in loses:
            task = self.log().of(victim.issue_id)[0].pid
            if not came_true(partial(_is_gone, task), LEAVE_SECONDS):
                self.broken[victim.worker.name].append("its task goes on")
        return woken

    def _next(self, victim: Victim) -> list[Hand]:
        return self.log().of(victim.issue_id)[1:]

    def all_broken(self, why: str) -> None:
        """Nobody can say whose fault it is."""
        for found in self.broken.values():
            found.append(why)

    def judge(self) -> None:
        """The fleet ends, and what is promised of every fleet is compared with what is on file."""
        assert self.fleet.call("stop").returncode == 0, self.fleet.said()
        for victim in self._joined:
            assert victim.process is not None
            victim.process.wait(30)
        self.fleet.leaves_nothing()
        log, records = self.log(), [r for fleet in self.fleets for r in fleet.journal()]
        losses = [
            Loss(r["issue_id"], r["t"], r.get("told_to_stop", False))
            for r in records
            if r["e"] in ("owner_lost", "inherited")
        ]
        strangers = {victim.mark for victim in self._joined}
        for hand, what in too_early(log, losses, strangers, self.injury.grace):
            names = [v.worker.name for v in self.victims if v.issue_id == hand.issue_id]
            for name in names or self.broken:
                self.broken[name].append(what)
        statuses = {str(i): status for i, (status, _) in self.project.read_all().items()}
        blockers = blockers_of(self.rows)
        for what in (*not_once(log, statuses), *out_of_order(log, blockers)):
            self.all_broken(what)
        if not self.injury.loses and losses:
            self.all_broken(f"lost were {', '.join(loss.issue_id for loss in losses)}")


def came_true(holds: Callable[[], object], seconds: float) -> bool:
    """Whether it does within the time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _is_gone(pid: int) -> bool:
    return sessions.start_time(pid) is None


# --- what befalls them ---------------------------------------------------------------------------


def drain(trial: Trial) -> None:
    """Nothing: all of them drain a backlog together."""
    trial.begin()
    trial.open_gate()


def killed(trial: Trial) -> None:
    trial.begin()
    time.sleep(random.random() * PAUSE_SECONDS)
    trial.each(Victim.kill)
    trial.helpers()
    trial.moves(trial.victims, trial.struck)
    trial.open_gate()


def frozen(trial: Trial) -> None:
    """A worker that announced heartbeats counts as lost; any other may be silent."""
    trial.begin()
    trial.each(Victim.freeze)
    trial.helpers()
    for victim in sorted(trial.victims, key=lambda victim: victim.worker.silence):
        if victim.worker.silence < NEVER:
            trial.moves([victim], trial.struck, victim.worker.silence + GRACE)
    silent = [victim for victim in trial.victims if victim.worker.silence == NEVER]
    trial.stays(silent, 2 * GRACE)
    trial.wakes([victim for victim in trial.victims if victim not in silent])
    trial.open_gate()


def cut_off(trial: Trial) -> None:
    trial.begin()
    trial.each(lambda victim: victim.cut(trial.fleet.socket))
    trial.helpers()
    trial.moves(trial.victims, trial.struck)
    trial.open_gate()


def cut_off_unaware(trial: Trial) -> None:
    """Also frozen: it cannot end its task."""
    trial.begin()
    trial.each(Victim.freeze)
    trial.each(lambda victim: victim.cut(trial.fleet.socket))
    trial.helpers()
    _unaware(trial)


def _unaware(trial: Trial) -> None:
    """The connection is gone, the process stands still: the grace decides, where there is one."""
    if trial.injury.grace is not None:
        trial.moves(trial.foreign, trial.struck, trial.injury.grace)
    else:
        trial.stays(trial.foreign, 3 * GRACE)
    trial.moves(trial.victims, trial.wakes(trial.victims))
    trial.open_gate()


def slow_to_read(trial: Trial) -> None:
    trial.begin()
    with slowed(trial.victims):
        trial.open_gate()


def restarted(trial: Trial) -> None:
    """Its orchestrator is killed; it ends its task, exits, and is started for the next one."""
    trial.begin()
    trial.crash()
    for victim in trial.foreign:
        assert victim.process is not None
        if (status := victim.process.wait(30)) != 1:
            trial.broken[victim.worker.name].append(f"exit status {status} without orchestrator")
    trial.start(len(trial.rows))
    trial.join([Victim(victim.worker) for victim in trial.foreign])
    trial.moves(trial.victims, time.time())
    trial.open_gate()


def orphaned(trial: Trial) -> None:
    """Frozen while its orchestrator is killed: the next one inherits its issue."""
    trial.begin()
    trial.each(Victim.freeze)
    trial.crash()
    trial.start(len(trial.rows))
    trial.struck = time.time()
    _unaware(trial)


def told_to_stop(trial: Trial) -> None:
    """It takes no notice of SHUTDOWN: named, it keeps its issue until its process is gone."""
    trial.begin()
    trial.each(Victim.freeze)
    stop = trial.fleet.call("stop", "--timeout", "2", "--json")
    stayed = {row["issue_id"]: row["pid"] for row in json.loads(stop.stdout)["stayed"]}
    for victim in trial.foreign:
        if stayed.pop(victim.issue_id, 0) not in victim.pids:
            trial.broken[victim.worker.name].append("stop does not name it")
    if stayed or stop.returncode != bool(trial.foreign):
        trial.all_broken(f"stop exits {stop.returncode}, and names {stayed}")
    trial.fleet.wait()
    trial.start(len(trial.rows))
    trial.stays(trial.foreign, 3 * GRACE)
    trial.moves(trial.victims, trial.wakes(trial.victims))
    trial.open_gate()


@dataclass(frozen=True, slots=True)
class Injury:
    """``grace``: in seconds, None for ``--orphan-grace never``; ``loses``: a worker may be lost;
    ``issues``: so many, in place of two for each victim."""

    name: str
    run: Callable[[Trial], None]
    grace: float | None = GRACE
    loses: bool = True
    issues: int = 0


INJURIES = (
    Injury("none", drain, loses=False, issues=ISSUES),
    Injury("killed", killed),
    Injury("killed, grace never", killed, grace=None),
    Injury("frozen", frozen),
    Injury("cut off", cut_off),
    Injury("cut off and frozen", cut_off_unaware),
    Injury("cut off and frozen, grace never", cut_off_unaware, grace=None),
    Injury("slow to read", slow_to_read, loses=False),
    Injury("restarted under a killed orchestrator", restarted),
    Injury("frozen under a killed orchestrator", orphaned),
    Injury("frozen under a killed orchestrator, grace never", orphaned, grace=None),
    Injury("ignores SHUTDOWN", told_to_stop),
)
CASES = [(injury, worker) for injury in INJURIES for worker in WORKERS]
PAUSE_SECONDS = 0.5
"""At most so long after its task has begun a worker is killed."""


@dataclass(slots=True)
class Account:
    """What all trials came to."""

    tracker: str
    cases: int = 0
    starts: int = 0
    issues: int = 0
    closed: int = 0
    quarantined: int = 0
    promises: list[dict[str, Any]] = field(default_factory=list)

    def add(self, trial: Trial) -> None:
        """A trial that has ended."""
        self.cases += len(trial.victims)
        self.starts += len(trial.fleets)
        self.issues += len(trial.ids)
        self.closed += len(trial.log().done())
        for name, broken in trial.broken.items():
            text = f"{name}, {trial.injury.name}, {self.tracker}"
            seconds = round(trial.seconds[name], 1) if name in trial.seconds else None
            self.promises.append({"text": text, "broken": broken, "seconds": seconds})

    @property
    def is_broken(self) -> bool:
        return any(promise["broken"] for promise in self.promises)


def main(arguments: list[str]) -> int:
    """0 when all held."""
    said = _parsed(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    order = random.Random(1).sample(CASES, len(CASES))[: said.cases]
    wanted = tuple(said.only or [""])
    chosen = [case for case in CASES if case in order and case[0].name.startswith(wanted)]
    folder = Path(tempfile.mkdtemp(prefix="beads-workers-proof-"))
    account = Account(said.tracker)
    try:
        for injury in [*dict.fromkeys(injury for injury, _ in chosen)] * said.again:
            workers = [worker for each, worker in chosen if each is injury]
            if said.progress:
                broken = " BROKEN" if account.is_broken else ""
                done = f"{account.cases} of {len(chosen) * said.again} cases"
                print(f"{done} ({said.tracker}, {injury.name}){broken}", file=sys.stderr)
            trial = Trial(folder / f"trial-{account.cases}", said.tracker, workers, injury)
            trial.run()
            account.add(trial)
    finally:
        if said.keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if said.json:
        print(json.dumps({name: getattr(account, name) for name in Account.__slots__}))
    else:
        print(f"| case | in other hands after | broken |\n|---|---|---|\n{_rows(account)}")
    return 1 if account.is_broken else 0


def _rows(account: Account) -> str:
    return "\n".join(
        f"| {p['text']} | {'' if p['seconds'] is None else p['seconds']} |"
        f" {'; '.join(p['broken']) or 'nothing'} |"
        for p in account.promises
    )


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.workers", description=__doc__)
    add = parser.add_argument
    add("--tracker", choices=TRACKERS, default=EMBEDDED)
    add("--cases", type=int, default=len(CASES), help=f"so many of the {len(CASES)}")
    add("--only", action="append", help="injuries whose name begins so; may be repeated")
    add("--again", type=int, default=1, help="so often")
    add("--keep", action="store_true", help="keep the projects and their journals")
    add("--json", action="store_true")
    add("--progress", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
