"""The proof of accounts: whose fault a set-up is, and what an attempt does to what all share.

    python -m tests.proof.whose [--cases N] [--json] [--progress]

A set-up that fails with a branch, and passes without it, is the branch's fault; any other failure
of one convicts nobody. What an attempt, or a set-up, changes in the repository that all share is
named, and costs no other attempt its work, its name, or its worktree. One more case is one more
row of ``CASES``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from beads_workers.attempts.run import AgentAttempt
from beads_workers.core.base.model import OutcomeKind
from beads_workers.core.records.assignment import AgentSpec, Assignment, AttemptAnswer
from beads_workers.core.records.landing import (
    GoOn,
    LanderSettings,
    LanderWarned,
    LandingPaused,
    Refused,
    refusal_text,
)
from beads_workers.landing.queue import GateVerdict, Queue, Refuse, RunGate, WaitingBranch
from beads_workers.worktrees.removal import tidy_run
from tests.landing.program import Program
from tests.landing.world import LandingWorld, configure_user, use_our_configuration
from tests.proof.case_runner import run_cases
from tests.support.repository import git
from tests.support.worktrees import Place, World, ruled

RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "ok"}
COMMON = "$(git rev-parse --git-common-dir)"
OWN = "$(git rev-parse --git-dir)"
NAMES = "--format=%an %cn"

Broken = Iterator[str]
"""What does not hold, a line each."""


# --- set-ups in gates ----------------------------------------------------------------------------


def lander_of(world: LandingWorld, setup: str, verify: str = "true", **landing: object) -> Program:
    """A lander that runs, with this set-up; its run has a folder, as that of a fleet."""
    settings = world.settings(verify, **landing)
    worktrees = ruled(settings.worktrees, setup=setup)
    Path(worktrees.state_directory, "runs", settings.run_id).mkdir(parents=True, exist_ok=True)
    return Program(LanderSettings(settings.landing, worktrees, settings.run_id, verify, 1.0))


LOCKED = "test ! -e unlocked || { echo 'npm error: no lock'; exit 1; }"


def on_the_branch_only(world: LandingWorld) -> Broken:
    program = lander_of(world, LOCKED)
    program.tell(world.work("bad", {"unlocked": "1"}), world.work("good", {"f": "1"}))
    program.idle("bad", "good")
    program.end()
    refused = [(each.issue_id, each.why) for each in program.of(Refused)]
    if refused != [("bad", "verify")] or program.landed != {"good"} or program.of(LandingPaused):
        yield f"{refused}, landed: {program.landed}, {program.of(LandingPaused)}"
        return
    text = program.of(Refused)[0].text
    if (told := refusal_text("verify", text=text)) != (
        "on its branch, setup failed: exit status 1: npm error: no lock"
    ):
        yield f"told: {told}"


def on_the_base_too(world: LandingWorld) -> Broken:
    down = world.folder / "down"
    down.touch()
    program = lander_of(world, f"test ! -e {down} || {{ echo 'registry is down'; exit 1; }}")
    program.tell(world.work("a", {"f": "1"}), world.work("b", {"g": "1"}))
    paused = program.until(lambda news: isinstance(news, LandingPaused))
    if "verify gave no verdict on" not in paused.why or "registry is down" not in paused.why:
        yield f"paused: {paused.why}"
    down.unlink()
    program.tell(GoOn())
    program.idle("a", "b")
    program.end()
    if program.landed != {"a", "b"} or program.refused:
        yield f"landed: {program.landed}, refused: {program.refused}"


def only_sometimes(world: LandingWorld) -> Broken:
    once = world.folder / "once"
    program = lander_of(world, f"test ! -e f || test -e {once} || {{ touch {once}; exit 1; }}")
    program.tell(world.work("a", {"f": "1"}))
    program.idle("a")
    program.end()
    if program.landed != {"a"} or not once.exists():
        yield f"refused: {program.of(Refused)}"


def that_never_ends(world: LandingWorld) -> Broken:
    program = lander_of(
        *(world, "test ! -e slow || sleep 60"), gate_timeout_seconds=0.5, gate_retry_seconds=1.0
    )
    program.tell(world.work("slow", {"slow": "1"}), world.work("b", {"g": "1"}))
    program.until(lambda news: isinstance(news, Refused))
    program.end()
    (refused,) = program.of(Refused)
    if refused.why != "gate" or "setup failed: it had not ended" not in refused.text:
        yield f"{refused}"


def cleared_by_a_kept_set_up(world: LandingWorld) -> Broken:
    """A green gate that did not run the set-up says nothing of the registry."""
    queue = Queue(2)
    queue.add(WaitingBranch("a"))
    queue.next()
    queue.built(("a",))

    def gate(verdict: GateVerdict, *, set_up: bool) -> RunGate:
        command = queue.next()
        assert isinstance(command, RunGate)
        queue.judged(command.lane, verdict, set_up=set_up)
        return command

    gate(GateVerdict.GREEN, set_up=False)  # The tip, as it was before.
    gate(GateVerdict.RED, set_up=True)
    gate(GateVerdict.RED, set_up=True)
    tip = queue.next()
    if not (isinstance(tip, RunGate) and tip.place == 0 and tip.fresh):
        yield f"the tip is gated as {tip}"
        return
    queue.judged(tip.lane, GateVerdict.GREEN, set_up=False)
    if isinstance(command := queue.next(), Refuse):
        yield "convicted, although no gate has run the set-up since"
        return
    assert isinstance(command, RunGate)
    queue.judged(command.lane, GateVerdict.GREEN, set_up=True)
    if not isinstance(queue.next(), Refuse):
        yield "not convicted, although the set-up works without it"


def that_changes_the_repository(world: LandingWorld) -> Broken:
    program = lander_of(world, "git config core.hooksPath .husky/_")
    program.tell(world.work("a", {"f": "1"}), world.work("b", {"g": "1"}))
    program.idle("a", "b")
    program.end()
    told = {each.text for each in program.of(LanderWarned)}
    if told != {"setup changed what git runs in this repository: core.hookspath"}:
        yield f"told: {told}"


def in_whose_name_it_lands(world: LandingWorld) -> Broken:
    program = lander_of(world, "true")
    program.tell(world.work("a", {"f": "1"}))
    program.idle("a")
    adds = world.work("b", {"g": "1"})
    for role in ("user", "author", "committer"):
        git(world.top, "config", f"{role}.name", "Eve")
        git(world.top, "config", f"{role}.email", "eve@localhost")
    program.tell(adds)
    program.idle("b")
    program.end()
    if (names := git(world.top, "log", "-2", "--format=%cn %ce", world.tip()).split("\n")) != [
        "tester tester@localhost"
    ] * 2:
        yield f"landed by {names}"


# --- attempts ------------------------------------------------------------------------------------


class Bench(World):
    """A run whose agent does what a line of the shell says."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        use_our_configuration(patch)
        patch.chdir(folder)
        super().__init__(folder)
        configure_user(self.top, "tester")
        self.folder, self._patch = folder, patch
        (folder / "bin").mkdir()
        agent = folder / "bin/claude"
        agent.write_text(f"#!/bin/sh\neval \"$DOES\" >&2\necho '{json.dumps(RESULT)}'\n")
        agent.chmod(0o755)
        patch.setenv("PATH", f"{agent.parent}{os.pathsep}{os.environ['PATH']}")
        self.place: Place

    def attempt(self, issue_id: str, does: str, attempt: int = 1, setup: str = "") -> AttemptAnswer:
        """One attempt; the first of each issue is in a new worktree."""
        self.place = self.make(issue_id, attempt, continues=attempt > 1, setup=setup or None)
        self._patch.chdir(self.place.folder)
        for name, text in (self.place.environment | {"DOES": does}).items():
            self._patch.setenv(name, text)
        asked = Assignment(
            *(issue_id, "Add it", {"id": issue_id, "title": "Add it"}, attempt, "r.1"),
            *(self.run_id, "W1", AgentSpec("claude", "claude")),
            guards=str(self.folder / "guards"),
            usage_file=str(self.folder / "usage"),
        )
        answer = AgentAttempt(asked).run()
        for name in self.place.environment:
            self._patch.delenv(name)
        self._patch.chdir(self.folder)
        return answer

    def log(self, *asked: str) -> list[str]:
        """What ``git log`` says of the branch of the last attempt."""
        branch = f"main..{self.place.record.branch}"
        return git(self.top, "log", "--reverse", *asked, branch).split("\n")


