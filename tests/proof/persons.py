"""The proof that landing leaves a person's git alone, and takes back only what attempts did.

    python -m tests.proof.persons [--cases N] [--only WORD] [--json] [--progress]

A person moves the integration branch in every way, between runs and beside attempts that look at
it. The move stays; or, if nobody can tell whose it is, landing pauses, the commit is named, and
both commands of the message help. An attempt that moves the branch is found out, also if its
worktree was used again. What waits is never taken to another branch. One more way is one more row.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from beads_workers.attempts.work import Workplace
from beads_workers.checks.worktrees import checked_out
from beads_workers.core.base.model import OutcomeKind
from beads_workers.core.base.settings import FleetSettings, Work
from beads_workers.core.records.journal import Entry, Finished, Started, encode
from beads_workers.core.records.landing import Add
from beads_workers.landing.left_branches import elsewhere
from beads_workers.landing.repository import LandingRepository, Trespass, Unclear
from beads_workers.landing.scratch_merges import Coupled
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.worktrees.branch_movers import name_of
from beads_workers.worktrees.records import Records, WorktreeRecord
from tests.landing.world import BRANCH, LandingWorld, configure_user
from tests.proof.case_runner import run_cases
from tests.support.repository import git

REF = f"refs/heads/{BRANCH}"
RUN = "20260101-000000.000-aaaaaa"
COMMIT = ("commit", "--quiet", "--allow-empty", "-m", "by hand")
WORK = (*COMMIT[:-1], "work")
"""Of the attempt: in the same second, two equal commits would be one."""


class Scene:
    """Two issues have landed. An attempt has its own worktree, and may be under way."""

    def __init__(self, folder: Path) -> None:
        self.world = world = LandingWorld(folder)
        configure_user(world.top, "tester")
        world.main({"m": ""})
        git(world.top, "branch", "dev", "main~1")
        self.repository = world.repository()
        self.one, self.two = (self.lands(world.work(name, {name: ""})) for name in ("o", "t"))
        self.tip, self.records = world.tip(), Records(world.top / ".beads-workers")
        settings = world.settings().worktrees
        self.place = Path(settings.folder, "w1")
        git(world.top, "worktree", "add", "-q", "-b", "bw/x/1", str(self.place), BRANCH)
        self.directory = Path(git(self.place, "rev-parse", "--absolute-git-dir"))
        at = (self.tip, str(self.place), settings.common, RUN, "W1", "t")
        self.record = WorktreeRecord("x.1", "x", 1, "bw/x/1", *at)
        os.close(self.records.begin(self.record))
        self.records.mark(self.record, self.directory, settings)

    def lands(self, add: Add) -> str:
        """As the lander does it."""
        found = self.repository.builder.couple(self.world.tip(), add)
        assert isinstance(found, Coupled)
        return self.repository.land(self.world.tip(), [found.changes])[-1]

    def journal(self, began: float, ended: float | None) -> None:
        """What the run of the attempt says of it."""
        entries = [Entry(Started("x", "W1", 1, f"{RUN}.1"), began, 0.0)]
        if ended is not None:
            end = Finished("x", "W1", 1, f"{RUN}.1", OutcomeKind.SUCCESS.value, "land")
            entries.append(Entry(end, ended, 0.0))
        file = RunDirectory(self.records.state_directory).run(RUN) / "journal.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(map(encode, entries)))
        if ended is not None:
            os.utime(file, (ended, ended))

    def ends(self, *, reused: bool) -> str:
        """The attempt ends as ``attempts`` end it; its worktree may be somebody else's then."""
        why = Workplace.left(self.record).trespass(time.time() - 60.0)
        if reused:
            shutil.rmtree(self.directory / "logs")
            self.records.forget(self.record)
        return why

    def next_lander(self) -> LandingRepository:
        """A lander that knows only what is written down."""
        return LandingRepository(self.world.settings())

    def ask(self) -> Trespass | None:
        """What the next lander finds; raises ``Unclear``."""
        return self.next_lander().trespass(self.world.tip())


