"""Issues on forges: one of two fleets has an issue, and nothing is done twice, whatever is killed.

    scripts/prove forge
    python -m tests.proof.forge [--races N] [--kills N] [--only gitea|github] [--seed N] [--jobs N]
        [--json] [--progress]

A race: two fleets, of one login or of two, want an issue at the same moment, on a real Gitea, or
by the real ``gh`` on a GitHub of ours where comments are seen up to 5 s late and in any order. Each
waits as long as it really does before it reads its claim. Meanwhile strangers comment and copy
marks, and writers edit and delete marks. Then both look whether they have it still, as before a
landing.

A kill: a fleet works through backlogs on a real Gitea, in worktrees that land. At random moments
all of it, a worker, an agent or Gitea is killed, and started again. At the end each issue is closed
once, has landed once and has one receipt, no two attempts of it were alive at once, and nothing is
left. The folder of a backlog that failed is kept.
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
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from beads_workers.core.base.model import Filters, IssueId
from beads_workers.core.base.source import Action, CrashedRun, Result, Settlement
from beads_workers.integrations.forge import marks, reading
from beads_workers.integrations.forge.api import Forge, ForgeComment
from beads_workers.integrations.forge.source import ForgeSource
from tests.integrations.forge.test_fleet import GiteaProject
from tests.integrations.forge.tracker import (
    LOGIN,
    ForgeTracker,
    GiteaTracker,
    GitHubTracker,
    server,
)
from tests.support import github
from tests.support.fleet import Fleet, until
from tests.support.gitea import Repository
from tests.support.processes import alive, command, read, send, words
from tests.support.repository import git

RACES, KILLS = 200, 100
KINDS = ("gitea", "github")
JOBS = 12
"""Races side by side: they mostly wait."""
LATE_SECONDS = 5.0
"""Time after which a comment is seen at the latest, on our GitHub."""
LOGINS = (LOGIN, "fleet-two")
"""Of the fleets: the first one, or one each."""
EVE, ALICE, ROOT = "eve", "alice", "root"
"""A stranger, a writer, an administrator."""


# --- races ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Side:
    """One of the two fleets, and what it was told."""

    name: str
    # Of its claim; 0: it has written none.
    claim: int = 0
    took: bool = False
    # Somebody has taken the mark out of its claim, or deleted it, before it asked again.
    lost: bool = False
    confirmed: Result = Result.NOT_OURS


@dataclass(frozen=True, slots=True)
class Shown:
    """An issue, as people see it. ``claims``: marks of claims in comments of the fleets' login."""

    claims: int
    is_in_progress: bool
    is_assigned: bool
    is_open: bool = True
    receipts: int = 0
    # Other labels of fleets.
    others: tuple[str, ...] = ()
    # Names of labels that it has more than once.
    twice: tuple[str, ...] = ()


def unfair(sides: Sequence[Side], *, one_login: bool = True) -> Iterator[str]:
    """Yield what does not hold of two fleets that wanted one issue. With two logins the first one
    may give up for the other, whose login it sees before its claim."""
    have = [side for side in sides if side.confirmed is Result.APPLIED]
    if len(have) > 1:
        yield "both have it"
    for side in sides:
        if side.lost and side.confirmed is not Result.NOT_OURS:
            yield f"{side.name} has it ({side.confirmed.value}), and its mark is gone"
        if side.took and not side.lost and side.confirmed is not Result.APPLIED:
            yield f"{side.name} took it, and has it no more ({side.confirmed.value})"
        if side.confirmed is Result.APPLIED and not side.took:
            yield f"{side.name} has it, and did not take it"
    claimed = [side for side in sides if side.claim]
    first = min(claimed, key=lambda side: side.claim, default=None)
    if first is None:
        yield "nobody has claimed it"
    elif one_login and not first.lost and not first.took:
        yield f"{first.name} has claimed it first, and did not get it"


