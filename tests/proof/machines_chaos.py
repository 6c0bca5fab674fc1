"""One fleet on three hosts, while a seeded chain of faults goes on: each issue lands once.

    scripts/prove 'machines chaos'
    python -m tests.proof.machines_chaos [--issues N] [--seed N] [--keep] [--json]

Every second or two, until a tenth is left, a host is cut off or restarted, or a guard, relay, ssh,
line or step (once it has a lease) is killed; twice all of home, which is then started anew. At the
end each issue is closed, with one commit and one file; no two attempts of one were alive at once;
nothing is left at home or on a host, and no branch of an issue; nothing was charged. The folder of
a run that failed is kept.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof import machines_rig as rig
from tests.proof.machines_rig import Beat, Expected, Interrupted, World
from tests.support import processes
from tests.support.hosts import Hosts
from tests.support.repository import git

NAMES = ("n1", "n2", "n3")
ON = [f"ssh:{name}:4" for name in NAMES]
KINDS = {"cut": 3, "restart": 2, "guard": 4, "relay": 2, "ssh": 2, "line": 2, "step": 4}
STUCK_SECONDS = 330.0  # Without an issue that is closed; one is put off for 300 s at most.
SCRIPT = f"""\
say() {{
  read -r up rest </proc/uptime
  echo "$1 $BW_ISSUE_ID ${{BW_AWAY:-{rig.HOME}}} $(hostname) $$ $up" >>"$HOME/lives"
}}
say begin; n=$((${{BW_ISSUE_ID##*-}} % 9 + 2))
while [ "$n" -gt 0 ]; do sleep 0.1; say beat; n=$((n - 1)); done
echo "$BW_ISSUE_ID" >"f-$BW_ISSUE_ID.txt"; git add -A
git diff --cached --quiet || git commit --quiet -m "work on $BW_ISSUE_ID." || exit
say end
"""
"""0.2 to 1 s; the time is that since the boot of the machine, which all hosts share."""


class Chaos(World):
    """The project, and what is done to it."""

    def __init__(self, folder: Path, hosts: Hosts, issues: int, seed: int) -> None:
        super().__init__(folder, hosts, issues=issues)
        self._command = ["sh", "-c", SCRIPT]
        tables = "".join(f'[places.{name}]\nlease = "10s"\n' for name in NAMES)
        (self.project.folder / "beads-workers.toml").write_text(tables)
        self._booted = time.time() - float(Path("/proc/uptime").read_text().split()[0])
        self._chance = random.Random(seed)
        self._mend_at: dict[str, float] = {}
        self.faults = Counter[str]()

    def lines_of_tasks(self) -> list[list[str]]:
        """Return kind, issue, nonce, host, pid and time of each line that a task has written."""
        files = [home / "lives" for home in (self.home, *(host.home for host in self.hosts))]
        texts = [file.read_text() for file in files if file.exists()]
        return [line.split() for text in texts for line in text.splitlines()]

    def beats(self) -> list[Beat]:
        """Return them with the time of day, for the judge of all proofs of machines."""
        return [Beat(x[1], x[2], x[3], self._booted + float(x[5])) for x in self.lines_of_tasks()]

    def closed(self) -> int:
        """How many issues are."""
        return sum(state == "closed" for state, _ in self.project.read_all().values())

    def unfold(self) -> None:
        """Start the fleet, do harm until it has ended by itself, and let all hosts be reached."""
        self.start(*ON)
        done, progress_at, fault_at = 0, time.monotonic(), time.monotonic() + 3.0
        while self.starts[-1].process.poll() is None:
            now = time.monotonic()
            if (count := self.closed()) > done:
                done, progress_at = count, now
                sys.stderr.write(f"{done} of {len(self.issues)} issues ({dict(self.faults)})\n")
            assert now < progress_at + STUCK_SECONDS, f"stuck at {done} of {len(self.issues)}"
            self._mend(now)
            if (n := self.faults["home"]) < 2 and 3 * done > len(self.issues) * (n + 1):
                self._count("home", "")
                self.kill_home()
                rig.pause(self._chance.uniform(0.0, 4.0))
                self.start(*ON)
            elif now >= fault_at and 10 * done < 9 * len(self.issues) and self.journal("leased"):
                self._do(*self._chance.choices([*KINDS], [*KINDS.values()]))
                fault_at = time.monotonic() + self._chance.uniform(0.5, 2.5)
            rig.pause(0.1)
        self._mend(float("inf"))

    def _mend(self, now: float) -> None:
        for name in [name for name, at in self._mend_at.items() if at <= now]:
            del self._mend_at[name]
            self.hosts[name].mend()
            self.tell(f"{name} is reached again")

    def _do(self, kind: str) -> None:
        name = self._chance.choice(NAMES)
        if kind == "restart":
            self._count(kind, name)
            self.hosts[name].restart(quiet=self._chance.random() < 0.5)
        elif kind != "cut":
            if pids := self._pids(kind, name):
                pid = self._chance.choice(pids)
                self._count(kind, f"{pid} of {name}")
                processes.send([pid], signal.SIGKILL)
        elif name not in self._mend_at and len(self._mend_at) < 2:  # A start must reach one.
            seconds = self._chance.uniform(2.0, 20.0)
            self._count(kind, f"{name} for {seconds:.1f} s")
            self.hosts[name].cut()
            self._mend_at[name] = time.monotonic() + seconds

    def _pids(self, kind: str, name: str) -> list[int]:
        if kind == "guard":
            return [p for p in self.hosts[name].pids() if "serve" in processes.words(p)]
        if kind != "step":
            return {"relay": self.relays, "ssh": self.engines, "line": self.lines}[kind](name)
        placed = {each["request_id"] for each in self.journal("leased")}
        newest = {each["worker_id"]: each["request_id"] for each in self.journal("started")}
        busy = {worker for worker, request in newest.items() if request in placed}
        workers = {int(e["pid"]) for e in self.journal("worker_started") if e["worker_id"] in busy}
        return [pid for pid in self.at_home() if processes.parent(pid) in workers]

    def _count(self, kind: str, whom: str) -> None:
        self.faults[kind] += 1
        self.tell(f"FAULT {kind} {whom}")


def judged(world: Chaos) -> Iterator[str]:
    """Yield what does not hold once the last run has ended."""
    yield from rig.judged(world, Expected(again=frozenset(NAMES)))
    begun = Counter(nonce for kind, _, nonce, *_ in world.lines_of_tasks() if kind == "begin")
    yield from (f"attempt {each} was begun {n} times" for each, n in begun.items() if n > 1)
    folder = world.project.folder
    log = git(folder, "log", "--format=%B", "bw-landing/main")
    commits = Counter(re.findall(r"^work on (\S+)\.$", log, re.MULTILINE))
    files = set(git(folder, "ls-tree", "-r", "--name-only", "bw-landing/main").split())
    for issue in world.issues:
        if (commits[issue], is_there := f"f-{issue}.txt" in files) != (1, True):
            yield f"{issue} has {commits[issue]} commits; its file is there: {is_there}"
    if branches := git(folder, "for-each-ref", "--format=%(refname)", "refs/heads/bw/").split():
        yield f"branches are left: {', '.join(branches)}"


def run(folder: Path, issues: int, seed: int) -> dict[str, object]:
    """Return the figures; ``violations`` among them."""
    with Hosts(folder, len(NAMES)) as hosts:
        world, began = Chaos(folder, hosts, issues, seed), time.monotonic()
        try:
            world.unfold()
            world.broken += judged(world)
        except AssertionError as error:
            world.broken.append(f"{error}; it said: {world.starts[-1].said[-600:]}")
        finally:
            (folder / "story.txt").write_text(rig.evidence(world))
            world.close()
        leases = {nonce: str(each["issue_id"]) for nonce, each in world.leases().items()}
        attempts = len(rig.lives(world.beats(), leases, rig.watch().seen))
        figures = {"seed": seed, "seconds": round(time.monotonic() - began), "issues": issues}
        counts = {"closed": world.closed(), "starts": len(world.starts), "attempts": attempts}
        return figures | counts | {"by_kind": dict(world.faults), "violations": world.broken}


def main(arguments: list[str]) -> int:
    """Return 0 if all held; end early on SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.machines_chaos")
    for name, default in (("--issues", 200), ("--seed", 1)):
        parser.add_argument(name, type=int, default=default)
    for name in ("--keep", "--json"):
        parser.add_argument(name, action="store_true")
    said = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: rig.ENDING.set())
    folder = Path(tempfile.mkdtemp(prefix="beads-workers-machines-chaos-"))
    try:
        figures = run(folder, said.issues, said.seed)
    except (Interrupted, pytest.skip.Exception) as error:
        figures = {"violations": [f"{type(error).__name__}: {error}"]}
    has_failed = bool(figures["violations"])
    if (has_failed or said.keep) and not rig.ENDING.is_set():
        figures["folder"] = str(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.write(json.dumps(figures, indent=None if said.json else 1) + "\n")
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
