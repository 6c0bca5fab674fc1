"""The repository that tasks work in. Git is only read, and takes no lock for it."""

from __future__ import annotations

import shutil
from pathlib import Path

from beads_workers.checks.probe import ProbeResult, ask
from beads_workers.checks.rules import Check, ok, warn
from beads_workers.core.base.text import counted, printable
from beads_workers.options import FILE_NAME
from beads_workers.worktrees.git import argv, environment
from beads_workers.worktrees.removal import OPERATIONS, parse_status

PORCELAIN = ("--porcelain=v2", "-z")
GIT_SECONDS = 3.0
"""Time limit: a status of a large repository on a cold disk takes less."""


def git(folder: Path, *, agent: bool, in_worktrees: bool = False) -> list[Check]:
    """Report version, state of the work tree, committer, and branches of ours.

    ``in_worktrees``: tasks run in worktrees of their own, which begin with what is committed.
    """
    if shutil.which("git") is None:
        text = "git is not on PATH: nothing that a task changes can be undone"
        return [warn("git", text, "sudo apt-get install -y git") if agent else ok("git", "no git")]
    version = printable(_git(folder, "--version").stdout.strip().removeprefix("git version "), 40)
    inside = _git(folder, "rev-parse", "--is-inside-work-tree")
    if "dubious ownership" in inside.stderr:
        return [_dubious(folder)]
    if inside.status != 0 or inside.stdout.strip() != "true":
        return [_no_repository(version, agent=agent)]
    return [
        _work_tree(folder, version, in_worktrees=in_worktrees),
        *_identity(folder, agent=agent, lands=in_worktrees),
    ]


def _work_tree(folder: Path, version: str, *, in_worktrees: bool) -> Check:
    # The tracker's own files change with every issue, our settings are read from here only: neither
    # is unfinished work.
    ours = (":(exclude).beads", f":(exclude){FILE_NAME}")
    status = _git(folder, "status", *PORCELAIN, "--", ":/", *ours)
    named = _git(folder, "for-each-ref", "--format=x", "refs/heads/bw/").stdout.count("x")
    branches = f", {counted(named, 'branch', 'branches')} bw/*" if named else ""
    if status.status is None:
        text = (
            f"git {version}: its status took more than {GIT_SECONDS:g} s, so it was not waited for"
        )
        return warn("git", text + branches, "git status --short")
    if status.status != 0:
        return warn("git", f"git status: {_last_line(status)}", "git status")
    changed = len(parse_status(status.stdout)[2])
    if (under_way := _under_way(folder)) is not None:
        what, command = under_way
        text = f"{what} is under way, with {counted(changed, 'changed file')}{branches}"
        return warn("git", text, "git status", f"finish it: {command}")
    if changed:
        fate = (
            "tasks in worktrees would not see them"
            if in_worktrees
            else "tasks would work on top of them"
        )
        text = f"{counted(changed, 'uncommitted change')}: {fate}{branches}"
        return warn("git", text, "git add --all && git commit --message 'before the fleet'")
    return ok("git", f"git {version}, clean{branches}")


def _under_way(folder: Path) -> tuple[str, str] | None:
    """Return the git operation that is under way, and the command that ends it."""
    directory = Path(_git(folder, "rev-parse", "--absolute-git-dir").stdout.rstrip("\n"))
    what = next((what for name, what in OPERATIONS.items() if (directory / name).exists()), None)
    if what is None:
        return None
    name = what.split()[-1]
    ends = "git bisect reset" if name == "bisection" else f"git {name} --continue or --abort"
    return what, ends


def _identity(folder: Path, *, agent: bool, lands: bool) -> list[Check]:
    missing = [
        key for key in ("user.name", "user.email") if _git(folder, "config", key).status != 0
    ]
    nobody = lands and _git(folder, "var", "GIT_COMMITTER_IDENT").status != 0
    if not missing or not (agent or nobody):
        return []
    values = {"user.name": '"$(id -un)"', "user.email": '"$(id -un)@$(hostname)"'}
    remedy = " && ".join(f"git config {key} {values[key]}" for key in missing)
    without = _WITHOUT if agent else "what commands leave is committed, and lands, as beads-workers"
    return [warn("git", f"{' and '.join(missing)} not set: {without}", remedy)]


_WITHOUT = "agents cannot commit, and what they leave is committed as beads-workers"


def _no_repository(version: str, *, agent: bool) -> Check:
    if agent:
        text = "no git repository here: what an agent changes cannot be undone"
        return warn("git", text, "git init")
    return ok("git", f"git {version}; no repository here, and a command needs none")


def _dubious(folder: Path) -> Check:
    text = "git refuses this folder: it belongs to another user"
    return warn("git", text, f"git config --global --add safe.directory {folder}")


def _git(folder: Path, *arguments: str) -> ProbeResult:
    # A mere look writes no index back and runs no hook of the repository.
    return ask(argv(arguments), folder=folder, seconds=GIT_SECONDS, environment=environment())


def _last_line(reply: ProbeResult) -> str:
    lines = (reply.stderr.strip() or reply.stdout.strip() or "no answer").splitlines()
    return printable(lines[-1], 200)