def unfit(shown: Shown, *, is_claimed: bool) -> Iterator[str]:
    """Yield what does not fit on the forge. ``is_claimed``: one of the fleets has the issue."""
    if shown.claims != is_claimed:
        yield f"{shown.claims} claims are left, {'one' if is_claimed else 'nobody'} has it"
    for what, is_there in (("label", shown.is_in_progress), ("assignee", shown.is_assigned)):
        if is_there != is_claimed:
            has, claimed = "has" if is_there else "has not", "" if is_claimed else "not "
            yield f"it is {claimed}claimed, and {has} the {what} of a claim"
    if shown.others:
        yield f"labels are left: {', '.join(shown.others)}"
    if shown.twice:
        yield f"there are two labels of one name: {', '.join(shown.twice)}"


class Noted:
    """A forge that also writes down the ids of the comments that are made by it."""

    def __init__(self, forge: Forge) -> None:
        self._forge = forge
        self.written = list[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._forge, name)

    def comment(self, number: int, text: str) -> ForgeComment:
        """See ``Forge``."""
        made = self._forge.comment(number, text)
        self.written.append(made.comment_id)
        return made


class Race:
    """Two fleets, one issue, and others who meddle; ``story`` tells of it."""

    def __init__(self, kind: str, seed: int, folder: Path) -> None:
        self._chance = random.Random(f"{kind} {seed}")
        self._tracker: ForgeTracker
        if kind == "gitea":
            self._tracker = GiteaTracker(folder)
        else:
            self._tracker = GitHubTracker(folder, late=LATE_SECONDS)
            self._tracker.at.chance = random.Random(f"late {seed}")
        self._at = self._tracker.at
        self.issue = self._at.issue("wanted by two", "", "ready")
        if isinstance(self._at, Repository) and self._chance.random() < 0.5:
            self._at.label(reading.IN_PROGRESS)  # Else both make it.
        self._key = IssueId(str(self.issue))
        self._filters = Filters(only=(self._key,))
        self.sides = [Side("the first"), Side("the second")]
        self._actors = [f"beads-workers/host-{n}/run-{seed}" for n in range(2)]
        self._tracker.allow(LOGINS[1])
        logins = self._chance.choice((LOGINS, (LOGIN, LOGIN)))
        self._one_login = len({*logins}) == 1
        self._forges = [Noted(self._tracker.forge(login)) for login in logins]
        self._sources = [
            self._source(forge, actor)
            for forge, actor in zip(self._forges, self._actors, strict=True)
        ]
        self.lag = self._forges[0].lag_seconds
        self.story = list[str]()
        self._began = time.monotonic()

    def _source(self, forge: Noted, actor: str) -> ForgeSource:
        return ForgeSource(
            cast(Forge, forge),
            texts_from="writers",
            actor=actor,
            filters=self._filters,
            listed_max=10,
        )

    def tell(self, what: str) -> None:
        """Write down what happens."""
        self.story.append(f"{time.monotonic() - self._began:6.2f} {what}")

    def broken(self) -> Iterator[str]:
        """Run it; yield what does not hold."""
        self._compete()
        self._both(self._confirm)
        yield from unfair(self.sides, one_login=self._one_login)
        winner = next((n for n in (0, 1) if self.sides[n].confirmed is Result.APPLIED), None)
        shown = self._shown()
        self.tell(f"at the end: {shown}")
        if not self._one_login and all(side.lost for side in self.sides):
            return  # Whose login is assigned frees it a minute later.
        yield from unfit(shown, is_claimed=winner is not None)
        if winner is None:
            yield from self._next_start()
        else:
            yield from self._ended(self._sources[winner])

    # --- the fleets ---------------------------------------------------------------------------

    def _compete(self) -> None:
        for source in self._sources:
            source.ready()  # Both have seen that it is free.
        late = self._chance.choice((0.0, 0.0, 0.0, self._chance.uniform(0.0, self.lag + 1.0)))
        acts = sorted(self._plan(late), key=lambda act: act[0])
        gate = threading.Barrier(3)

        def take(n: int) -> None:
            gate.wait(60)
            if n == 1:
                time.sleep(late)
            self.tell(f"{self.sides[n].name} asks")
            self.sides[n].took = bool(self._sources[n].take(1, ()).jobs)
            self.sides[n].claim = next(iter(self._forges[n].written), 0)
            self.tell(f"{self.sides[n].name} got it: {self.sides[n].took}")

        with ThreadPoolExecutor(2) as pool:
            ends = [pool.submit(take, n) for n in (0, 1)]
            gate.wait(60)
            began = time.monotonic()
            for at, what, by, which in acts:
                time.sleep(max(0.0, began + at - time.monotonic()))
                self._act(what, by, which)
            for end in ends:
                end.result()

    def _both(self, do: Any) -> None:
        with ThreadPoolExecutor(2) as pool:
            for end in [pool.submit(do, n) for n in (0, 1)]:
                end.result()

    def _confirm(self, n: int) -> None:
        asked = Settlement(Action.CONFIRM, self._key, by_agent=True)
        (said,) = self._sources[n].settle([asked])
        self.sides[n].confirmed = said.result
        self.tell(f"{self.sides[n].name} has it: {said.result.value} {said.error}")

    def _ended(self, source: ForgeSource) -> Iterator[str]:
        """Have it closed or released, and look at what is left."""
        action = self._chance.choice((Action.CLOSE, Action.RELEASE))
        (said,) = source.settle([Settlement(action, self._key, "done, by nobody")])
        if said.result is not Result.APPLIED:
            yield f"{action.value}: {said.result.value} {said.error}"
        shown, is_closed = self._shown(), action is Action.CLOSE
        for each in unfit(shown, is_claimed=False):
            yield f"after its {action.value}: {each}"
        if (shown.is_open, shown.receipts) != (not is_closed, int(is_closed)):
            yield f"after its {action.value}: open {shown.is_open}, {shown.receipts} receipts"

    def _next_start(self) -> Iterator[str]:
        """Start again, as after a crash of both: whoever starts gets it."""
        forge = Noted(self._tracker.forge())
        source = self._source(forge, "beads-workers/host-3/run-3")
        for actor in self._actors:
            source.recover(CrashedRun(actor, begun=(self._key,)))
        for each in unfit(self._shown(), is_claimed=False):
            yield f"after the next start: {each}"
        if not source.take(1, ()).jobs:
            yield "the next start does not get it"
        else:
            yield from self._ended(source)

    # --- what others do -----------------------------------------------------------------------

    def _plan(self, late: float) -> Iterator[tuple[float, str, str, int]]:
        """Yield when who does what to the claim of which place."""
        chance, whole = self._chance, self.lag + late + 0.5
        for _ in range(chance.randrange(1, 5)):
            what = chance.choice(("says", "copies", "copies", "copies as done"))
            yield chance.uniform(0.0, whole), what, chance.choice((EVE, EVE, ALICE)), 0
        if chance.random() < 0.5:
            for _ in range(chance.choice((1, 1, 2))):
                what = chance.choice(("deletes", "deletes", "blanks", "touches"))
                which = chance.choice((0, 0, -1))
                yield chance.uniform(0.1, whole), what, chance.choice((ROOT, ALICE)), which

    def _act(self, what: str, by: str, which: int) -> None:
        found = [each for each in self._at.comments(self.issue) if _is_claim(each)]
        if what == "says":
            self._at.comment(self.issue, "Any news? @fleet /close", by=by)
            self.tell(f"{by} says something")
        elif what.startswith("copies"):
            actor = self._chance.choice(self._actors)
            copied = marks.marked(marks.CLAIM, actor, "A fleet works on this issue.")
            text = found[0]["body"] if found else copied
            if what == "copies as done":
                text = text.replace(f" {marks.CLAIM} ", f" {marks.DONE} ")
            self._at.comment(self.issue, text, by=by)
            self.tell(f"{by} {what} a mark")
        elif found:
            self._spoil(what, by, found[which])

    def _spoil(self, what: str, by: str, claim: dict[str, Any]) -> None:
        key, text = int(claim["id"]), str(claim["body"])
        done = {
            "deletes": lambda: _removed(self._at, key, by),
            "blanks": lambda: _rewritten(self._at, key, "I have it.", by),
            "touches": lambda: _rewritten(self._at, key, f"Hands off, please.\n{text}", by),
        }[what]()
        found = re.findall(r"<!-- beads-workers claim (?:\w+ )?(\w+) -->", text)
        who = next(n for n in (0, 1) if marks.name_of(self._actors[n]) == found[-1])
        self.tell(f"{by} {what} the claim of {self.sides[who].name}: {done}")
        if done and what != "touches":
            self.sides[who].lost = True

    def _shown(self) -> Shown:
        issue = self._at.read(self.issue)
        labels = Counter(str(each["name"]) for each in issue["labels"])
        comments = self._at.comments(self.issue)
        ours = [str(each["body"]) for each in comments if each["user"]["login"] in LOGINS]
        return Shown(
            claims=sum(map(_is_claim, comments)),
            is_in_progress=reading.IN_PROGRESS in labels,
            is_assigned=any(each["login"] in LOGINS for each in issue["assignees"] or ()),
            is_open=issue["state"] == "open",
            receipts=sum(f"beads-workers {marks.DONE} " in text for text in ours),
            others=tuple(e for e in reading.OURS if e in labels and e != reading.IN_PROGRESS),
            twice=tuple(each for each, count in labels.items() if count > 1),
        )