ALL = "changed settings that all worktrees share"
RUN = "changed what git runs in this repository"


def a_file_that_only_a_new_line_of_the_exclude_hides(bench: Bench) -> Broken:
    exclude = bench.top / ".git/info/exclude"
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_text("*.cache\n")
    own = bench.attempt("a", f"echo '*.txt' >>{COMMON}/info/exclude; echo 1 >a.txt")
    if f"{ALL}: info/exclude" not in own.receipt.flags:
        yield f"the attempt that hides: {own.receipt.flags}"
    for issue_id in "ab":
        answer = own if issue_id == "a" else bench.attempt("b", "echo 1 >b.txt; echo 1 >b.cache")
        files = git(bench.top, "ls-tree", "--name-only", f"bw/{issue_id}/1").split("\n")
        if answer.outcome is not OutcomeKind.SUCCESS or files != [".gitignore", f"{issue_id}.txt"]:
            yield f"{issue_id}: {answer.outcome}, {answer.error}, {files}"
    if any("b.txt" in flag for flag in answer.receipt.flags):
        yield f"the other attempt: {answer.receipt.flags}"


def a_name_in_the_shared_settings(bench: Bench, role: str) -> Broken:
    commits = "git commit -q --allow-empty -m x"
    eve = f"git config {role}.name Eve; git config {role}.email eve@localhost"
    first = bench.attempt("a", f"{eve}; git config commit.gpgSign true; {commits}; echo 1 >a")
    keys = " ".join(sorted(("commit.gpgsign", f"{role}.email", f"{role}.name")))
    if f"{ALL}: {keys}" not in first.receipt.flags:
        yield f"flags: {first.receipt.flags}"
    names = bench.log(NAMES)
    other = f"git init -q {bench.folder}/o; cd {bench.folder}/o; git config user.name Own"
    bench.attempt("b", f"{commits}; echo 1 >b; {other}; git config user.email o@o; {commits}")
    names += bench.log(NAMES)
    if names != ["tester tester"] * 4:
        yield f"commits by {names}"
    if (own := git(bench.folder / "o", "log", "-1", NAMES)) != "Own Own":
        yield f"in another repository: {own}"