# --- what a person does to the integration branch ------------------------------------------------


def _there(scene: Scene, *argv: str, stays: bool) -> None:
    place = scene.world.folder / "mine"
    git(scene.world.top, "worktree", "add", "-q", str(place), BRANCH)
    git(place, *argv)
    git(place, "checkout", "-q", "--detach")
    if not stays:
        git(scene.world.top, "worktree", "remove", "--force", str(place))


def _in_checkout(scene: Scene, *argv: str) -> None:
    git(scene.world.top, "checkout", "-q", BRANCH)
    git(scene.world.top, *argv)
    git(scene.world.top, "checkout", "-q", "main")


def _top(*argv: str) -> Callable[[Scene], object]:
    return lambda scene: git(scene.world.top, *argv)


def _main_pushed(scene: Scene) -> None:
    git(scene.world.top, "checkout", "-q", "-b", "mine", BRANCH)
    git(scene.world.top, *COMMIT)
    git(scene.world.top, "push", "-q", ".", f"mine:{BRANCH}")
    git(scene.world.top, "checkout", "-q", "main")


def _squashed(scene: Scene) -> None:
    git(scene.world.top, "merge", "-q", "--squash", BRANCH)
    git(scene.world.top, "commit", "-q", "-m", "all that landed")


def _anew(scene: Scene) -> None:
    git(scene.world.top, "branch", "-D", BRANCH)
    git(scene.world.top, "branch", BRANCH, "main")


MOVES: dict[str, Callable[[Scene], object]] = {
    "moves it back": _top("branch", "-f", BRANCH, f"{BRANCH}~1"),
    "resets it in the checkout": lambda s: _in_checkout(s, "reset", "-q", "--hard", "HEAD~1"),
    "commits in the checkout": lambda s: _in_checkout(s, *COMMIT),
    "amends in the checkout": lambda s: _in_checkout(s, *COMMIT, "--amend"),
    "rebases in the checkout": lambda s: _in_checkout(
        s, "rebase", "-q", "--force-rebase", "--onto", "main", "HEAD~1"
    ),
    "commits in a worktree": lambda s: _there(s, *COMMIT, stays=True),
    "commits in a worktree that goes": lambda s: _there(s, *COMMIT, stays=False),
    "merges in a worktree that goes": lambda s: _there(
        s, "merge", "-q", "--no-ff", "-m", "merged", "main~1", "dev", stays=False
    ),
    "merges an attempt's branch": lambda s: _in_checkout(s, "merge", "-q", "--ff-only", "bw/x/1"),
    "pushes": _main_pushed,
    "sets it to main": _top("branch", "-f", BRANCH, "main"),
    "deletes it and makes it anew": _anew,
    "squash-merges it into main": _squashed,
    "renames main": _top("branch", "-m", "main", "trunk"),
    "renames it and back": lambda s: (
        [git(s.world.top, "branch", "-m", *pair) for pair in ((BRANCH, "b"), ("b", BRANCH))]
        and None
    ),
}


def _looks(scene: Scene) -> None:
    """The attempt looks at what is there, and works on; that moves nothing."""
    git(scene.place, "checkout", "-q", "--detach", BRANCH)
    git(scene.place, "checkout", "-q", "bw/x/1")
    git(scene.place, "merge", "-q", "--no-edit", BRANCH)


def person(folder: Path, move: str, *, beside: bool, reused: bool) -> Iterator[str]:
    """``beside``: while the attempt is under way."""
    scene, now = Scene(folder), time.time()
    git(scene.place, *WORK)
    scene.journal(now - 60.0, None if beside else now - 30.0)
    if not beside:
        scene.ends(reused=reused)
    MOVES[move](scene)
    tip = scene.world.tip()
    if beside:
        _looks(scene)
        if scene.ends(reused=reused):
            yield "the attempt is accused at its end"
    try:
        if found := scene.ask():
            yield f"accused: {found}"
    except Unclear as why:
        if not beside:
            yield f"unclear, though no attempt was under way: {why}"
        yield from _way_out(scene, str(why), tip)
    if scene.world.tip() != tip:
        yield "the person's move is undone"


