"""``--worktree`` and ``--shared-checkout``: what must hold before a fleet starts with them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from beads_workers.cli.errors import EXIT_USAGE, CommandError
from beads_workers.cli.options import Options
from beads_workers.core.settings import FleetSettings, Work, Worktrees
from beads_workers.core.text import printable
from beads_workers.edge.git import BRANCHES, GitError, git
from beads_workers.edge.worktrees.copying import matching
from beads_workers.executors.agents import DEFAULT_PROMPT, WORKTREE_PROMPT

FOLDER = "worktrees"
"""In the run directory: out of git, hidden from test runners and globs, and below the project,
whose tracker is then found from inside of a worktree, too."""


def apart(settings: FleetSettings, options: Options) -> FleetSettings:
    """The settings with what keeps attempts out of each other's way; raises ``CommandError``."""
    beads = settings.tracker if settings.source == "bd" else None
    place = Path(settings.project), settings.state_directory
    work = in_worktrees(settings.work, options, *place, beads)
    return replace(settings, work=work, workers_max=check_crowd(work, options))


def in_worktrees(
    work: Work, options: Options, project: Path, state_directory: str, beads: str | None
) -> Work:
    """The work with its worktrees, where they are asked for; raises ``CommandError``."""
    if not options.worktree:
        return work
    if work.agent is not None and work.agent.prompt == DEFAULT_PROMPT:
        work = replace(work, agent=replace(work.agent, prompt=WORKTREE_PROMPT))
    worktrees = find_worktrees(options, project, state_directory)
    for pattern in worktrees.copy:
        if not matching(worktrees, pattern):
            text = f"warning: [worktree] copy: nothing that git ignores matches {pattern}"
            print(printable(text), file=sys.stderr)
    return replace(work, worktrees=replace(worktrees, beads=beads))


def find_worktrees(options: Options, project: Path, state_directory: str) -> Worktrees:
    """Where worktrees are made from and to; raises ``CommandError`` where none can be made."""
    top, prefix, common = _repository(project)
    base = options.worktree_base or "HEAD"
    commit = _base(project, base, named=options.worktree_base is not None)
    if _git(project, "for-each-ref", "--format=%(refname)", f"refs/heads/{BRANCHES}").split() == [
        f"refs/heads/{BRANCHES}"
    ]:
        raise CommandError(
            f"a branch named {BRANCHES} is in the way of {BRANCHES}/<issue>/<attempt>",
            f"rename it: git branch -m {BRANCHES} another-name",
            EXIT_USAGE,
        )
    folder = options.worktree_folder or f"{Path(state_directory).absolute()}/{FOLDER}"
    if options.worktree_folder:
        _check_folder(Path(folder), top)
    assert options.worktree_disk_floor is not None, "resolve() fills in every default"
    return Worktrees(
        checkout=str(project),
        prefix=prefix,
        common=common,
        folder=folder,
        state_directory=str(Path(state_directory).absolute()),
        # What nobody named is what is checked out now, for all attempts of this run alike.
        base=options.worktree_base or commit,
        base_name=base,
        setup=options.worktree_setup,
        copy=options.worktree_copy or (),
        disk_floor_bytes=options.worktree_disk_floor,
    )


def check_crowd(work: Work, options: Options) -> int | None:
    """How many workers may share the checkout: any number, or one agent alone.

    Raises ``CommandError`` where more are asked for: agents in one folder overwrite each other.
    """
    if work.agent is None or work.worktrees is not None or options.shared_checkout:
        return None
    if (options.workers or 0) > 1:
        raise CommandError(
            f"{options.workers} agents in one checkout would overwrite each other's work",
            "--worktree gives each attempt its own git worktree; --shared-checkout takes the"
            " risk; or have one worker: -n 1",
            EXIT_USAGE,
        )
    return 1


def shown_place(settings: FleetSettings) -> str:
    """Where tasks run."""
    worktrees = settings.work.worktrees
    if worktrees is None:
        return settings.project
    base = worktrees.base_name
    if worktrees.base != base:
        base = f"{base} ({worktrees.base[:12]})"
    name = f"{BRANCHES}/<issue>/<attempt>"
    below = f"/{worktrees.prefix.rstrip('/')}" if worktrees.prefix else ""
    return f"{worktrees.folder}/<issue>.<attempt>{below}, a worktree on {name} from {base}"


def _repository(project: Path) -> tuple[str, str, str]:
    try:
        bare, inside = git(
            str(project), "rev-parse", "--is-bare-repository", "--is-inside-work-tree"
        ).split()
    except GitError as error:
        raise CommandError(
            f"--worktree needs a git repository: {error}",
            f"run 'git init' in {project} and commit, or leave --worktree out",
            EXIT_USAGE,
        ) from None
    if bare == "true" or inside != "true":
        raise CommandError(
            f"--worktree needs a checkout, and {project} is in a bare repository",
            "put the tracker into a checkout of it: git worktree add FOLDER BRANCH",
            EXIT_USAGE,
        )
    options = ("--path-format=absolute", "--show-toplevel", "--git-common-dir", "--show-prefix")
    top, common, prefix = _git(project, "rev-parse", *options).split("\n")[:3]
    return top, prefix, common


def _base(project: Path, base: str, *, named: bool) -> str:
    from beads_workers.edge.worktrees.making import resolve_base

    try:
        return resolve_base(str(project), base)
    except GitError as error:
        if named:
            message = f"no such base for worktrees: {base}"
            hint = f"[worktree] base is a branch, a tag or a commit; git says: {error}"
        else:
            message = "--worktree needs a commit to begin with, and this repository has none"
            hint = "git add the files and git commit them first"
        raise CommandError(message, hint, EXIT_USAGE) from None


def _check_folder(folder: Path, top: str) -> None:
    if not folder.resolve().is_relative_to(Path(top).resolve()):
        return
    try:
        git(top, "check-ignore", "--quiet", "--no-index", str(folder / "x"))
    except GitError:
        raise CommandError(
            f"worktrees in {folder} would show up in the checkout's 'git status'",
            "name a folder that git ignores, or one outside of the checkout",
            EXIT_USAGE,
        ) from None


def _git(project: Path, *arguments: str) -> str:
    try:
        return git(str(project), *arguments)
    except GitError as error:
        raise CommandError(f"git: {error}", "", EXIT_USAGE) from None