def _is_claim(comment: dict[str, Any]) -> bool:
    is_ours = comment["user"]["login"] in LOGINS
    return is_ours and f"beads-workers {marks.CLAIM} " in comment["body"]


def _removed(at: Repository | github.GitHubServer, key: int, by: str) -> bool:
    """Delete a comment; return whether it was there."""
    if isinstance(at, Repository):
        path = f"{at.path}/issues/comments/{key}"
        return at.server.user(by).ask("DELETE", path, fails=True) is None
    with at.lock:
        is_there = any(e["id"] == key for row in at.rows.values() for e in row["comments"])
        at.remove_comment(key)
    return is_there


def _rewritten(at: Repository | github.GitHubServer, key: int, text: str, by: str) -> bool:
    """Replace a comment; return whether it was there."""
    if isinstance(at, Repository):
        path = f"{at.path}/issues/comments/{key}"
        return "id" in at.server.user(by).ask("PATCH", path, {"body": text}, fails=True)
    with at.lock:
        return at.edit_comment(key, text)


def race(kind: str, seed: int) -> list[str]:
    """Run one race; return what does not hold, with its story."""
    with tempfile.TemporaryDirectory(prefix="beads-workers-proof-") as folder:
        run = Race(kind, seed, Path(folder))
        try:
            found = list(run.broken())
        except Exception as error:  # It is told; the others go on.
            traceback.print_exc()
            found = [f"{type(error).__name__}: {error}"]
    if found:
        sys.stderr.write("\n".join([f"--- {kind} race {seed}: {found}", *run.story, ""]))
    return [f"{kind} race {seed}: {each}" for each in found]


