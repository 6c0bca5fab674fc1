"""The world of one case of ``tests.proof.machines``: a project, hosts, fleets, and what is seen.

Tasks write a line five times a second, with their issue, the nonce of their guard, their host and
the time. A ``Watch`` beside all cases sees the processes of attempts, also while no task runs.
"""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from beads_workers.core.base.limits import AWAY_MARGIN_SECONDS
from tests.support.embedded import EmbeddedProject
from tests.support.hosts import Host, Hosts
from tests.support.processes import command, parent, read, send, words
from tests.support.repository import IDENTITY, git, make_repository
from tests.support.trust import TRUSTED

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (sys.executable, "-m", "beads_workers")
LEASE_SECONDS = 12.0
GRACE_SECONDS = 5.0
FENCE_SECONDS = LEASE_SECONDS + GRACE_SECONDS + AWAY_MARGIN_SECONDS
"""Seconds after which home may begin an attempt again whose guard is not heard."""
PATIENCE_SECONDS = 100.0
LEAVES_SECONDS = 75.0
"""Seconds after which nothing is left on a host: a guard waits 60 s for the word to begin."""
MOMENT_SECONDS = 0.002
"""Time between two looks for a moment that lasts milliseconds."""
WATCH_SECONDS = 0.3
HOME = "home"
"""In the place of a nonce: an attempt of a worker at home."""
SCRIPT = """\
n={beats}
if grep -q "^$BW_ISSUE_ID " "$HOME/beats" 2>/dev/null; then n=10; fi
while [ "$n" -gt 0 ]; do
  echo "$BW_ISSUE_ID ${{BW_AWAY:-{home}}} $(hostname) $(date +%s.%N)" >>"$HOME/beats"
  sleep 0.2
  n=$((n - 1))
done
[ {size} = 0 ] || head -c {size} /dev/urandom >"big-$BW_ISSUE_ID"
echo "$BW_ISSUE_ID" >"f-$BW_ISSUE_ID.txt"
"""
"""A task; begun again on the same host, it is a short one."""
STUBBORN = 'trap "" TERM HUP; setsid --wait sh -c "$1"'
"""Runs a task that ignores TERM, in a session of its own."""


_MAKING = threading.Lock()
"""Held while a project is copied: the first one makes what is copied, and the ``Watch``."""


class Interrupted(Exception):
    """The proof is told to end."""


ENDING = threading.Event()
"""Set once the proof is told to end."""


def pause(seconds: float) -> None:
    """Wait; raises ``Interrupted``."""
    if ENDING.wait(seconds):
        raise Interrupted


def until(
    holds: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS, look: float = 0.05
) -> T:
    """Return what ``holds`` returns once it is true; raise ``AssertionError`` after the time."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not in {seconds:g} s: {what}"
        pause(look)
    return found


# --- processes -----------------------------------------------------------------------------------


def _below(pids: list[int]) -> list[int]:
    """Return these processes and their descendants."""
    found = list(pids)
    for pid in found:
        found += map(int, read(pid, f"task/{pid}/children").split())
    return found


class Watch(threading.Thread):
    """Looks at the processes of all attempts; ``seen`` has the first and the last look by nonce."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: dict[str, tuple[float, float]] = {}
        self.worlds: list[World] = []
        """Those of cases that run now: hosts soon forget how an attempt has ended."""

    def run(self) -> None:
        """Look for as long as this process lives."""
        while True:
            now = time.time()
            for name in os.listdir("/proc"):  # noqa: PTH208 - all the time
                if name.isdigit():
                    for word in read(name, "environ").split(b"\0"):
                        if word.startswith(b"BW_AWAY="):
                            nonce = word[8:].decode(errors="replace")
                            self.seen[nonce] = (self.seen.get(nonce, (now, now))[0], now)
            for world in list(self.worlds):
                world.note_ends()
            time.sleep(WATCH_SECONDS)


@functools.cache
def watch() -> Watch:
    """Return the one of this process."""
    made = Watch()
    made.start()
    return made


# --- one case ------------------------------------------------------------------------------------


