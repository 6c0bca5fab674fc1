"""Parts that a fresh worktree of the base commit would lack: filter programs and submodules."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from beads_workers.checks.probe import ask
from beads_workers.checks.rules import Check, fail, warn
from beads_workers.core.base.settings import Worktrees
from beads_workers.core.base.text import counted, printable
from beads_workers.worktrees.git import (
    GITLINK,
    answers,
    call,
    fields,
    git,
    git_or_none,
    names,
    questions,
)
from beads_workers.worktrees.making import base_of

SET_UP_SUBMODULES = "git submodule update --init --recursive"
SHOWN_MAX = 3
LOOK_SECONDS = 5.0
SHELL_WORDS = frozenset("$`(){};|&<>=*?[\n")
"""Characters that show that a word is more than the name of a program."""


def files_with_filters(worktrees: Worktrees) -> dict[str, str]:
    """Return filters of files where attempts begin: filter -> one file, without a checkout.

    Raise ``GitError``.
    """
    (top,) = answers(git(worktrees.checkout, *questions("--show-toplevel")))
    with tempfile.TemporaryDirectory() as place:
        index = str(Path(place, "index"))
        git(top, "read-tree", _begins_at(worktrees), index=index)
        listed = git(top, "ls-files", "-z", index=index)
        asked = ("check-attr", "--cached", "--stdin", "-z", "filter")
        attributes = fields(git(top, *asked, stdin=listed, index=index), 3)
    return {name: file for file, _, name in attributes if name not in NO_FILTER}


NO_FILTER = ("unspecified", "unset", "set", "")


def submodules(worktrees: Worktrees) -> list[str]:
    """Return the paths of submodules in the base commit; raise ``GitError``."""
    listed = git(worktrees.common, "ls-tree", "-r", "-z", "--full-tree", _begins_at(worktrees))
    rows = [row.partition("\t")[::2] for row in names(listed)]
    return [name for about, name in rows if about.startswith(GITLINK)]


def _begins_at(worktrees: Worktrees) -> str:
    return base_of(replace(worktrees, remote=""))


# --- submodules ----------------------------------------------------------------------------------


def empty_submodules(worktrees: Worktrees) -> Check | None:
    """Warn of submodules that no setup fills: they are empty folders in a worktree.

    Raise ``GitError``.
    """
    if "submodule" in (worktrees.rules.setup or "") or not (found := submodules(worktrees)):
        return None
    many = counted(len(found), "submodule is", "submodules are")
    text = f"{many} empty in worktrees: {', '.join(found[:SHOWN_MAX])}"
    hint = f'[worktree] setup = "{SET_UP_SUBMODULES}" in beads-workers.toml fills them'
    return warn("submodules", printable(text, 300), hint=hint)


# --- filters -------------------------------------------------------------------------------------


def filters_without_program(worktrees: Worktrees) -> Iterator[Check]:
    """Report filters whose program is missing: git makes no worktree if one is required.

    Raise ``GitError``.
    """
    for name, file in files_with_filters(worktrees).items():
        settings = _settings(worktrees.checkout, name)
        programs = [settings[use] for use in ("process", "smudge", "clean") if settings.get(use)]
        if not programs:
            text = f"no filter '{name}' is set up, which {file} has: its files stay as git has them"
            set_up = "'git lfs install' does" if name == "lfs" else "see what the project says"
            yield warn("filters", printable(text, 300), hint=f"set the filter up: {set_up}")
            continue
        missing = [each for each in map(_program, programs) if each and not _is_there(each)]
        if not missing:
            continue
        text = f"the filter '{name}', which {file} has, needs {missing[0]}, which is not on PATH"
        hint = f"install {missing[0]}"
        if settings.get("required") == "true":
            yield fail("filters", printable(f"no worktree can be made: {text}", 300), hint=hint)
        else:
            yield warn("filters", printable(text, 300), hint=hint)


def _settings(folder: str, name: str) -> dict[str, str]:
    settings = {}
    for use in ("process", "smudge", "clean"):
        settings[use] = (git_or_none(folder, "config", f"filter.{name}.{use}") or "").strip()
    required = git_or_none(folder, "config", "--type=bool", f"filter.{name}.required")
    return settings | {"required": (required or "").strip()}


def _program(line: str) -> str | None:
    """Return the program that a filter's shell line runs; None if that cannot be told."""
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    if len(words) > 1 and words[0] == "git" and words[1].replace("-", "").isalnum():
        return f"git-{words[1]}"
    return None if not words or SHELL_WORDS & set(words[0]) else words[0]


def _is_there(program: str) -> bool:
    if program.startswith("git-") and _is_gits_own(program):
        return True
    asked = ("sh", "-c", 'command -v "$1"', "sh", program)
    return ask(asked, folder=Path("/"), seconds=LOOK_SECONDS).status == 0


def _is_gits_own(program: str) -> bool:
    return Path(call("/", "--exec-path").output.strip(), program).exists()
