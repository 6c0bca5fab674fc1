"""Submodules: every place that asks what lies in their folders, and every way to differ there.

    scripts/prove submodules
    python -m tests.proof.submodules [--cases N] [--only WORD] [--json] [--progress]

The library is a submodule of the project, and has a submodule of its own, which ``ignore`` hides.
What a check saw is compared, file for file, with a fresh clone of the commit that it saw it for.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from beads_workers.attempts.work import CannotCommit, Workplace
from beads_workers.core.records.landing import Add, LanderSettings
from beads_workers.core.records.receipts import Receipt
from beads_workers.landing.queue import GateVerdict
from beads_workers.landing.undo import Undo
from beads_workers.worktrees import pool
from beads_workers.worktrees.making import CannotPrepare
from tests.landing.program import Program
from tests.landing.test_gate import Lane
from tests.landing.world import BRANCH, LandingWorld, configure_user
from tests.support.repository import IDENTITY, git, make_repository
from tests.support.worktrees import World, ruled
from tests.worktrees.test_reuse import land

PROMISE = "a close has the submodules that its check saw, and everybody can fetch them"
FILL = "git submodule --quiet update --init --recursive"
SEEN = "find . -name .git -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha1sum"
CONFIGURATION = """[protocol "file"]
	allow = always
[user]
	name = tester
	email = tester@localhost
[maintenance]
	auto = false
[filter "lfs"]
	clean = sed s/^real/pointer/
	smudge = sed s/^pointer/real/
"""


@dataclass(frozen=True)
class Change:
    """What is done in a worktree. ``lands``: as it is; all else is refused without a push."""

    script: str
    lands: bool = False


CHANGES: Mapping[str, Change] = {
    "pointer moved": Change("git -C libs/lib checkout -q origin/two", lands=True),
    "commit nowhere": Change('cd libs/lib; echo v3 >lib.txt; git commit -qam "v3 of $$"'),
    "uncommitted": Change("echo v2 >libs/lib/lib.txt"),
    "new file": Change("echo new >libs/lib/new.txt"),
    "ignore = dirty": Change(
        "git config -f .gitmodules submodule.libs/lib.ignore dirty; echo v2 >libs/lib/lib.txt"
    ),
    "nested": Change("echo c2 >libs/lib/core/core.txt"),
    "removed": Change("git rm -qf libs/lib", lands=True),
    "added": Change(f'git submodule --quiet add "$LIB" libs/more; {FILL}', lands=True),
    "LFS attributes": Change("git -C libs/lib checkout -q origin/big", lands=True),
}


class Project:
    """A project with the library at ``libs/lib``, and what a fresh clone of it has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "seen").mkdir()
        core, lib = make_repository(folder / "core"), make_repository(folder / "lib")
        self.sh(core, "echo c1 >core.txt; git add -A; git commit -qm c1")
        self.sh(
            lib,
            f"""echo v1 >lib.txt; git submodule --quiet add {core} core
            git config -f .gitmodules submodule.core.ignore all; git add -A; git commit -qm v1
            git checkout -qb two; echo v2 >lib.txt; git commit -qam v2; git checkout -qb big main
            echo '*.bin filter=lfs' >.gitattributes; echo real thing >a.bin; git add -A
            git commit -qm big; git checkout -q main""",
        )

    def sh(self, folder: Path, script: str) -> str:
        """Run a script there."""
        known, argv = {**os.environ, "LIB": str(self.folder / "lib")}, ["sh", "-ec", script]
        done = subprocess.run(argv, cwd=folder, env=known, capture_output=True, check=False)
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout.decode()

    def equip(self, top: Path) -> None:
        """Add the library to this repository."""
        self.sh(top, f'git submodule --quiet add "$LIB" libs/lib; {FILL}; git commit -qm lib')

    def commit(self, folder: Path, change: str = "") -> str:
        """Make a change there, and commit it with git alone; return the commit."""
        self.sh(folder, f"({change or ':'}); git add -A; git commit -qm work --allow-empty")
        return git(folder, "rev-parse", "HEAD")

    def clone(self, top: Path, commit: str) -> str:
        """What a fresh clone of the commit has; "" if nobody can make one."""
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            script = f"git clone -qns {top} c; cd c; git checkout -q {commit}"
            self.sh(Path(place), script)
            try:
                return self.sh(Path(place, "c"), f"{FILL}; {SEEN}")
            except AssertionError:
                return ""

    def differs(self, top: Path, commit: str, folder: Path) -> list[str]:
        """How a folder differs from a fresh clone of the commit, if there can be one."""
        clone, seen = self.clone(top, commit), self.sh(folder, SEEN)
        rows = {*clone.splitlines()} ^ {*seen.splitlines()}
        return [f"not as a clone of {commit[:7]}: {sorted(rows)}"] if clone and rows else []


