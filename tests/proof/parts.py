"""What ``scripts/prove`` runs: each a command that prints one JSON object."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.proof.forge import KILLS, RACES
from tests.proof.machines import CASES as MACHINES_CASES
from tests.proof.needs import KINDS
from tests.proof.odd_starts import cases as odd_starts
from tests.proof.persons import CASES as PERSONS_CASES
from tests.proof.proposals import PROJECTS
from tests.proof.pulls import CALLS as PULL_CALLS
from tests.proof.pulls import KILLS as PULL_KILLS
from tests.proof.queues import CASES
from tests.proof.sees import LAYOUTS
from tests.proof.submodules import CASES as SUBMODULE_CASES
from tests.proof.trust import CASES as TRUST_CASES
from tests.proof.waits import CASES as WAITS_CASES
from tests.proof.whose import CASES as WHOSE_CASES
from tests.support.bd import NEW, OLD, bd_environment
from tests.support.hostile_git import cases as hostile_settings

ROOT = Path(__file__).resolve().parents[2]
LEAST = 5
"""However small the share: so much of each."""
FILLS_AT = 10
"""How nice those are that take what the others leave of the processor."""


@dataclass(frozen=True, slots=True)
class Part:
    """``argv`` with ``{size}`` in it; ``bd``: the version that is to be on PATH.

    ``seconds``: of one core, at full size; measured, and only for saying how far all of it is.
    ``fills``: it does nothing but compute, on every core, so it runs beside those that also wait.
    """

    name: str
    what: str
    full: int
    argv: tuple[str, ...]
    seconds: float
    bd: str = ""
    fills: bool = False

    def size(self, share: int) -> int:
        """How much of it, where a ``share``-th of everything is asked for."""
        return self.full if share == 1 else max(LEAST, self.full // share)

    def command(self, share: int) -> list[str]:
        """Ready to be run in the checkout."""
        nice = ["nice", "-n", str(FILLS_AT)] if self.fills else []
        return [*nice, *(word.replace("{size}", str(self.size(share))) for word in self.argv)]

    def environment(self) -> dict[str, str]:
        """With that ``bd``, and nothing of the user's."""
        return bd_environment(self.bd) if self.bd else dict(os.environ)


CHAOS = (sys.executable, "-P", "-m", "beads_workers", "chaos", "--json", "--progress")


def chaos(name: str, kills: int, seed: int, each: float, *more: str, bd: str = "") -> Part:
    """Kills with real processes, ``each`` so many seconds of a core."""
    source = ("--source", "bd") if bd else ()
    argv = (*CHAOS, "--kills", "{size}", "--seed", str(seed), *source, *more)
    return Part(name, "kills", kills, argv, kills * each, bd)


def workers(tracker: str, seconds: float) -> Part:
    """What befalls workers that others have started; ``seconds``: it mostly waits."""
    return Part("workers", "cases", 84, (*WORKERS, "--tracker", tracker), seconds)


def injected(tracker: str, cases: int, each: float) -> Part:
    """Errors of system calls, ``each`` so many seconds of a core."""
    return Part("faults", "errors", cases, (*INJECTING, "--tracker", tracker), cases * each)


def script(name: str, what: str, option: str, seconds: float) -> Part:
    """A script of this checkout."""
    argv = (str(ROOT / "scripts" / name), option, "{size}", "--json", "--progress")
    return Part(name, what, 1_000_000, argv, seconds, fills=True)


ROOMS_ONE_BY_ONE = (sys.executable, "-m", "tests.test_rooms", "{size}")
WORKERS = (sys.executable, "-m", "tests.proof.workers", "--cases", "{size}", "--json", "--progress")
INJECTING = (
    sys.executable,
    "-m",
    "tests.proof.faults",
    "--cases",
    "{size}",
    "--json",
    "--progress",
)
UPSTREAM = (
    sys.executable,
    "-m",
    "tests.proof.upstream",
    "--cases",
    "{size}",
    "--json",
    "--progress",
)
QUEUES = (sys.executable, "-m", "tests.proof.queues", "--cases", "{size}", "--json", "--progress")
MESSAGES = (
    sys.executable,
    *("-m", "tests.proof.messages", "--cases", "{size}", "--json", "--progress"),
)
RESETS = (sys.executable, "-m", "tests.proof.resets", "--cases", "{size}", "--json", "--progress")
BACKLOGS = (
    sys.executable,
    *("-m", "tests.proof.backlogs", "--cases", "{size}", "--json", "--progress"),
)
HOSTILE_GIT = (
    sys.executable,
    *("-m", "tests.support.hostile_git", "--cases", "{size}", "--json", "--progress"),
)
GATES = (sys.executable, "-m", "tests.proof.gates", "--cases", "{size}", "--json", "--progress")
TRUST = (sys.executable, "-m", "tests.proof.trust", "--cases", "{size}", "--json", "--progress")
WAITS = (sys.executable, "-m", "tests.proof.waits", "--cases", "{size}", "--json", "--progress")
PERSONS = (sys.executable, "-m", "tests.proof.persons", "--cases", "{size}", "--json", "--progress")
SEES = (sys.executable, "-m", "tests.proof.sees", "--cases", "{size}", "--json", "--progress")
PROPOSALS = (
    sys.executable,
    *("-m", "tests.proof.proposals", "--cases", "{size}", "--json", "--progress"),
)
NEEDS = (sys.executable, "-m", "tests.proof.needs", "--cases", "{size}", "--json", "--progress")
WHOSE = (sys.executable, "-m", "tests.proof.whose", "--cases", "{size}", "--json", "--progress")
MACHINES = (
    sys.executable,
    *("-m", "tests.proof.machines", "--cases", "{size}", "--json", "--progress"),
)
MACHINES_CHAOS = (
    sys.executable,
    *("-m", "tests.proof.machines_chaos", "--issues", "{size}", "--json"),
)
FORGE = (sys.executable, "-m", "tests.proof.forge", "--json", "--progress")
PULLS = (sys.executable, "-m", "tests.proof.pulls", "--json", "--progress")
SUBMODULES = (
    sys.executable,
    *("-m", "tests.proof.submodules", "--cases", "{size}", "--json", "--progress"),
)
MORTAL_GIT = (
    sys.executable,
    *("-m", "tests.proof.git_faults", "--cases", "{size}", "--jobs", "1", "--json", "--progress"),
)
MORTAL_BD = (
    sys.executable,
    *("-m", "tests.proof.bd_faults", "--cases", "{size}", "--jobs", "1", "--json", "--progress"),
)
ODD_STARTS = (
    sys.executable,
    *("-m", "tests.proof.odd_starts", "--cases", "{size}", "--json", "--progress"),
)
NIGHT = (sys.executable, "-m", "tests.night", "--issues", "{size}", "--json")
SELF_CLAIMING = ("--bd-calls", "worker")
ON_NEW = [chaos("bd 1.3.0", 50, seed, 2.7, bd=NEW) for seed in (101, 102, 103)]
ON_OLD = [chaos("bd 0.44.0", 50, seed, 1.2, bd=OLD) for seed in (201, 202)]
EMBEDDED = [chaos("embedded", 250, seed, 0.38) for seed in range(1, 7)]
STRANGERS = [workers(NEW, 320.0), workers(OLD, 180.0), workers("embedded", 115.0)]
KILLED = (sys.executable, "-m", "tests.proof.workers", "--only", "killed", "--again", "5", "--json")
FAULTS = [injected("embedded", 350, 1.0), injected(NEW, 100, 6.0)]  # Of 360 to 400 there are.
LANDING = [chaos("landing", 50, seed, 6.0, "--landing") for seed in (501, 502)]

