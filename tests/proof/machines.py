"""Many machines, one fleet: no two attempts of one issue at once, whatever is killed or silent.

    scripts/prove machines
    python -m tests.proof.machines [--cases N] [--only WORD] [--jobs N] [--json] [--progress]

Real hosts, each in namespaces of its own, reached by OpenSSH, or nodes of a real Ray or Slurm
cluster. A case is a fresh project and one fault: a process that is killed or stopped for 20 s, on a
host or at home, or a part of a cluster; a network that is silent; a host that is restarted, or
lacks something; home killed at a moment of an attempt. Each run comes to its end. Then: no two
attempts of one issue were alive at once; nothing is left on any machine; each issue is closed and
has landed once; an attempt that was alive within its lease was begun once; and nothing was charged.
The folder of a case that failed is kept; ``story.txt`` there tells of it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from types import FrameType

import pytest

from tests.proof.machines_engines import by_ray, by_slurm
from tests.proof.machines_rig import (
    ENDING,
    FENCE_SECONDS,
    HOME,
    LEASE_SECONDS,
    MOMENT_SECONDS,
    Beat,
    Expected,
    Reach,
    World,
    evidence,
    judged,
    pause,
    until,
)
from tests.support.hosts import Hosts, only
from tests.support.processes import send

JOBS = 3
"""Cases side by side: they mostly wait."""
SHORT, LONG, VERY_LONG = 25, 80, 150
"""Beats of a task: 5 s; 16 s, which is longer than a lease; and longer than any fault."""
STOPPED_SECONDS = 20.0
AGAIN_SECONDS = 3.0
"""Time from a kill of home to the next start."""
SILENT_SECONDS = (6.0, 14.0, FENCE_SECONDS + 4.0)
"""Within a lease; over its end; and until home may begin the attempt again."""
NAMED_SECONDS = 12.0
"""Time from a start until a host that cannot be used is named: 10 s, and the start itself."""
LONG_LEASE_SECONDS = 90.0
"""In which a cluster is killed, and another one runs."""
SAVED_SECONDS = 8.0
"""After this time, Slurm's controller knows all its jobs again if it is killed."""
BIG_BYTES = 12 << 20
ON = ("n1:2", "n2:1")
NOBODY: frozenset[str] = frozenset()
EVERYWHERE = frozenset({"n1", "n2"})


@contextmanager
def by_ssh(folder: Path, count: int) -> Iterator[Reach]:
    """Make hosts that are reached by OpenSSH."""
    with Hosts(folder, count) as hosts:
        yield Reach(hosts)


@dataclass(frozen=True, slots=True)
class Case:
    """One fault. ``act`` does it, in a world with these issues, and returns what is allowed.

    ``by``: makes the hosts, and says how they are reached.
    """

    kind: str
    what: str
    act: Callable[[World], Expected]
    issues: int = 3
    beats: int = SHORT
    size: int = 0
    hosts: int = 2
    stubborn: bool = False
    lease: float = LEASE_SECONDS
    by: Callable[[Path, int], AbstractContextManager[Reach]] = by_ssh

    @property
    def name(self) -> str:
        """Unique among the cases."""
        return f"{self.kind}: {self.what}"


# --- processes that are killed or stopped --------------------------------------------------------

Target = Callable[[World, Beat], list[int]]