# --- attempts ------------------------------------------------------------------------------------


@contextmanager
def attempt(project: Project) -> Iterator[tuple[LandingWorld, Workplace]]:
    """An attempt in a worktree with its submodules."""
    world = LandingWorld(project.folder / "landing")
    configure_user(world.top, "tester")
    project.equip(world.top)
    tree, before = project.folder / "tree", dict(os.environ)
    git(world.top, "worktree", "add", "--quiet", "-b", "bw/i-1/1", str(tree), "main")
    project.sh(tree, FILL)
    base = git(tree, "rev-parse", "HEAD")
    os.environ |= {"BW_WORKTREE": str(tree), "BW_BRANCH": "bw/i-1/1", "BW_BASE": base}
    try:
        yield world, Workplace.enter(str(tree), "i-1", 1, "run")
    finally:
        os.environ.clear()
        os.environ.update(before)


def committed(project: Project, world: LandingWorld, work: Workplace) -> list[str]:
    """Have it committed; what is wrong with what the branch has then."""
    work.commit("Work")
    receipt = work.receipt(Receipt())
    wrong = [] if work.changes().any else ["it has changed nothing"]
    wrong += [] if not work.status()[2] else [f"left: {work.status()[2]}"]
    return [*wrong, *project.differs(world.top, receipt.head, Path(work.folder))]


def in_attempt(project: Project, change: Change) -> list[str]:
    """Its work is refused by name, or the branch has what lies there."""
    with attempt(project) as (world, work):
        project.sh(Path(work.folder), change.script)
        try:
            wrong = committed(project, world, work)
        except CannotCommit as refused:
            wrong = [] if work.changes().any else ["nothing has changed"]
            said = str(refused).startswith("libs/lib") and "is a submodule: " in str(refused)
            return wrong if said and not change.lands else [f"refused: {refused}"]
        return wrong if change.lands else ["not refused", *wrong]


def in_fix_round(project: Project, change: Change) -> list[str]:
    """What was refused is taken back; the rest of the work lands."""
    with attempt(project) as (world, work):
        project.sh(Path(work.folder), f"({change.script}); echo 1 >work.txt")
        with suppress(CannotCommit):
            work.commit("Work")
        back = "git reset -q --hard; git clean -qffd"
        project.sh(
            Path(work.folder),
            f"{FILL} --force; git submodule foreach -q --recursive '{back}'"
            if change.lands
            else f"cd libs/lib; git checkout -q -f origin/main; {FILL} --force; {back}",
        )
        return committed(project, world, work)


def pushed(project: Project, change: Change) -> list[str]:
    """With ``[landing] submodules``, all of it lands."""
    with attempt(project) as (world, work):
        work.pushes = True
        project.sh(Path(work.folder), change.script)
        wrong = committed(project, world, work)
        return wrong or ([] if project.clone(world.top, "bw/i-1/1") else ["nobody can clone it"])


def repaired(project: Project, change: Change) -> list[str]:
    """The merge of what has landed takes the submodules along, and the next commit keeps them."""
    with attempt(project) as (world, work):
        (Path(work.folder) / "work.txt").write_text("1\n")
        work.commit("Work")
        git(world.desk, "checkout", "--quiet", "--detach", "main")
        project.sh(world.desk, FILL)
        tip = project.commit(world.desk, change.script)
        if not change.lands:
            project.sh(Path(work.folder), change.script)
        wrong = [f"conflicts in {each}" for each in work.merge(tip)]
        # What has been added meanwhile is empty until somebody fills it.
        project.sh(Path(work.folder), f"test ! -d libs/more || {FILL} libs/more; echo 1 >more.txt")
        wrong += committed(project, world, work)
        named = [git(world.top, "ls-tree", each, "libs/") for each in (tip, "bw/i-1/1")]
        return wrong if named[0] == named[1] else [*wrong, f"landed, and taken back: {named}"]