# What waits for ``bd`` stands beside what does not; the short ones come last.
PARTS: Sequence[Part] = (
    *(part for pair in zip(ON_NEW, EMBEDDED[:3], strict=True) for part in pair),
    chaos("bd 1.3.0, called by workers", 50, 401, 2.3, *SELF_CLAIMING, bd=NEW),
    *EMBEDDED[3:],
    chaos("bd 0.44.0, called by workers", 50, 402, 1.2, *SELF_CLAIMING, bd=OLD),
    chaos("40 running tasks", 50, 301, 2.3, "--only", "orchestrator", "-n", "40"),
    *ON_OLD,
    *LANDING,
    *STRANGERS,
    Part("killed", "kills of workers", 70, (*KILLED, "--progress"), 60.0),
    *FAULTS,
    Part("gates", "cases of gates that die", 10, GATES, 60.0),
    Part("whose", "set-ups and changes of what all share", len(WHOSE_CASES), WHOSE, 30.0),
    Part("trust", "clones, second users, lost folders", TRUST_CASES, TRUST, 1300.0),
    Part("waits", "ends of what waits for a person", len(WAITS_CASES), WAITS, 500.0),
    Part("persons", "moves of the landing branch", PERSONS_CASES, PERSONS, 60.0),
    Part("night", "issues", 40, NIGHT, 800.0),
    Part("hostile-git", "settings of git", len(hostile_settings()), HOSTILE_GIT, 500.0),
    Part("sees", "layouts of projects", len(LAYOUTS), SEES, 240.0),
    Part("proposals", "projects", len(PROJECTS), PROPOSALS, 2.0),
    Part("needs", "kinds of projects", len(KINDS), NEEDS, 300.0),
    Part("odd-starts", "commands in odd places", len(odd_starts()), ODD_STARTS, 700.0),
    Part("submodules", "cases of submodules", len(SUBMODULE_CASES), SUBMODULES, 300.0),
    Part("machines", "faults of hosts and of home", len(MACHINES_CASES), MACHINES, 1500.0),
    Part("machines chaos", "issues amid faults of hosts", 200, MACHINES_CHAOS, 300.0),
    Part("forge", "races and kills", RACES, (*FORGE, "--kills", "0", "--races", "{size}"), 210.0),
    Part("forge", "races and kills", KILLS, (*FORGE, "--races", "0", "--kills", "{size}"), 320.0),
    Part("pulls", "kills", PULL_KILLS, (*PULLS, "--calls", "0", "--kills", "{size}"), 600.0),
    Part("pulls", "calls", PULL_CALLS, (*PULLS, "--kills", "0", "--calls", "{size}"), 900.0),
    Part("bd-faults", "calls of bd that break", 555, MORTAL_BD, 2000.0),
    Part("git-faults", "calls of git that break", 5500, MORTAL_GIT, 2500.0),
    Part("upstream", "tests of dispatcherd's own", 170, UPSTREAM, 300.0),
    Part("queues", "starts, jobs and stops of queues", CASES, QUEUES, 600.0),
    Part("backlogs", "backlogs", 16, BACKLOGS, 120.0),
    Part("resets", "resets of usage limits", 2000, RESETS, 120.0),
    Part("messages", "messages of commits, linted", 2000, MESSAGES, 60.0),
    Part("rooms", "times integrations left out", 7, ROOMS_ONE_BY_ONE, 7 * 200.0),
    script("fuzz", "fuzzed inputs per parser", "--inputs", 1100),
    replace(script("fuzz", "bad frames at each end", "--frames", 500), name="frames"),
    script("simulate", "simulated faults", "--faults", 870),
)