THERE: Mapping[str, Target] = {
    "guard": lambda world, victim: world.guards(victim)[1],
    "outer process": lambda world, victim: world.guards(victim)[0],
    "both holders": lambda world, victim: [*chain(*world.guards(victim))],
    "worker there": lambda world, victim: world.workers_there(victim)[:1],
    "fork of the worker there": lambda world, victim: world.workers_there(victim)[1:2],
    "relay": lambda world, victim: world.relays(victim.host),
}
AT_HOME: Mapping[str, Target] = {
    "ssh": lambda world, victim: world.engines(victim.host),
    "line": lambda world, victim: world.lines(victim.host),
    "worker at home": lambda world, victim: world.worker(victim),
    "step": lambda world, victim: world.step(victim),
    "orchestrator": lambda world, victim: [world.orchestrator()],
    "all of home": lambda world, victim: world.at_home(),
}
OF_RAY: Mapping[str, Target] = {
    "helper": lambda world, victim: world.engines(victim.host, "helper"),
    "connection": lambda world, victim: world.engines(victim.host, "connection"),
    "raylet": lambda world, victim: world.reach.parts("raylet", victim.host),
    "head": lambda world, victim: world.reach.parts("head", victim.host),
}
OF_SLURM: Mapping[str, Target] = {
    "srun": lambda world, victim: world.engines(victim.host, "srun"),
    "slurmd": lambda world, victim: world.reach.parts("slurmd", victim.host),
    "slurmctld": lambda world, victim: world.reach.parts("slurmctld", victim.host),
}
TARGETS = {**THERE, **AT_HOME, **OF_RAY, **OF_SLURM}
ENDS_HOME = ("orchestrator", "all of home")
"""If these are killed, a new start follows."""
ENDS_ATTEMPT = (
    "guard",
    "outer process",
    "both holders",
    "worker there",
    "fork of the worker there",
)


def _found(world: World, victim: Beat, name: str) -> list[int]:
    pids = TARGETS[name](world, victim)
    assert pids, f"the case found no {name}"
    world.tell(f"{name} of {victim.issue} on {victim.host}: {pids}")
    return pids


def _begun(world: World, at: float) -> Beat:
    """Start the fleet; return the first beat on n1 at this time of its task, once all run."""
    world.start(*ON)
    victim = world.first_beat()
    world.all_beat()
    pause(max(0.0, victim.at + at - time.time()))
    return victim


def killed(
    world: World,
    name: str,
    at: float,
    on: Sequence[str] = ON,
    again: frozenset[str] = NOBODY,
) -> Expected:
    """Kill something at this time of a task on n1; ``on``: of the next start, if there is one."""
    victim = _begun(world, at)
    pids = _found(world, victim, name)
    if name == "all of home":
        world.kill_home()
    elif name in ENDS_HOME:
        world.killed_at = time.time()
    send(pids, signal.SIGKILL)
    world.reach.repair(name, victim.host)
    if name in ENDS_HOME:
        world.starts[-1].ended()
        pause(AGAIN_SECONDS)
        world.start(*on)
    world.starts[-1].ended()
    return Expected(again | (frozenset({victim.issue}) if name in ENDS_ATTEMPT else NOBODY))


def killed_with_head(world: World) -> Expected:
    """Kill the head of a cluster and all of home at once; start both anew."""
    world.start(*ON)
    world.all_beat()
    send(world.reach.parts("head", "n1"), signal.SIGKILL)
    world.kill_home()
    world.reach.repair("head", "n1")
    world.tell("there is a new cluster")
    world.start(*ON)
    world.starts[-1].ended()
    return Expected()


def stopped(world: World, name: str, at: float, again: frozenset[str]) -> Expected:
    """Stop something for longer than a lease, and let it go on."""
    victim = _begun(world, at)
    pids = _found(world, victim, name)
    send(pids, signal.SIGSTOP)
    try:
        pause(STOPPED_SECONDS)
    finally:
        send(pids, signal.SIGCONT)
        world.tell("goes on")
    world.starts[-1].ended()
    own = frozenset({victim.issue}) if name in ENDS_ATTEMPT else NOBODY
    return Expected(again | own)


STOPS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(TARGETS, NOBODY),
    "line": frozenset({"n1"}),
    "all of home": EVERYWHERE,
}
"""Whose lease is over if it is stopped, beside the attempt of a holder."""


def _kills(targets: Mapping[str, Target]) -> list[Case]:
    return [
        Case("killed", f"{name}, {at:g} s", partial(killed, name=name, at=at))
        for at in (2.0, 4.9)
        for name in targets
    ]


def _stops(targets: Mapping[str, Target]) -> list[Case]:
    long = [
        Case(
            "stopped",
            f"{name}, 1 s",
            partial(stopped, name=name, at=1.0, again=STOPS[name]),
            beats=LONG,
        )
        for name in targets
    ]
    # These tasks end while it is stopped.
    names = [each for each in targets if each in ("guard", "line", "step", "all of home")]
    short = [
        Case("stopped", f"{name}, 4 s", partial(stopped, name=name, at=4.0, again=STOPS[name]))
        for name in names
    ]
    return [*long, *short]