def reviewed(project: Project, change: Change) -> list[str]:
    """The reviewer sees the commits of submodules, and nothing that does not land."""
    with attempt(project) as (_, work):
        project.sh(Path(work.folder), change.script)
        seen, size = work.diff(), work.diffstat()
        is_moved = change.lands or change is CHANGES["commit nowhere"]
        ok = ("Submodule libs/" in seen) == is_moved and "dirty" not in seen.replace("= dirty", "")
        return [] if ok and (size != "") == (seen != "") else [f"the diff: {size}\n{seen}"]


# --- worktrees -----------------------------------------------------------------------------------


def worktrees(project: Project, **settings: object) -> World:
    """A run whose worktrees are filled by the set-up."""
    world = World(project.folder / "world")
    project.equip(world.top)
    folder = str(project.folder / "trees")
    world.settings = ruled(world.settings, folder=folder, setup=FILL, **settings)
    return world


def used_again(project: Project, change: Change) -> list[str]:
    """The next attempt has what its base names."""
    world = worktrees(project, reuse=2)
    first = world.make("one")
    if change.lands:
        project.commit(first.folder, change.script)
    land(world, first)
    if not change.lands:
        project.sh(first.folder, change.script)
    second = world.make("two")
    return project.differs(world.top, second.record.base, second.folder)


def ahead(project: Project, change: Change) -> list[str]:
    """An attempt has what its base names, if a worktree was to be made ahead for another one."""
    world = worktrees(project, pool=2)
    with suppress(pool.NotAhead):
        pool.make_free(world.settings, world.records, world.run_id)
        return ["a worktree with submodules was made ahead"]
    base = project.commit(world.top, change.script)
    try:
        return project.differs(world.top, base, world.make("one").folder)
    except CannotPrepare as refused:
        clone = project.clone(world.top, base)
        return [] if not clone and "setup failed" in str(refused) else [f"refused: {refused}"]


# --- gates ---------------------------------------------------------------------------------------


def gates(project: Project) -> tuple[LandingWorld, LanderSettings, str]:
    """Their project and settings, and the commit of the change's base."""
    world = LandingWorld(project.folder / "landing")
    configure_user(world.top, "tester")
    project.equip(world.top)
    world.start = git(world.top, "rev-parse", "main")
    git(world.desk, "checkout", "--quiet", "--detach", world.start)
    project.sh(world.desk, FILL)
    verify = f'{SEEN} >"{project.folder}/seen/$(git rev-parse HEAD^{{tree}})"'
    found = world.settings(verify, gate_retry_seconds=0.5)
    return world, replace(found, worktrees=ruled(found.worktrees, setup=FILL)), world.start


def judged(project: Project, lane: Lane, commit: str) -> list[str]:
    """Gate a commit; what is wrong with what the check saw."""
    result = lane.gate(commit)
    if result.verdict is GateVerdict.NONE and not project.clone(lane.world.top, commit):
        return [] if "libs/lib" in f"{result.why}{result.text}" else [f"not by name: {result.why}"]
    if result.verdict is not GateVerdict.GREEN:
        return [f"{result.verdict}: {result.why} {result.text}"]
    return as_seen(project, lane.world, commit)


def as_seen(project: Project, world: LandingWorld, commit: str) -> list[str]:
    """Whether the check of this commit's tree saw what a clone has."""
    file = project.folder / "seen" / git(world.top, "rev-parse", f"{commit}^{{tree}}")
    clone, seen = project.clone(world.top, commit), file.read_text() if file.exists() else "nothing"
    rows = {*clone.splitlines()} ^ {*seen.splitlines()}
    return [f"seen, and not in a clone of {commit[:7]}, or not seen: {sorted(rows)}"] * bool(rows)


def in_gate(project: Project, change: Change) -> list[str]:
    """A new gate."""
    world, settings, _ = gates(project)
    commit = project.commit(world.desk, change.script)
    return judged(project, Lane(world, settings), commit)


def in_used_gate(project: Project, change: Change) -> list[str]:
    """A gate that has judged the base, and in which the check has done the same."""
    world, settings, base = gates(project)
    commit, lane = project.commit(world.desk, change.script), Lane(world, settings)
    wrong = judged(project, lane, base)
    project.sh(lane.path, change.script)
    wrong += [f"used: {each}" for each in judged(project, lane, commit)]
    return [*wrong, *(f"back: {each}" for each in judged(project, lane, base))]