def races(count: int, seed: int, kinds: Sequence[str], jobs: int, told: Told) -> None:
    """Run so many, of all kinds alike."""
    chosen = [(kinds[n % len(kinds)], seed + n // len(kinds)) for n in range(count)]
    if "gitea" in kinds:
        for name in (*LOGINS, EVE):
            server().user(name)
    github.certificate()
    pool = ThreadPoolExecutor(jobs)
    running: dict[Future[list[str]], str] = {}
    try:
        running = {pool.submit(race, *each): each[0] for each in chosen}
        for future in as_completed(running):
            told.note(f"{running[future]} races", future.result())
    finally:
        pool.shutdown(cancel_futures=True)


# --- kills ---------------------------------------------------------------------------------------

ISSUES = 40
WAITS_SHARE = 0.3
LEFT = 4
"""With so few open issues, nothing is killed any more."""
TARGETS = {"fleet": 3, "worker": 3, "agent": 3, "gitea": 2}
APART_SECONDS = (0.3, 3.0)
DOWN_SECONDS = (0.1, 3.0)
TARGET_SECONDS = 5.0
"""Time in which there is an agent that can be killed, or another target is chosen."""
LAST_SECONDS = 300.0
WORKERS = 3
WORK = """\
said() {{ echo "$1 $BW_ISSUE_ID $$ $(date +%s.%N)" >>"{hands}/log"; }}
exec 9>>"{hands}/$BW_ISSUE_ID"
flock -n 9
if [ $? = 1 ]; then said twice; fi
said begin
sleep 0.$((BW_ISSUE_ID * 7 % 10))
echo "$BW_ISSUE_ID" >"w$BW_ISSUE_ID"
git add . 9>&-
git diff --cached --quiet || git commit -qm "work on $BW_ISSUE_ID, fixes #1" 9>&- || exit 1
sleep 0.3
said end
"""
"""A task holds a lock for as long as a process of it lives."""


@dataclass(slots=True)
class Told:
    """What was done, and what did not hold."""

    wanted: int
    shows: bool = False
    done: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    # Of what else there was so much.
    figures: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    @property
    def cases(self) -> int:
        """Races and kills so far."""
        return self.done.total()

    def note(self, what: str, broken: Sequence[str] = (), amount: int = 1) -> None:
        """Count one that has ended."""
        if amount:
            self.done[what] += amount
        self.failed[what] += bool(broken)
        self.violations += broken
        if self.shows:
            seen = f", {len(self.violations)} BROKEN" if self.violations else ""
            line = f"{self.cases} of {self.wanted} cases ({what}{seen})\n"
            sys.stderr.write(line)

    def end(self, name: str, seconds: float, *, as_json: bool) -> int:
        """Print all of it; return the exit status of the program of this name."""
        failed = {f"{what} that did not hold": n for what, n in self.failed.items() if n}
        figures = {**self.done, **self.figures, **failed}
        if as_json:
            result = {"cases": self.cases, "seconds": seconds, name: figures}
            print(json.dumps({**result, "violations": self.violations}))
        else:
            shown = [f"{n} {what}" for what, n in figures.items() if n]
            print("\n".join([*self.violations, *shown]))
        return int(bool(self.violations))


class Killed:
    """A project whose issues fleets work on, while they and the one Gitea are killed.

    Subclasses say what is started, and what an agent is; ``figures``: what else is to be told.
    """

    targets: Mapping[str, int] = TARGETS
    apart_seconds = APART_SECONDS
    last_seconds = LAST_SECONDS
    ends_with: tuple[int, ...] = (0,)
    """Exit statuses of a run that has come to its end."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self._chance = random.Random(f"kills {seed}")
        self._hands = folder / "hands"
        self._hands.mkdir()
        self._fleets = list[Fleet]()
        self.killed, self.figures = Counter[str](), Counter[str]()
        self.story = list[str]()
        self.broken = list[str]()
        self._began = time.monotonic()

    def _start_fleet(self) -> Fleet:
        raise NotImplementedError

    def _open(self) -> int:
        """Return how many issues are to be closed yet."""
        raise NotImplementedError

    def _is_agent(self, said: Sequence[str]) -> bool:
        """Return whether these are the words of an agent's command line."""
        raise NotImplementedError

    def judged(self) -> Iterator[str]:
        """Yield what does not hold once all is done."""
        raise NotImplementedError

    def tell(self, what: str) -> None:
        """Write down what happens."""
        self.story.append(f"{time.monotonic() - self._began:6.1f} {what}")

    def unfold(self, kills: int, told: Told) -> None:
        """Kill up to so many times while it is worked on, and let it come to its end."""
        self._start()
        while self.killed.total() < kills:
            time.sleep(self._chance.uniform(*self.apart_seconds))
            if self._open() <= LEFT:
                break
            if self._fleets[-1].process.poll() is not None:
                self._over("by itself")
                self._start()
            if what := self._kill():
                self.killed[what] += 1
                told.note("kills")
        self._last()

    @property
    def starts(self) -> int:
        """How many fleets there were."""
        return len(self._fleets)

    def close(self) -> None:
        """End what is left."""
        for fleet in self._fleets:
            fleet.end()

    # --- what is killed -----------------------------------------------------------------------

    def _start(self) -> None:
        self._fleets.append(self._start_fleet())
        self.tell("start")

    def _kill(self) -> str:
        """Kill one of the targets, if there is one; return which."""
        fleet, what = (
            self._fleets[-1],
            *self._chance.choices([*self.targets], [*self.targets.values()]),
        )
        if what == "gitea":
            down = self._chance.uniform(*DOWN_SECONDS)
            self.tell(f"KILL gitea for {down:.1f} s")
            server().kill()
            time.sleep(down)
            server().start()
            return what
        if not self._is_up(fleet):
            return ""
        if what == "fleet":
            self.tell("KILL fleet")
            send(_below([fleet.process.pid, fleet.pid, *fleet.token_holders()]), signal.SIGKILL)
            self._over("killed")
            self._start()
            return what
        find = {"worker": self._workers, "lander": self._landers}.get(what, self._agents)
        deadline = time.monotonic() + TARGET_SECONDS
        while not (pids := find(fleet)):
            if time.monotonic() > deadline or fleet.process.poll() is not None:
                return ""
            time.sleep(0.02)
        pid = self._chance.choice(pids)
        self.tell(f"KILL {what} {pid}")
        send([pid], signal.SIGKILL)
        return what

    def _is_up(self, fleet: Fleet) -> bool:
        until(lambda: "ok fleet" in fleet.errors or fleet.process.poll() is not None)
        return "ok fleet" in fleet.errors and fleet.run_folder.exists()

    def _workers(self, fleet: Fleet) -> list[int]:
        pids = [int(each["pid"]) for each in fleet.journal("worker_started")]
        return [pid for pid in pids if alive(pid) and "beads_workers" in command(pid)]

    def _agents(self, fleet: Fleet) -> list[int]:
        return [pid for pid in fleet.token_holders() if self._is_agent(words(pid))]

    def _landers(self, fleet: Fleet) -> list[int]:
        return [pid for pid in fleet.token_holders() if "landing.run" in command(pid)]

    def _left(self, fleet: Fleet) -> list[int]:
        """Return what lives of a fleet that is over."""
        pids = [
            pid for pid in (fleet.pid, *self._workers(fleet)) if "beads_workers" in command(pid)
        ]
        return [*filter(alive, pids), *fleet.token_holders()]

    def _over(self, how: str) -> None:
        fleet = self._fleets[-1]
        self.tell(f"over, {how}: {fleet.process.wait(30)}")
        if "ok fleet" in fleet.errors:
            try:
                until(lambda: not self._left(fleet), 10.0)
            except AssertionError:
                self.broken.append(f"left, {how}: {[*map(command, self._left(fleet))]}")
        fleet.end()

    def _last(self) -> None:
        """Let it come to its end, which the fleet may do by itself."""
        code = self._fleets[-1].process.wait(self.last_seconds)
        self._over(f"at the end, {code}")
        for _ in range(2):
            if code in self.ends_with:
                return
            self._start()
            code = self._fleets[-1].process.wait(self.last_seconds)
            self._over(f"again, {code}")
        if code not in self.ends_with:
            self.broken.append(f"the last run ended with {code}: {self._fleets[-1].said()[-1500:]}")


class Backlog(Killed):
    """Issues on the real Gitea, which land on a branch of the clone."""

    def __init__(self, folder: Path, seed: int, issues: int) -> None:
        super().__init__(folder, seed)
        self.project, self.issues = GiteaProject(folder), issues
        self._at = self.project.at
        for number in range(1, issues + 1):
            needed = self._chance.randrange(1, number) if number > 1 else 0
            waits = self._chance.random() < WAITS_SHARE and needed
            is_link = self._chance.random() < 0.5
            text = f"blocked by #{needed}" if waits and not is_link else ""
            assert self._at.issue(f"issue {number}", text, "ready") == number
            if waits and is_link:
                self._at.depend(number, needed)

    def _start_fleet(self) -> Fleet:
        script = WORK.format(hands=self._hands)
        attempts = ("--max-attempts", "60", "--retry-delay", "0.2")
        words = ("-n", str(WORKERS), "--worktree", "--until-empty", *attempts)
        return Fleet(self.project, *words, "--", "sh", "-c", script)

    def _open(self) -> int:
        return sum(each["state"] == "open" for each in self._at.all())

    def _is_agent(self, said: Sequence[str]) -> bool:
        return said[0] == "sh" and f"{self._hands}/$BW_ISSUE_ID" in said[-1]

    # --- what must hold -----------------------------------------------------------------------

    def judged(self) -> Iterator[str]:
        """Yield what does not hold once all is done."""
        yield from self.broken
        log = (self._hands / "log").read_text().splitlines()
        for issue in sorted({line.split()[1] for line in log if line.startswith("twice ")}):
            lines = "; ".join(line for line in log if line.split()[1] == issue)
            yield f"#{issue} was worked on twice at once: {lines}"
        for number in range(1, self.issues + 1):
            yield from (f"#{number}: {each}" for each in self._of(number))

    def _events(self, number: int) -> Iterator[dict[str, Any]]:
        page, root = 1, self._at.server.user("root")
        path = f"{self._at.path}/issues/{number}/timeline?limit=50&page="
        while found := root.ask("GET", f"{path}{page}"):
            yield from found
            page += 1

    def _of(self, number: int) -> Iterator[str]:
        issue, comments = self._at.read(number), self._at.comments(number)
        closes = [each["type"] for each in self._events(number)].count("close")
        if (issue["state"], closes) != ("closed", 1):
            yield f"it is {issue['state']}, and was closed {closes} times"
        log = git(self.project.folder, "log", "--format=%H", "bw-landing/main", "--", f"w{number}")
        if len(log.split()) != 1:
            yield f"it has landed {len(log.split())} times"
        if labels := {each["name"] for each in issue["labels"]} & {*reading.OURS}:
            yield f"labels are left: {', '.join(sorted(labels))}"
        if issue["assignees"]:
            yield "it is assigned"
        yield from wordy([str(each["body"]) for each in comments])


def _below(pids: list[int]) -> list[int]:
    """Return these processes and their descendants."""
    found = list(pids)
    for pid in found:
        found += map(int, read(pid, f"task/{pid}/children").split())
    return found


def wordy(texts: Sequence[str]) -> Iterator[str]:
    """Yield what does not hold of the comments of a closed issue: one receipt, and nothing else."""
    kinds = Counter(kind for text in texts for kind in re.findall(r"beads-workers (\w+) ", text))
    if kinds[marks.CLAIM]:
        yield f"{kinds[marks.CLAIM]} claims are left"
    if kinds[marks.DONE] != 1:
        yield f"{kinds[marks.DONE]} receipts: {texts}"
    if len(texts) > 1:
        yield f"{len(texts)} comments: {texts}"


def kills(
    count: int,
    seed: int,
    told: Told,
    issues: int = ISSUES,
    make: Callable[[Path, int, int], Killed] = Backlog,
) -> None:
    """Kill so many times, in as many backlogs as that takes."""
    while (left := count - told.done["kills"]) > 0:
        folder = Path(tempfile.mkdtemp(prefix="beads-workers-forge-"))
        backlog = make(folder, seed, issues)
        try:
            backlog.unfold(left, told)
            found = list(backlog.judged())
        except Exception as error:  # It is told; the others go on.
            traceback.print_exc()
            found = [*backlog.broken, f"{type(error).__name__}: {error}"]
        finally:
            backlog.close()
        if found:
            summary = ", ".join(f"{n} {what}" for what, n in backlog.killed.items())
            lines = [f"--- backlog {seed} in {folder} ({summary}): {found}", *backlog.story]
            sys.stderr.write("\n".join([*lines, ""]))
        else:
            shutil.rmtree(folder, ignore_errors=True)
        told.note("backlogs", [f"backlog {seed}: {each}" for each in found], 0)
        told.figures += Counter({f"kills of {k}": n for k, n in backlog.killed.items()})
        told.figures += Counter({"issues": issues, "backlogs": 1, "starts": backlog.starts})
        told.figures += backlog.figures
        seed += 1


def main(arguments: list[str]) -> int:
    """Return 0 if all held."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.forge", description=__doc__)
    parser.add_argument("--races", type=int, default=RACES)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--only", choices=KINDS, help="races there; kills are on a Gitea")
    parser.add_argument("--seed", type=int, default=1, help="of the first of them")
    parser.add_argument("--jobs", type=int, default=JOBS, help="races side by side")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    said = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    chosen = (said.only,) if said.only else KINDS
    count = 0 if said.only == "github" else said.kills
    told, began = Told(said.races + count, said.progress), time.monotonic()
    races(said.races, said.seed, chosen, said.jobs, told)
    kills(count, said.seed, told)
    return told.end("forge", time.monotonic() - began, as_json=said.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