# --- networks and hosts --------------------------------------------------------------------------


def silent(world: World, seconds: float, at: float, name: str = "") -> Expected:
    """Cut n1 off for a time, in which one holder of an attempt there may be stopped."""
    victim = _begun(world, at)
    pids = _found(world, victim, name) if name else []
    send(pids, signal.SIGSTOP)
    try:
        _cut_off(world, "n1", seconds)
    finally:
        send(pids, signal.SIGCONT)
    world.starts[-1].ended()
    return Expected(frozenset({"n1"}) if seconds > SILENT_SECONDS[0] else NOBODY)


def _cut_off(world: World, name: str, seconds: float) -> None:
    world.tell(f"{name} is cut off")
    world.hosts[name].cut()
    pause(seconds)
    world.hosts[name].mend()
    world.tell(f"{name} is reached again")


def all_silent(world: World, seconds: float) -> Expected:
    """Cut all hosts off for a time."""
    world.start(*ON)
    world.all_beat()
    world.hosts["n2"].cut()
    _cut_off(world, "n1", seconds)
    world.hosts["n2"].mend()
    world.starts[-1].ended()
    return Expected(EVERYWHERE if seconds > FENCE_SECONDS else NOBODY)


def restarted(world: World, at: float, *, quiet: bool, seconds: float = 0.0) -> Expected:
    """Restart n1. ``seconds``: how long it is off."""
    _begun(world, at)
    world.tell("n1 is killed")
    world.hosts["n1"].kill(quiet=quiet)
    pause(seconds)
    world.reach.boot("n1")
    world.tell("n1 runs again")
    world.starts[-1].ended()
    return Expected(frozenset({"n1"}))


def gone(world: World) -> Expected:
    """Kill n2 for good: the others do its work."""
    world.start(*ON)
    world.first_beat("n2")
    world.hosts["n2"].kill()
    world.tell("n2 is killed")
    world.starts[-1].ended()
    world.hosts["n2"].start()
    return Expected(frozenset({"n2"}))


def silent_while_home_dies(world: World) -> Expected:
    """Cut n1 off, kill all of home, start anew, and let n1 be reached later."""
    world.start(*ON)
    world.all_beat()
    world.hosts["n1"].cut()
    world.tell("n1 is cut off")
    world.kill_home()
    pause(AGAIN_SECONDS)
    world.start(*ON)
    pause(SILENT_SECONDS[-1])
    world.hosts["n1"].mend()
    world.tell("n1 is reached again")
    world.starts[-1].ended()
    return Expected(frozenset({"n1"}))


def restarted_without_home(world: World) -> Expected:
    """Restart n1 while home is killed."""
    world.start(*ON)
    world.all_beat()
    world.kill_home()
    world.hosts["n1"].kill()
    world.reach.boot("n1")
    world.start(*ON)
    world.starts[-1].ended()
    return Expected(frozenset({"n1"}))


# --- home, killed at a moment --------------------------------------------------------------------


def _journal_has(world: World, kind: str) -> bool:
    runs = world.project.folder / ".beads-workers" / "runs"
    mark = f'"e":"{kind}"'.encode()
    return any(mark in path.read_bytes() for path in runs.glob("*/journal*.jsonl"))


def _has_branch(world: World) -> bool:
    branches = world.project.folder / ".git" / "refs" / "heads" / "bw"
    return any(each.is_file() for each in branches.glob("*/*"))


MOMENTS: Mapping[str, Callable[[World], bool]] = {
    "leased, before go": lambda world: _journal_has(world, "leased"),
    "right after go": lambda world: bool(world.at_host("begun")),
    "while the branch is fetched": lambda world: bool(world.at_host("ended")),
    "right before DONE": _has_branch,
    "right after DONE": lambda world: _journal_has(world, "finished"),
    "right after the landing": lambda world: _journal_has(world, "branch_landed"),
}