def added(project: Project, world: LandingWorld, issue_id: str, script: str, base: str) -> Add:
    """A finished branch with this change."""
    git(world.desk, "checkout", "--quiet", "--force", "--detach", base)
    project.sh(world.desk, f"git clean -qffd; {FILL} --force")
    project.commit(world.desk, script)
    return world.added(issue_id, base, branch=f"bw/{issue_id}/1")


def in_train(project: Project, change: Change) -> list[str]:
    """Several branches at once."""
    world, settings, base = gates(project)
    adds = [added(project, world, "a", f"({change.script}); echo 1 >a.txt", base)]
    adds += [added(project, world, each, f"echo 1 >{each}.txt", base) for each in "bc"]
    program = Program(settings, *adds)
    program.idle("a", "b", "c")
    program.end()
    nobody = change is CHANGES["commit nowhere"]
    ok = program.landed == ({"b", "c"} if nobody else {"a", "b", "c"})
    return [*([] if ok else [f"landed: {program.landed}"]), *as_seen(project, world, BRANCH)]


def undone(project: Project, change: Change) -> list[str]:
    """Undo of it; of what is refused, in a gate where the check has done the same."""
    world, settings, base = gates(project)
    adds = [added(project, world, "a", change.script if change.lands else "echo 1 >a.txt", base)]
    adds += [added(project, world, "b", "echo 1 >b.txt", base)]
    program = Program(settings, *adds)
    program.idle("a", "b")
    program.end()
    if not change.lands:
        for place in project.folder.rglob("bw-gate-*/libs/lib/lib.txt"):
            project.sh(place.parent.parent.parent, change.script)
    Undo(settings, ("a",)).run()
    left = git(world.top, "ls-tree", "-r", BRANCH, "libs/") == git(
        world.top, "ls-tree", "-r", base, "libs/"
    )
    return [*([] if left else ["not undone"]), *as_seen(project, world, BRANCH)]


PLACES: Mapping[str, Callable[[Project, Change], list[str]]] = {
    "attempt": in_attempt,
    "fix round": in_fix_round,
    "push": pushed,
    "re-use": used_again,
    "pool": ahead,
    "gate": in_gate,
    "re-used gate": in_used_gate,
    "train": in_train,
    "repair": repaired,
    "undo": undone,
    "review": reviewed,
}
CASES = [f"{place}: {change}" for change in CHANGES for place in PLACES]


@contextmanager
def configured(folder: Path) -> Iterator[None]:
    """Nobody's own configuration takes part, and submodules may be on this disk."""
    configuration = folder / "gitconfig"
    configuration.write_text(CONFIGURATION)
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith(("GIT_", "BW_"))]:
        del os.environ[name]
    os.environ |= {
        "GIT_CONFIG_GLOBAL": str(configuration),
        "GIT_CONFIG_NOSYSTEM": "1",
        **{name: text for name, text in IDENTITY.items() if "CONFIG" not in name},
    }
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def tried(case: str, folder: Path) -> list[str]:
    """Try it in a new folder; what is wrong."""
    place, _, change = case.partition(": ")
    with configured(folder):
        return PLACES[place](Project(folder), CHANGES[change])


def main(arguments: list[str]) -> int:
    """0 if nothing is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=len(CASES))
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    said = parser.parse_args(arguments)
    began, broken = time.monotonic(), list[str]()
    chosen = [case for case in CASES if said.only in case][: said.cases]
    for count, case in enumerate(chosen):
        if said.progress:
            seen = f", {len(broken)} BROKEN" if broken else ""
            print(f"{count} of {len(chosen)} cases ({case}){seen}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="bw-submodules-") as folder:
            try:
                with redirect_stdout(sys.stderr):
                    found = tried(case, Path(folder).resolve())
                broken += [f"{case}: {each}" for each in found]
            except Exception as error:  # It is told; the others go on.
                traceback.print_exc()
                broken.append(f"{case}: {type(error).__name__}: {error}")
    promise = {"text": PROMISE, "broken": broken, "seconds": None}
    told = {"cases": len(chosen), "seconds": time.monotonic() - began, "promises": [promise]}
    print(json.dumps(told) if said.json else "\n".join([*broken, f"{len(chosen)} cases"]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