def a_worktree_that_is_destroyed(bench: Bench, destroys: str, kept: str) -> Broken:
    """It is charged to its own issue, and the second attempt is in a new worktree."""
    first = bench.attempt("a", f"echo 1 >a.py; {destroys}")
    if first.outcome is not OutcomeKind.ERROR or first.unprepared or kept not in first.error:
        yield f"{first.outcome}, unprepared: {first.unprepared}, {first.error}"
    if kept and git(bench.top, "show", "refs/bw/attempts/a/1:a.py", check=False) != "1":
        yield f"its files are not kept: {first.receipt.flags}"
    broken = bench.place.folder
    second = bench.attempt("a", "echo 2 >a.py", attempt=2)
    if second.outcome is not OutcomeKind.SUCCESS or bench.place.folder == broken:
        yield f"the second attempt in {bench.place.folder}: {second.outcome}, {second.error}"


def a_world_in_which_nothing_can_be_committed(bench: Bench) -> Broken:
    (bench.top / ".git/info").mkdir(exist_ok=True)
    (bench.top / ".git/info/attributes").write_text("*.py filter=gone\n")
    for key, setting in (("clean", "/no/such/program"), ("required", "true")):
        git(bench.top, "config", f"filter.gone.{key}", setting)
    answer = bench.attempt("a", "echo 1 >a.py")
    if answer.outcome is not OutcomeKind.RETRY or not answer.unprepared:
        yield f"{answer.outcome}, {answer.error}"


def a_set_up_that_changes_what_git_runs(bench: Bench) -> Broken:
    setup = "git config core.hooksPath .husky/_"
    told = [
        bench.attempt("a", "echo 1 >a", setup=setup).receipt.flags,
        bench.attempt("b", "echo 1 >b", setup=setup).receipt.flags,
        bench.attempt("c", "echo 1 >c; git config core.hooksPath .else").receipt.flags,
    ]
    wanted = [(f"setup {RUN}: core.hookspath",), (), (f"{RUN}: core.hookspath",)]
    if told != wanted:
        yield f"flags: {told}"


INSIDE = "cd x.local/c; git config user.email e@e"
CLONE = f"git clone -q {COMMON} x.local/c; {INSIDE}"
COMMITS = "git config user.name e; git commit -q --allow-empty -m x"