class Reach:
    """How the fleets of a world reach its hosts: by OpenSSH, where each host is a place."""

    programs: Mapping[str, str] = {"ssh": "ssh"}
    """What a place's line starts at home: a word of its command line, by name."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.environment: dict[str, str] = {}
        """What home needs to reach them."""

    def tables(self, lease: float) -> str:
        """Return what the project's settings say of its places."""
        names = ("n1", "n2", "n3", "bad")
        return "".join(f'[places.{name}]\nlease = "{lease:g}s"\n' for name in names)

    def on(self, words: Sequence[str]) -> Sequence[str]:
        """Return the words of ``--on`` for so many attempts at once on these hosts."""
        return words

    def place(self, host: str) -> str:
        """Return the place that a host is of."""
        return host

    def is_daemon(self, words: str) -> bool:
        """Return whether a host has a process with this command line without any fleet."""
        return words.startswith("sshd")

    def boot(self, host: str) -> None:
        """Start a host that was killed."""
        self.hosts[host].start()

    def parts(self, name: str, host: str) -> list[int]:
        """Return the processes of a part of the engine that is not at home."""
        raise NotImplementedError

    def repair(self, name: str, host: str) -> None:
        """Start a part of the engine again that was killed; any other name means nothing."""


@dataclass(frozen=True, slots=True)
class Beat:
    """One line of a task."""

    issue: str
    nonce: str
    host: str
    at: float