def killed_when(world: World, moment: str, *, alone: bool = False) -> Expected:
    """Kill all of home, or the orchestrator ``alone``, as soon as a moment comes."""
    world.start(*ON)
    until(lambda: _journal_has(world, "started"), "an attempt is started")
    orchestrator, others = world.orchestrator(), world.at_home()
    until(lambda: MOMENTS[moment](world), moment, look=MOMENT_SECONDS)
    world.killed_at = time.time()
    send([orchestrator, *([] if alone else others)], signal.SIGKILL)
    begun = [path.parent.name[:8] for path in world.at_host("begun")]
    world.tell(f"killed {moment}; begun on n1 are {begun}")
    if not alone:
        world.kill_home()
    world.starts[-1].ended()
    pause(AGAIN_SECONDS)
    world.start(*ON)
    world.starts[-1].ended()
    _waited(world)
    return Expected()


def _waited(world: World) -> None:
    """Look for an issue that waits for a guard whose attempt nobody will begin."""
    begun = {beat.nonce for beat in world.beats()}
    records = world.journal()
    for found in (each for each in records if each["e"] == "inherited"):
        issue, nonce, since = found["issue_id"], found["lease"]["nonce"], float(found["t"])
        later = [
            float(each["t"]) - since
            for each in records
            if each["e"] == "started" and each["issue_id"] == issue and float(each["t"]) > since
        ]
        if nonce not in begun and later and min(later) > FENCE_SECONDS:
            world.broken.append(f"{issue}, leased and not begun, waited for {min(later):.0f} s")


def killed_again_and_again(world: World, seconds: float) -> Expected:
    """Kill all of home, and the next start this long after it has begun; then start once more."""
    world.start(*ON)
    world.all_beat()
    for _ in range(2):
        world.kill_home()
        pause(1.0)
        world.start(*ON)
        pause(seconds)
    world.kill_home()
    world.start(*ON)
    world.starts[-1].ended()
    return Expected()


# --- starts and stops ----------------------------------------------------------------------------


def _named(world: World, host: str, words: Sequence[str]) -> None:
    """Wait until the start names a host with one of these words."""
    started = world.starts[-1]

    def found() -> bool:
        lines = [each.lower() for each in started.said.splitlines() if host in each]
        return any(word in line for line in lines for word in words)

    def is_over() -> bool:
        return found() or started.process.poll() is not None

    until(is_over, f"{host} is named with {' or '.join(words)}", 60.0)
    took = time.monotonic() - started.began
    world.tell(f"{host} is named after {took:.1f} s")
    if not found():
        world.broken.append(f"{host} is not named with {' or '.join(words)}")
    elif took > NAMED_SECONDS:
        world.broken.append(f"{host} is named after {took:.1f} s only")


def unreached(world: World) -> Expected:
    """Start while n2 is cut off: n1 does it all."""
    world.hosts["n2"].cut()
    world.start("n1:1", "n2:1")
    _named(world, "n2", ("answer", "timed out", "reached"))
    world.starts[-1].ended()
    return Expected()


def none_reached(world: World) -> Expected:
    """Start while all hosts are cut off: it says so, and ends with 2; later it works."""
    for host in world.hosts:
        host.cut()
    started = world.start("n1:1", "n2:1")
    code = started.ended(30.0)
    for name in ("n1", "n2"):
        if name not in started.said:
            world.broken.append(f"{name} is not named: {started.said.strip()!r}")
    if code != 2:
        world.broken.append(f"exit code {code}, and not 2: {started.said.strip()!r}")
    for host in world.hosts:
        host.mend()
    world.start("n1:1", "n2:1")
    world.starts[-1].ended()
    return Expected()


def comes_later(world: World) -> Expected:
    """Start while n2 is cut off, which is reached later: it takes part."""
    world.hosts["n2"].cut()
    world.start("n1:1", "n2:1")
    world.first_beat()
    world.hosts["n2"].mend()
    world.tell("n2 is reached")
    world.starts[-1].ended()
    if not any(beat.host == "n2" for beat in world.beats()):
        world.broken.append("n2 did nothing once it was reached")
    return Expected()