def what_lies_in_an_ignored_folder(bench: Bench, does: str, *, stays: bool) -> Broken:
    place = bench.make("a")
    if status := os.system(f"cd {place.folder} && {{ {does}; }} >/dev/null 2>&1"):
        yield f"exit {status}"
    bench.end_run()
    kept = tidy_run(bench.state, bench.run_id)
    told = bench.kept()
    wanted = {place.record.branch: "work that is nowhere else in x.local/c"} if stays else {}
    if told != wanted or kept or (place.folder / "x.local/c").exists() is not stays:
        yield f"kept: {told}, {kept}"


def a_branch_that_has_the_only_copy(bench: Bench) -> Broken:
    home = "git switch -q -"
    mine = f"git switch -qc mine; echo 1 >m; git add m; git commit -qm m; {home}"
    flags = bench.attempt("a", f"{mine}; git branch other; echo 1 >a").receipt.flags
    told = {flag.split()[0]: flag.rpartition(": ")[2].split()[:3] for flag in flags}
    if told["mine"][:2] != ["git", "log"] or told["other"] != ["git", "update-ref", "-d"]:
        yield f"flags: {flags}"


# --- all cases -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """``tried`` yields what does not hold: in a world of branches, or beside an agent."""

    name: str
    of_branches: Callable[[LandingWorld], Broken] | None = None
    of_agents: Callable[[Bench], Broken] | None = None


def _destroyed(what: str, does: str, kept: str = "") -> Case:
    tried = partial(a_worktree_that_is_destroyed, destroys=does, kept=kept)
    return Case(f"an agent destroys {what}", of_agents=tried)


def _ignored(what: str, does: str, *, stays: bool = True) -> Case:
    tried = partial(what_lies_in_an_ignored_folder, does=does, stays=stays)
    return Case(f"in an ignored folder: {what}", of_agents=tried)


KEPT = "its files are kept in refs/bw/attempts/a/1"

CASES = (
    Case("a set-up fails on the branch only", on_the_branch_only),
    Case("a set-up fails on the base, too", on_the_base_too),
    Case("a set-up fails sometimes", only_sometimes),
    Case("a set-up never ends", that_never_ends),
    Case("a kept set-up clears nobody's name", cleared_by_a_kept_set_up),
    Case("the set-up of a gate changes what git runs", that_changes_the_repository),
    Case("landing after an attempt has changed the name", in_whose_name_it_lands),
    Case("the set-up of an attempt changes it", None, a_set_up_that_changes_what_git_runs),
    Case("info/exclude", None, a_file_that_only_a_new_line_of_the_exclude_hides),
    *(
        Case(f"{role}.name", None, partial(a_name_in_the_shared_settings, role=role))
        for role in ("user", "author", "committer")
    ),
    _destroyed("its index", f"echo x >{OWN}/index", KEPT),
    _destroyed("its HEAD", f"echo x >{OWN}/HEAD", KEPT),
    _destroyed("git's folder of it", f"rm -r {OWN}", KEPT),
    _destroyed("its .git, for another repository", "rm .git; git init -q ."),
    _destroyed("its .git, for nothing", "echo x >.git"),
    Case("a world that is broken", None, a_world_in_which_nothing_can_be_committed),
    _ignored("a clone with a commit", f"{CLONE}; {COMMITS}"),
    _ignored("a clone as it came", CLONE, stays=False),
    _ignored("one without a remote", f"git init -q x.local/c; {INSIDE}; {COMMITS}", stays=False),
    _ignored("a worktree with a change", "git worktree add -q x.local/c; echo 1 >x.local/c/n"),
    _ignored("a worktree without", "git worktree add -q x.local/c", stays=False),
    Case("a branch has the only copy", None, a_branch_that_has_the_only_copy),
)


def run(case: Case, folder: Path) -> list[str]:
    """What is wrong with it; nothing for a case that held."""
    with pytest.MonkeyPatch.context() as patch:
        if case.of_branches is not None:
            return list(case.of_branches(LandingWorld(folder, patch)))
        assert case.of_agents is not None
        return list(case.of_agents(Bench(folder, patch)))


def main(arguments: list[str]) -> int:
    """0 when all held."""
    return run_cases("whose", __doc__, CASES, run, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