def _way_out(scene: Scene, why: str, tip: str) -> Iterator[str]:
    """Both commands of the message, each from here."""
    keeps, takes = re.findall(r"'git (update-ref [^']+)'", why)
    if tip[:12] not in why:
        yield f"the commit is not named: {why}"
    git(scene.world.top, *shlex.split(keeps))
    if scene.ask() is not None or scene.world.tip() != tip:
        yield "'lands on it' does not help"
    git(scene.world.top, "update-ref", "-d", shlex.split(keeps)[1])
    git(scene.world.top, *shlex.split(takes))
    if scene.ask() is not None or scene.world.tip() != scene.tip:
        yield "'takes it back' does not help"
    git(scene.world.top, *shlex.split(keeps))
    git(scene.world.top, "update-ref", REF, tip)


# --- what an attempt does to it ------------------------------------------------------------------


def _on_it(*argv: str) -> Callable[[Scene], object]:
    def does(scene: Scene) -> None:
        git(scene.place, "checkout", "-q", BRANCH)
        git(scene.place, *argv)
        git(scene.place, "checkout", "-q", "--detach")

    return does


def _from_its_own(*argv: str) -> Callable[[Scene], object]:
    return lambda scene: (git(scene.place, *WORK), git(scene.place, *argv))


TRESPASSES: dict[str, Callable[[Scene], object]] = {
    "commits on it": _on_it(*WORK),
    "amends it": _on_it(*WORK, "--amend"),
    "resets it": _on_it("reset", "-q", "--hard", "HEAD~1"),
    "pushes to it": _from_its_own("push", "-q", ".", f"+HEAD:{BRANCH}"),
    "forces it": _from_its_own("branch", "-f", BRANCH, "HEAD"),
    "updates it": _from_its_own("update-ref", REF, "HEAD"),
}
TIMES = ("while it runs", "at its end", "at its end, reused", "killed")


def attempt(folder: Path, does: str, when: str, *, after_person: bool) -> Iterator[str]:
    """``after_person``: who had moved it before, between the runs."""
    scene, now = Scene(folder), time.time()
    if after_person:
        MOVES["commits in the checkout"](scene)
        scene.ask()
    before = scene.world.tip()
    scene.journal(now - 1.0, None)
    TRESPASSES[does](scene)
    moved = scene.world.tip()
    if when.startswith("at its end"):
        if moved[:12] not in scene.ends(reused=when.endswith("reused")):
            yield "the attempt itself does not see it at its end"
        scene.journal(now - 1.0, time.time())
    found = scene.ask()
    if found != Trespass((name_of(RUN, "x", 1),), moved, before):
        yield f"not found out: {found}"
        return
    lander = scene.next_lander()
    lander.mark_trespass(found)
    lander.take_back(found)
    if scene.world.tip() != before or scene.ask() is not None:
        yield "it is not taken back"
    git(scene.world.top, "update-ref", REF, moved)
    scene.journal(now - 60.0, now - 30.0)
    if scene.ask() is not None:
        yield "a person who keeps the commit later is not left alone"


# --- what waits, and another branch --------------------------------------------------------------

WAYS = {
    "switches": ("switch", "-q", "dev"),
    "makes a branch": ("switch", "-q", "-c", "new"),
    "detaches": ("checkout", "-q", "--detach"),
    "stays": ("status",),
}


