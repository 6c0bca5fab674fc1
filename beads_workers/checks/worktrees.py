"""``--worktree`` and ``--shared-checkout``: what must hold before a fleet starts with them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shutil import which

from beads_workers.checks.rules import Check, misused, warn
from beads_workers.core.base.commit_form import own_trailers
from beads_workers.core.base.model import value
from beads_workers.core.base.settings import Work, Worktrees
from beads_workers.core.base.text import counted, printable
from beads_workers.options import Options
from beads_workers.runtime.trust import Untrusted, check_place
from beads_workers.worktrees.git import (
    BRANCHES,
    GitError,
    answers,
    git,
    git_or_none,
    is_outside,
    lines,
    questions,
)
from beads_workers.worktrees.making import find_base, matching
from beads_workers.worktrees.places import default_folder, landing_folder
from beads_workers.worktrees.sparse import cone_of

COMMIT = "git add --all && git commit --message 'before the fleet'"


@value
class Checkout:
    """A checkout of a git repository. ``prefix``: the project's folder below ``top``, or ""."""

    top: str
    prefix: str
    common: str


def is_repository(project: Path) -> bool:
    """Return whether git can make a worktree here: a checkout with a commit."""
    asked = ("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    try:
        return git_or_none(str(project), *asked) is not None
    except GitError as error:
        # A killed or failed git proves neither. Making worktrees then reports the error, so that no
        # agent works in the user's own checkout by mistake.
        return not is_outside(error) and which("git") is not None


def checkout(project: Path) -> Checkout | Check:
    """Return the checkout in which the project is, or why there is none."""
    try:
        asked = questions("--is-bare-repository", "--is-inside-work-tree")
        bare, inside = answers(git(str(project), *asked), 2)
        if bare == "true" or inside != "true":
            return misused(
                "worktree",
                f"--worktree needs a checkout, and {project} is in a bare repository",
                "put the tracker into a checkout of it: git worktree add FOLDER BRANCH",
            )
        asked = questions("--show-toplevel", "--git-common-dir", "--show-prefix")
        top, common, prefix = answers(git(str(project), *asked), 3)
    except GitError as error:
        if not is_outside(error):
            return misused("worktree", f"git: {error}")
        text = f"--worktree needs a git repository: {error}"
        hint = f"run 'git init' in {project} and commit, or leave --worktree out"
        return misused("worktree", text, hint, f"git init && {COMMIT}")
    return Checkout(top, prefix, common)


def base_of(project: Path, named: str | None) -> str | Check:
    """Return the commit that attempts begin with; ``named``: by ``[worktree] base``."""
    try:
        found = find_base(str(project), named or "HEAD")
    except GitError as error:
        return misused("worktree", f"git: {error}")
    if found is not None:
        return found
    if named:
        text = f"no such base for worktrees: {named}"
        return misused("worktree", text, "[worktree] base is a branch, a tag or a commit")
    text = "--worktree needs a commit to begin with, and this repository has none"
    return misused("worktree", text, "git add the files and git commit them first", COMMIT)


def checked_out(project: Path) -> str:
    """Return the branch that is checked out; "" if HEAD is detached. Raises ``GitError``."""
    # The full ref name: a short branch name is ambiguous with a tag of the same name.
    head = (git_or_none(str(project), "symbolic-ref", "--quiet", "HEAD") or "").removesuffix("\n")
    return head.removeprefix("refs/heads/") if head.startswith("refs/heads/") else ""


def branch_in_the_way(project: Path) -> Check | None:
    """Refuse a branch whose name is the folder of attempts' branches."""
    try:
        taken = git(str(project), "for-each-ref", "--format=%(refname)", f"refs/heads/{BRANCHES}")
    except GitError as error:
        return misused("worktree", f"git: {error}")
    if lines(taken) != [f"refs/heads/{BRANCHES}"]:
        return None
    text = f"a branch named {BRANCHES} is in the way of {BRANCHES}/<issue>/<attempt>"
    return misused("worktree", text, f"rename it: git branch -m {BRANCHES} another-name")


def folder_in_the_way(folder: str | None, top: str) -> Check | None:
    """Refuse a ``[worktree] folder`` that git would show as changes."""
    if not folder or not Path(folder).resolve().is_relative_to(Path(top).resolve()):
        return None
    try:
        git(top, "check-ignore", "--quiet", "--no-index", str(Path(folder) / "x"))
    except GitError:
        text = f"worktrees in {folder} would show up in the checkout's 'git status'"
        return misused(
            "worktree", text, "name a folder that git ignores, or one outside of the checkout"
        )
    return None


def folder_of_a_stranger(folder: str, project: Path, common: str) -> Check | None:
    """Refuse a folder for worktrees or gates that another user could replace: what lies there is
    run."""
    gates = landing_folder(Path(folder), project, Path(common))
    try:
        for each in (Path(folder), gates):
            check_place(each.absolute(), Path.cwd())
    except Untrusted as error:
        return misused("worktree", str(error), "name a folder of your own: [worktree] folder")
    return None


def find_worktrees(options: Options, project: Path, state_directory: str) -> Worktrees | Check:
    """Return where worktrees are made from and to, or the first reason why none can be made."""
    found = checkout(project)
    if isinstance(found, Check):
        return found
    base = base_of(project, options.worktree_base)
    if isinstance(base, Check):
        return base
    state = Path(state_directory).absolute()
    folder = options.worktree_folder or str(default_folder(project, Path(found.top), state))
    rules: tuple[Callable[[], Check | None], ...] = (
        lambda: branch_in_the_way(project),
        lambda: folder_in_the_way(options.worktree_folder, found.top),
        lambda: folder_of_a_stranger(folder, project, found.common),
    )
    if (wrong := next((w for rule in rules if (w := rule()) is not None), None)) is not None:
        return wrong
    landing, on, cone = options.landing, "", None
    with suppress(GitError):  # Only for ``land``, which asks whether the branch is another one.
        on = "" if options.worktree_base else checked_out(project)
    with suppress(GitError):
        cone = cone_of(found.top) if options.worktrees.sparse else None
    return Worktrees(
        checkout=str(project),
        prefix=found.prefix,
        common=found.common,
        folder=folder,
        state_directory=str(state),
        # Without a named base, all attempts of this run begin with what is checked out now.
        base=options.worktree_base or base,
        base_name=options.worktree_base or "HEAD",
        on=on,
        cone=cone,
        reuse=max(1, options.workers) if options.worktree_reuse else 0,
        trailers=own_trailers(landing.form, landing.style, options.landing_co_author),
        rules=options.worktrees,
    )


def patterns_without_files(worktrees: Worktrees) -> list[Check]:
    """Warn of patterns of ``[worktree] copy`` that match nothing to copy."""
    return [
        warn("worktree", printable(f"[worktree] copy: nothing that git ignores matches {pattern}"))
        for pattern in worktrees.rules.copy
        if not matching(worktrees, pattern)
    ]


def of_another_place(worktrees: Worktrees) -> Check | None:
    """Warn of worktrees that point to where the project was before it was moved."""
    from beads_workers.worktrees.records import Records
    from beads_workers.worktrees.relocation import moved

    found = moved(Records(Path(worktrees.state_directory)), worktrees.common)
    if not found:
        return None
    was = f"of {counted(len(found), 'attempt')} lead to where the project was: {found[0].common}"
    return warn("worktree", printable(f"worktrees {was}"), "beads-workers clean --dry-run")


def staying(worktrees: Worktrees) -> str:
    """Return how many worktrees stay to be used again, for the end of a line; "" for none."""
    from beads_workers.worktrees.reuse import kept

    count = len(kept(worktrees))
    return f"; {counted(count, 'worktree')} of earlier runs will be used again" if count else ""


def crowd(work: Work, options: Options) -> Check | None:
    """Refuse several agents in one folder: they overwrite each other's work."""
    if not shares_checkout(work, options) or options.workers <= 1:
        return None
    return misused(
        "worktree",
        f"{options.workers} agents in one checkout would overwrite each other's work",
        "--worktree gives each attempt its own git worktree; --shared-checkout takes the"
        " risk; or have one worker: -n 1",
        f"beads-workers doctor --worktree -n {options.workers} --agent"
        f" {shlex.quote(options.agent or '')}",
    )


def shares_checkout(work: Work, options: Options) -> bool:
    """Return whether agents work in the user's own checkout without ``--shared-checkout``."""
    return work.agent is not None and work.worktrees is None and not options.shared_checkout