def stop_while_cut(world: World, words: Sequence[str], seconds: float) -> Expected:
    """Stop the fleet while n1 is cut off, and start it again."""
    world.start(*ON)
    world.all_beat()
    world.hosts["n1"].cut()
    world.tell("n1 is cut off")
    pause(1.0)
    there = sorted({beat.issue for beat in world.beats() if beat.host == "n1"})
    began = time.monotonic()
    done = world.call("stop", *words, seconds=90.0)
    took = time.monotonic() - began
    if took > seconds:
        world.broken.append(f"stop took {took:.1f} s")
    world.starts[-1].ended(30.0)
    said = done.stdout + done.stderr
    if took < FENCE_SECONDS - 2.0:  # Else nothing of n1's lives any more.
        if done.returncode != 1 or not re.search(r"\d\d:\d\d|\d s\b", said):
            world.broken.append(f"stop: exit {done.returncode}; it should say until when: {said!r}")
        if not all(each in said for each in ("n1", *there)):
            world.broken.append(f"stop does not name n1, {', '.join(there)}: {said!r}")
    if re.search(r"\bkill 0\b", said + world.starts[-1].said):
        world.broken.append("its advice is kill 0, which kills the shell of whoever follows it")
    world.hosts["n1"].mend()
    world.start(*ON)
    world.starts[-1].ended()
    return Expected(EVERYWHERE)


def beside_home(world: World) -> Expected:
    """Use one worker at home beside those on hosts."""
    world.start("-n 1", "n1:1")
    world.starts[-1].ended()
    hosts = {beat.host if beat.nonce != HOME else HOME for beat in world.beats()}
    if hosts != {HOME, "n1"}:
        world.broken.append(f"attempts ran on {', '.join(sorted(hosts))} only")
    return Expected()


LACKS: Mapping[str, tuple[str, ...]] = {
    "python3": ("python",),
    "git": ("git",),
    "room": ("room", "space", "free"),
    "its old key": ("key",),
    "our key": ("denied",),
}
ALL_IT_NEEDS = ("sh", "bash", "env", "tar", "hostname", "date", "sleep")


def lacking(world: World, what: str) -> Expected:
    """Start with a host that cannot be used: it is named, and n1 does it all."""
    hosts = world.hosts
    if what in ("python3", "git"):
        has = [each for each in ("python3", "git") if each != what]
        hosts.add("bad", path=only(world.folder / "bad-path", *ALL_IT_NEEDS, *has))
    elif what == "room":
        hosts.add("bad", full_disk=True)
    else:
        hosts.add("bad", key="changed" if what == "its old key" else "refused")
    world.start("n1:1", "bad:1")
    _named(world, "bad", LACKS[what])
    world.starts[-1].ended()
    if any(beat.host == "bad" for beat in world.beats()):
        world.broken.append("an attempt ran there")
    return Expected()


# --- the cases -----------------------------------------------------------------------------------


def _networks() -> list[Case]:
    within, over, beyond = SILENT_SECONDS
    return [
        Case("silent", f"{within:g} s", partial(silent, seconds=within, at=1.0), beats=LONG),
        Case("silent", f"{beyond:g} s", partial(silent, seconds=beyond, at=1.0), beats=LONG),
        Case("silent", f"{within:g} s at the end", partial(silent, seconds=within, at=4.6)),
        Case("silent", f"{beyond:g} s at the end", partial(silent, seconds=beyond, at=4.6)),
        Case("silent", f"all, {within:g} s", partial(all_silent, seconds=within), beats=LONG),
        Case("silent", f"all, {beyond:g} s", partial(all_silent, seconds=beyond), beats=LONG),
        Case("silent", f"{over:g} s", partial(silent, seconds=over, at=1.0), beats=LONG),
        *(
            Case(
                "silent",
                f"{beyond:g} s, {name} stopped",
                partial(silent, seconds=beyond, at=1.0, name=name),
                beats=VERY_LONG,
                stubborn=True,
            )
            for name in ("guard", "outer process")
        ),
        Case(
            "silent",
            f"{beyond:g} s, tasks ignore TERM",
            partial(silent, seconds=beyond, at=1.0),
            beats=VERY_LONG,
            stubborn=True,
        ),
        Case("silent", "while home is killed", silent_while_home_dies, beats=LONG),
        Case("restarted", "quietly", partial(restarted, at=2.0, quiet=True)),
        Case("restarted", "with connections closed", partial(restarted, at=2.0, quiet=False)),
        Case("restarted", "after 10 s", partial(restarted, at=4.6, quiet=True, seconds=10.0)),
        Case("restarted", "never", gone),
        Case("restarted", "while home is killed", restarted_without_home),
    ]