def waits(folder: Path, way: str, style: str, *, lands: bool) -> Iterator[str]:
    """``lands``: it awaits approval in a run that lands; else it is of a run with ``--no-land``."""
    scene = Scene(folder)
    world, state = scene.world, scene.records.state_directory
    settings = world.settings()
    work = Work(worktrees=replace(settings.worktrees, on=checked_out(world.top)))
    landing = settings.landing if lands else None
    fleet = FleetSettings(1, "sqlite", "", str(world.top), str(state), work, landing=landing)
    RunDirectory(state).run("run-1").mkdir(parents=True)
    RunDirectory(state).write_settings("run-1", fleet)
    base = git(world.top, "rev-parse", "main")
    add = world.work("w", {"w": ""}, base)
    git(world.top, *WAYS[way])
    on = checked_out(world.top)
    found = elsewhere(state, f"bw-landing/{on}", "run-1") if on else None
    if (on not in ("", "main")) != (found is not None):
        yield f"on {on or 'no branch'} it says {found}"
    if found:
        git(world.top, *shlex.split(found[1])[1:])
        if elsewhere(state, f"bw-landing/{checked_out(world.top)}", "run-1"):
            yield f"{found[1]} does not help"
    for onto in ("dev", "main", scene.tip):
        at = git(world.top, "rev-parse", onto)
        builder = world.repository(style=style).builder
        coupled = builder.couple(at, add)
        if not isinstance(coupled, Coupled):
            yield f"it does not merge with {onto}: {coupled}"
            continue
        brought = git(world.top, "diff", "--name-only", at, coupled.commit).split()
        merged = git(world.top, "merge-base", at, base) == base
        if brought != ["w"]:
            yield f"to {onto} it brings {brought}"
        if not merged and any(change.merged for change in coupled.changes):
            yield f"to {onto} it brings the history of main"


def waits_on_it(folder: Path, move: str, style: str) -> Iterator[str]:
    """A person moves the integration branch itself while a finished branch waits for it."""
    scene, now = Scene(folder), time.time()
    scene.journal(now - 60.0, now - 30.0)
    world = scene.world
    add = world.work("w", {"w": ""}, git(world.top, "rev-parse", "main"))
    MOVES[move](scene)
    tip = world.tip()
    if found := scene.ask():
        yield f"accused: {found}"
    coupled = world.repository(style=style).builder.couple(tip, add)
    if not isinstance(coupled, Coupled):
        yield f"it does not merge: {coupled}"
        return
    if git(world.top, "diff", "--name-only", tip, coupled.commit).split() != ["w"]:
        yield "it brings more than was shown"
    scene.next_lander().land(tip, [coupled.changes])
    if git(world.top, "merge-base", "--is-ancestor", tip, BRANCH):
        yield "what the person did is lost when it lands"
    if scene.ask() is not None:
        yield "what the lander did is taken for an attempt's"


# --- all of them ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """One row. ``tried``: yields what does not hold."""

    name: str
    tried: Callable[[Path], Iterator[str]]


def cases() -> list[Case]:
    """Mixed, so that a share has some of each."""
    both = (False, True)
    found = [
        Case(
            f"a person {move}, {'beside an attempt' if beside else 'between runs'}"
            f"{', reused' if reused else ''}",
            lambda at, m=move, b=beside, r=reused: person(at, m, beside=b, reused=r),  # type: ignore[misc]
        )
        for move, beside, reused in product(MOVES, both, both)
    ]
    found += [
        Case(
            f"an attempt {does}, seen {when}{', after a person' if later else ''}",
            lambda at, d=does, w=when, a=later: attempt(at, d, w, after_person=a),  # type: ignore[misc]
        )
        for does, when, later in product(TRESPASSES, TIMES, both)
    ]
    found += [
        Case(
            f"work waits ({'approval' if lands else '--no-land'}), a person {way}, {style}",
            lambda at, w=way, s=style, n=lands: waits(at, w, s, lands=n),  # type: ignore[misc]
        )
        for way, style, lands in product(WAYS, ("squash", "rebase", "merge"), both)
    ]
    found += [
        Case(
            f"work waits, a person {move}, {style}",
            lambda at, m=move, s=style: waits_on_it(at, m, s),  # type: ignore[misc]
        )
        for move, style in product(MOVES, ("squash", "rebase", "merge"))
    ]
    step = 29  # No divisor of their number.
    return [found[number * step % len(found)] for number in range(len(found))]


CASES = len(cases())


def main(arguments: list[str]) -> int:
    """0 when all held."""
    return run_cases("persons", __doc__, cases(), lambda case, at: case.tried(at), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