@dataclass(slots=True)
class Started:
    """One ``start``."""

    process: subprocess.Popen[bytes]
    out: Path
    began: float = field(default_factory=time.monotonic)

    @property
    def said(self) -> str:
        """All that it has printed."""
        return self.out.read_text(errors="replace")

    def ended(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Wait for its end; return the exit code."""
        until(lambda: self.process.poll() is not None, "the run ends", seconds)
        return int(self.process.returncode)


class World:
    """A project with issues ``bw-1`` to ``bw-ISSUES``, and its fleets. ``close`` kills them.

    ``beats``: of a task that is begun on a host for the first time, five a second. ``size``: bytes
    of the second file that it makes. ``stubborn``: it ignores TERM, in a session of its own.
    ``reach``: of an engine that has the hosts, if they are not reached by OpenSSH.
    """

    def __init__(
        self,
        folder: Path,
        hosts: Hosts,
        *,
        issues: int = 3,
        beats: int = 25,
        size: int = 0,
        stubborn: bool = False,
        lease: float = LEASE_SECONDS,
        reach: Reach | None = None,
    ) -> None:
        self.folder, self.hosts = folder, hosts
        self.reach = reach or Reach(hosts)
        self._lease = lease
        self.home = folder / HOME
        self.home.mkdir()
        with _MAKING:
            self.project = EmbeddedProject(folder)
            make_repository(self.project.folder)
            watched = watch().worlds
        (self.project.folder / "beads-workers.toml").write_text(self.reach.tables(lease))
        self.issues = [str(each) for each in self.project.create_many([{}] * issues)]
        script = SCRIPT.format(beats=beats, size=size, home=HOME)
        self._command = ["sh", "-c", script]
        if stubborn:
            self._command = ["sh", "-c", STUBBORN, "sh", script]
        self._runs = self.project.folder / ".beads-workers" / "runs"
        self.starts: list[Started] = []
        self.told: list[str] = []
        self.broken: list[str] = []
        """What a case found that ``judged`` does not look for."""
        self.began = time.time()
        self.killed_at: float | None = None
        """When home was killed for the first time."""
        path = f"{hosts.bin}:{self.project.environment['PATH']}"
        own = {"PATH": path, "HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        own |= self.reach.environment
        self.environment = {**self.project.environment, **IDENTITY, **TRUSTED, **own}
        self.ends: dict[str, str] = {}
        """How attempts have ended, as their guards say, by nonce."""
        watched.append(self)

    def tell(self, what: str) -> None:
        """Note what happens, for whoever reads about a case that failed."""
        self.told.append(f"{time.time() - self.began:7.2f} {what}")

    def start(self, *on: str) -> Started:
        """Start the fleet with these words of ``--on``, or other options."""
        on = tuple(self.reach.on(on))
        words = [w for each in on for w in ((each,) if each[:1] == "-" else ("--on", each))]
        options = ("--until-empty", "--no-dashboard", "--worktree", "--skip-base-check")
        command = ("--verify", "test -e .gitignore", "--", *self._command)
        out = self.folder / f"start-{len(self.starts) + 1}.txt"
        self.tell(f"start {' '.join(words)}")
        with out.open("wb") as file:
            process = subprocess.Popen(
                [*PROGRAM, "start", *_split(words), *options, *command],
                cwd=self.project.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.starts.append(Started(process, out))
        return self.starts[-1]

    def call(self, *words: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run another command in the project."""
        self.tell(" ".join(words))
        done = subprocess.run(
            [*PROGRAM, *words],
            cwd=self.project.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        self.tell(f"exit {done.returncode}: {done.stdout.strip()} {done.stderr.strip()}")
        return done

    def close(self) -> None:
        """Kill what is left at home."""
        watch().worlds.remove(self)
        while left := self.at_home():
            send(left, signal.SIGKILL)
            time.sleep(0.05)
        for each in self.starts:
            each.process.wait()

    # --- what is seen -----------------------------------------------------------------------------

    def journal(self, kind: str = "") -> list[dict[str, Any]]:
        """Return the records of all runs, oldest first, all or of one kind."""
        found = []
        for path in sorted(self._runs.glob("*/journal*.jsonl")):
            for line in path.read_bytes().splitlines(keepends=True):
                if line.endswith(b"\n") and (not kind or b'"e":"%s"' % kind.encode() in line):
                    record = json.loads(line)
                    found += [record] if kind in ("", record["e"]) else []
        return sorted(found, key=lambda record: float(record["t"]))

    def leases(self) -> dict[str, dict[str, Any]]:
        """Return the leases of all attempts, by nonce."""
        return {str(each["nonce"]): each for each in self.journal("leased")}

    def beats(self) -> list[Beat]:
        """Return what tasks have written, oldest first."""
        found = []
        for home in (self.home, *(host.home for host in self.hosts)):
            if (file := home / "beats").exists():
                for line in file.read_text().splitlines(keepends=True):
                    if re.fullmatch(r"\S+ \S+ \S+ [\d.]+\n", line):
                        issue, nonce, host, at = line.split()
                        found.append(Beat(issue, nonce, host, float(at)))
        return sorted(found, key=lambda beat: beat.at)

    def first_beat(self, host: str = "n1", count: int = 1) -> Beat:
        """Wait until tasks of ``count`` issues run on a host; return the first beat."""

        def found() -> Beat | None:
            there = [each for each in self.beats() if each.host == host]
            return there[0] if len({each.issue for each in there}) >= count else None

        found_beat = until(found, f"{count} tasks on {host}")
        assert found_beat is not None
        return found_beat

    def all_beat(self) -> None:
        """Wait until each issue has a task that runs."""
        until(lambda: len({b.issue for b in self.beats()}) == len(self.issues), "tasks run")

    def at_host(self, pattern: str, host: str = "n1") -> list[Path]:
        """Return files of the attempts on a host."""
        return _of_attempts(self.hosts[host], pattern)

    def note_ends(self) -> None:
        """Keep how attempts have ended."""
        for host in self.hosts:
            try:
                for path in _of_attempts(host, "ended"):
                    self.ends.setdefault(path.parent.name, path.read_text().strip())
            except OSError:
                pass  # One is forgotten just now.

    # --- processes of the case --------------------------------------------------------------------

    def at_home(self) -> list[int]:
        """Return all processes at home, of all starts."""
        mark = os.fsencode(f"HOME={self.home}")
        pids = [int(each) for each in os.listdir("/proc") if each.isdigit()]  # noqa: PTH208
        return [pid for pid in pids if mark in read(pid, "environ").split(b"\0")]

    def kill_home(self) -> None:
        """Kill all of home at once: the orchestrator first, or it sees the others die and stops."""
        self.killed_at = self.killed_at or time.time()
        send([self.orchestrator()], signal.SIGKILL)
        while left := self.at_home():
            send(left, signal.SIGKILL)
            time.sleep(MOMENT_SECONDS)
        self.tell("all of home is killed")
        self.starts[-1].ended()

    def was_over(self, at: float) -> bool:
        """Return whether a lease may have been over by then, as home was killed before.

        A word comes every 2 s, so that the last one may have been that old.
        """
        return self.killed_at is not None and at > self.killed_at + self._lease - 3.0

    def orchestrator(self) -> int:
        """Return the pid of the newest run's orchestrator."""
        return int(self.journal("run_started")[-1]["pid"])

    def lines(self, host: str = "n1") -> list[int]:
        """Return home's process that speaks to a place."""
        mark = f"BW_WORKER_ID=place-{self.reach.place(host)}".encode()
        return [
            pid
            for pid in self.at_home()
            if "beads_workers.places.line" in words(pid)
            and mark in read(pid, "environ").split(b"\0")
        ]

    def worker(self, victim: Beat) -> list[int]:
        """Return the worker at home of an attempt."""
        started = [e for e in self.journal("started") if e["issue_id"] == victim.issue]
        pids = {e["worker_id"]: int(e["pid"]) for e in self.journal("worker_started")}
        return [pids[started[-1]["worker_id"]]]

    def step(self, victim: Beat) -> list[int]:
        """Return the program that waits at home for an attempt."""
        return _below(self.worker(victim))[1:]

    def engines(self, host: str = "n1", name: str = "ssh") -> list[int]:
        """Return home's ``ssh`` to a host, or another of the programs that lead there."""
        mark = self.reach.programs[name]
        below = _below(self.lines(host))[1:]
        return [pid for pid in below if mark in " ".join(words(pid)[:5])]

    def guards(self, victim: Beat) -> tuple[list[int], list[int]]:
        """Return the outer process and the guard of an attempt, a list of one each."""
        pids = [p for p in self.hosts[victim.host].pids() if _serves(p, victim.nonce)]
        outer = [pid for pid in pids if parent(pid) not in pids]
        return outer, [pid for pid in pids if pid not in outer]

    def workers_there(self, victim: Beat) -> list[int]:
        """Return the two processes of an attempt's worker on its host, the parent first."""
        guard = self.guards(victim)[1]
        return [pid for pid in _below(guard)[1:] if "beads_workers.places.host" in words(pid)]

    def relays(self, host: str = "n1") -> list[int]:
        """Return the sessions of sshd on a host, with all below but guards and attempts."""
        pids = self.hosts[host].pids()
        sessions = [p for p in pids if re.match(r"sshd(-session)?: .*notty", command(p))]
        return [p for p in _below(sessions) if "serve" not in words(p) and not _is_away(p)]

    def left_there(self, host: Host) -> list[str]:
        """Return the processes of a host that belong to no daemon of its own."""
        found = []
        for pid in host.pids():
            said = command(pid).strip()
            if said and not self.reach.is_daemon(said):
                found.append(f"{pid} {said[:160]}")
        return found


def _of_attempts(host: Host, pattern: str) -> list[Path]:
    away = host.home / ".cache" / "beads-workers" / "away"
    return list(away.glob(f"*/attempts/*/{pattern}"))


def _split(words: list[str]) -> list[str]:
    """Return words, of which one may hold an option and its value."""
    return [part for word in words for part in word.split(" ")]


def _serves(pid: int, nonce: str) -> bool:
    found = words(pid)
    return "serve" in found and nonce in found


def _is_away(pid: int) -> bool:
    return any(word.startswith(b"BW_AWAY=") for word in read(pid, "environ").split(b"\0"))


# --- what must hold ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Life:
    """From when to when an attempt was seen alive."""

    issue: str
    nonce: str
    host: str
    first: float
    last: float


def lives(beats: list[Beat], leases: dict[str, str], seen: dict[str, tuple[float, float]]) -> Lives:
    """Return each attempt's life; ``leases`` has the issue by nonce, ``seen`` is of a ``Watch``."""
    found: Lives = {}

    def add(issue: str, nonce: str, host: str, first: float, last: float) -> None:
        old = found.get((issue, nonce), Life(issue, nonce, host, first, last))
        span = min(old.first, first), max(old.last, last)
        found[issue, nonce] = Life(issue, nonce, old.host if host == "?" else host, *span)

    for nonce, issue in leases.items():
        if nonce in seen:
            add(issue, nonce, "?", *seen[nonce])
    for beat in beats:
        add(beat.issue, beat.nonce, beat.host, beat.at, beat.at)
    return found


Lives = dict[tuple[str, str], Life]


def at_once(found: Lives) -> Iterator[str]:
    """Yield the pairs of attempts of one issue that were alive at the same time."""
    ordered = sorted(found.values(), key=lambda life: (life.issue, life.first))
    for number, one in enumerate(ordered):
        for other in ordered[number + 1 :]:
            if other.issue == one.issue and other.first <= one.last:
                both = min(one.last, other.last) - other.first
                who = f"{one.nonce[:8]} on {one.host} and {other.nonce[:8]} on {other.host}"
                yield f"TWO AT ONCE: {one.issue}, {who}, for {both:.1f} s or more"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a case allows.

    ``again``: which issues may be begun more than once: those with a beat on one of these hosts,
    or these issues. ``charged``: attempts that may be charged for it.
    """

    again: frozenset[str] = frozenset()
    charged: int = 0
    exit_code: int = 0


def judged(world: World, expected: Expected) -> Iterator[str]:
    """Yield what does not hold once the last run has ended."""
    code = world.starts[-1].process.returncode
    if code != expected.exit_code:
        yield f"exit code {code} instead of {expected.exit_code}"
    yield from _left(world)
    beats, leases = world.beats(), world.leases()
    known = lives(beats, {n: each["issue_id"] for n, each in leases.items()}, watch().seen)
    yield from at_once(known)
    for issue in world.issues:
        begun = {beat.nonce for beat in beats if beat.issue == issue}
        hosts = {beat.host for beat in beats if beat.issue == issue}
        if not begun:
            yield f"{issue} was never begun"
        elif len(begun) > 1 and not expected.again & {issue, *hosts}:
            first = min((known[issue, nonce] for nonce in begun), key=lambda life: life.first)
            if not world.was_over(first.last):
                yield f"{issue} was begun {len(begun)} times: {', '.join(n[:8] for n in begun)}"
    yield from _landed(world)
    charged = [e for e in world.journal("finished") if e.get("charged")]
    if sum(int(e["charged"]) for e in charged) > expected.charged:
        why = "; ".join(f"{e['issue_id']} {e.get('outcome')}: {e.get('error')}" for e in charged)
        yield f"charged: {why}"
    yield from _reported(world, expected)


def _left(world: World) -> Iterator[str]:
    """Yield processes that stay: guards whose lease is over need some seconds."""
    for host in world.hosts:
        try:
            until(partial(_is_empty, world, host), "", LEAVES_SECONDS, 0.3)
        except AssertionError:
            yield f"left on {host.name}: {'; '.join(world.left_there(host))}"
    try:
        until(lambda: not world.at_home(), "", 15.0, 0.3)
    except AssertionError:
        left = (command(pid)[:160] for pid in world.at_home())
        yield f"left at home: {'; '.join(left)}"


def _is_empty(world: World, host: Host) -> bool:
    return not world.left_there(host)


def _landed(world: World) -> Iterator[str]:
    """Yield issues that are not closed, or have not landed exactly once."""
    states = {str(issue): state for issue, (state, _) in world.project.read_all().items()}
    for issue in world.issues:
        if states[issue] != "closed":
            yield f"{issue} is {states[issue]}"
            continue
        log = ("log", "--format=%h", "bw-landing/main", "--", f"f-{issue}.txt")
        commits = git(world.project.folder, *log, check=False).split()
        if len(commits) != 1:
            yield f"{issue} is closed, and has landed {len(commits)} times"
    landed = [str(each["issue_id"]) for each in world.journal("branch_landed")]
    yield from (
        f"{each} landed twice, by the journal" for each in set(landed) if landed.count(each) > 1
    )


def _reported(world: World, expected: Expected) -> Iterator[str]:
    """Yield what the report tells otherwise."""
    done = world.call("report", "--json")
    if done.returncode:
        yield f"report: exit {done.returncode}: {done.stderr}"
        return
    attempts = json.loads(done.stdout)["attempts"]
    if sum(each["charged"] for each in attempts) > expected.charged:
        yield f"the report has charged attempts: {[a for a in attempts if a['charged']]}"


def evidence(world: World) -> str:
    """Return the story of a case."""
    leases = {nonce: each["issue_id"] for nonce, each in world.leases().items()}
    known = lives(world.beats(), leases, watch().seen)
    began = world.began
    told = list(world.told)
    for life in sorted(known.values(), key=lambda life: life.first):
        span = f"{life.first - began:7.2f} to {life.last - began:.2f}"
        end = world.ends.get(life.nonce, "")
        told.append(f"{span} {life.issue} {life.nonce} on {life.host} {end}")
    for each in world.journal():
        if each["e"] in STORY:
            fields = {k: v for k, v in each.items() if k not in ("v", "e", "t", "m", "receipt")}
            told.append(f"{each['t'] - began:7.2f} {each['e']} {fields}")
    return "\n".join(told) + "\n"


STORY = (
    "leased",
    "started",
    "finished",
    "owner_lost",
    "inherited",
    "requeued",
    "branch_landed",
    "lease_over",
    "noted",
)