def _moments() -> list[Case]:
    big = [
        Case("home killed", each, partial(killed_when, moment=each), beats=10, size=BIG_BYTES)
        for each in MOMENTS
    ]
    alone = [
        replace(each, what=f"{each.what}, orchestrator alone", act=partial(each.act, alone=True))  # type: ignore[call-arg]
        for each in big[:4]
    ]
    nowhere = [
        Case(
            "home killed",
            f"then no place is named, {at:g} s",
            partial(killed, name="all of home", at=at, on=()),
        )
        for at in (1.0, 4.6)
    ]
    again = [
        Case(
            "home killed",
            f"three times, {seconds:g} s after each start",
            partial(killed_again_and_again, seconds=seconds),
            beats=SHORT,
            size=BIG_BYTES,
        )
        for seconds in (1.5, 3.5)
    ]
    return [*big, *nowhere, *again, *alone]


def _starts() -> list[Case]:
    return [
        Case("start", "one place is not reached", unreached),
        Case(
            "stop", "while n1 is cut off", partial(stop_while_cut, words=(), seconds=20.0), 3, LONG
        ),
        Case("start", "no place is reached", none_reached),
        Case("start", "a place is reached later", comes_later, issues=9, beats=15),
        Case("start", "-n 1 beside a place", beside_home, issues=4, beats=15),
        Case(
            *("stop", "--now while n1 is cut off"),
            partial(stop_while_cut, words=("--now",), seconds=20.0),
            beats=LONG,
        ),
        Case(
            *("stop", "--drain while n1 is cut off"),
            partial(stop_while_cut, words=("--drain",), seconds=FENCE_SECONDS + 8.0),
            beats=LONG,
        ),
    ]


def _lacks() -> list[Case]:
    return [
        Case("lacks", each, partial(lacking, what=each), issues=2, beats=10, hosts=1)
        for each in LACKS
    ]


def _of_engine(kind: str, parts: Sequence[str], *, more: Sequence[Case] = ()) -> list[Case]:
    """Return the cases of an engine; ``parts``: of it, which end nothing if they are killed."""
    of_parts = [
        case
        for name in parts
        for case in (
            Case(
                *(kind, f"{name} killed"),
                partial(killed, name=name, at=SAVED_SECONDS if name == "slurmctld" else 2.0),
                beats=LONG,
                lease=LONG_LEASE_SECONDS,
            ),
            Case(
                *(kind, f"{name} stopped"),
                # A node that is silent for so long is lost for Slurm, which then kills its jobs.
                partial(
                    stopped,
                    name=name,
                    at=2.0,
                    again=frozenset({"n1"}) if name == "slurmd" else NOBODY,
                ),
                beats=LONG,
                lease=LONG_LEASE_SECONDS,
            ),
        )
    ]
    holders = ("guard", "outer process")
    within, _, beyond = SILENT_SECONDS
    others = [
        Case(kind, "all of home killed", partial(killed, name="all of home", at=2.0)),
        Case(kind, f"silent {beyond:g} s", partial(silent, seconds=beyond, at=1.0), beats=LONG),
        Case(kind, "node restarted", partial(restarted, at=2.0, quiet=True)),
        *(Case(kind, f"{name} killed", partial(killed, name=name, at=2.0)) for name in holders),
        Case(kind, f"silent {within:g} s", partial(silent, seconds=within, at=1.0), beats=LONG),
        *(
            Case(
                *(kind, f"{name} stopped"),
                partial(stopped, name=name, at=1.0, again=NOBODY),
                beats=LONG,
            )
            for name in holders
        ),
        Case(kind, "node restarted while home is killed", restarted_without_home),
    ]
    by = {"ray": by_ray, "slurm": by_slurm}[kind]
    return [replace(each, by=by) for each in (*more, *others, *of_parts)]


def _ray() -> list[Case]:
    long = LONG_LEASE_SECONDS
    together = Case("ray", "home and head killed", killed_with_head, beats=LONG, lease=long)
    return _of_engine("ray", tuple(OF_RAY), more=[together])


def _slurm() -> list[Case]:
    # It forgets jobs of the last few seconds, and has them killed.
    act = partial(killed, name="slurmctld", at=1.0, again=EVERYWHERE)
    forgets = Case("slurm", "slurmctld killed before it has saved", act, beats=LONG)
    return _of_engine("slurm", tuple(OF_SLURM), more=[forgets])


def _mixed() -> list[Case]:
    """Return one of each kind, then the next of each: any first few are well mixed."""
    kinds = (
        _kills(AT_HOME),
        _stops(THERE),
        _moments(),
        _networks(),
        _starts(),
        _kills(THERE),
        _stops(AT_HOME),
        _lacks(),
        _ray(),
        _slurm(),
    )
    return [each for each in chain.from_iterable(zip_longest(*kinds)) if each is not None]


CASES = tuple(_mixed())


# --- running them --------------------------------------------------------------------------------


def run(case: Case, folder: Path) -> list[str]:
    """Return what a case violated; ``story.txt`` in its folder tells what happened."""
    with case.by(folder, case.hosts) as reach:
        world = World(
            folder,
            reach.hosts,
            issues=case.issues,
            beats=case.beats,
            size=case.size,
            stubborn=case.stubborn,
            lease=case.lease,
            reach=reach,
        )
        try:
            try:
                expected = case.act(world)
            except AssertionError as error:
                said = " ".join("".join(each.said for each in world.starts[-1:]).split())
                return [*world.broken, f"{error}; it said: {said[-600:]}"]
            return [*world.broken, *judged(world, expected)]
        finally:
            (folder / "story.txt").write_text(evidence(world))
            world.close()


def _run(case: Case, *, keeps: bool) -> tuple[list[str], float]:
    """Run a case in a folder of its own, which is kept if the case failed, or it ``keeps`` all."""
    if ENDING.is_set():
        return [], 0.0
    began, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="beads-workers-machines-"))
    try:
        found = run(case, folder)
    except (Exception, pytest.skip.Exception) as error:  # It is told; the others go on.
        traceback.print_exc()
        found = [f"{type(error).__name__}: {error}"]
    if found and not ENDING.is_set():
        found = [f"{each} ({folder})" for each in found]
    elif not keeps:
        shutil.rmtree(folder, ignore_errors=True)
    return found, time.monotonic() - began


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.machines", description=__doc__)
    parser.add_argument("--cases", type=int, default=len(CASES), help="so many of them")
    parser.add_argument("--only", default="", metavar="WORD", help="those with this in their name")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"side by side (default {JOBS})")
    parser.add_argument("--keep", action="store_true", help="the folders of all cases")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    return parser.parse_args(arguments)


def _end(number: int, frame: FrameType | None) -> None:
    ENDING.set()


def main(arguments: list[str]) -> int:
    """Return 0 if all held; end early on SIGTERM."""
    said = _parsed(arguments)
    chosen = [each for each in CASES if said.only in each.name][: said.cases]
    violations: list[str] = []
    ended = 0
    signal.signal(signal.SIGTERM, _end)
    with os.fdopen(os.dup(1), "w") as told, ThreadPoolExecutor(said.jobs) as pool:
        os.dup2(2, 1)
        running: dict[Future[tuple[list[str], float]], Case] = {
            pool.submit(_run, case, keeps=said.keep): case for case in chosen
        }
        for future in as_completed(running):
            name = running[future].name
            found, seconds = future.result()
            if ENDING.is_set():
                continue
            ended += 1
            violations += [f"{name}: {each}" for each in found]
            if said.progress:
                held = "; ".join(found) or "held"
                line = f"{ended} of {len(chosen)} cases ({name}, {seconds:.0f} s: {held})\n"
                sys.stderr.write(line)
        if said.json:
            print(json.dumps({"cases": ended, "violations": violations}), file=told)
        else:
            print("\n".join(violations) or f"{ended} cases held", file=told)
    return 1 if violations or ended < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
