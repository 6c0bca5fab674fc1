"""Commands that ``doctor`` offers to mend what is wrong with the settings."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.cli.errors import CommandError

if TYPE_CHECKING:
    from beads_workers.cli.options import Options


def sentence(error: CommandError) -> str:
    """An error and its hint, as a check says it."""
    return f"{error.message}; {error.hint}" if error.hint else error.message


def edit(file: Path) -> str:
    """Opens it in the person's editor."""
    return f"${{EDITOR:-vi}} {shlex.quote(str(file))}"


def mend_file(file: Path | None, folder: Path) -> str:
    """Leads to what the settings file says wrongly; makes one of our own where there is none."""
    # Without a path it is a stranger's file above us: one of our own comes first.
    return edit(file) if file else f"touch {shlex.quote(str(folder / 'beads-workers.toml'))}"


def settle_on_bd(file: Path | None, folder: Path) -> str:
    """Says in the settings file which of two trackers is meant."""
    if file is None or not file.stat().st_size:
        path = shlex.quote(str(file or folder / "beads-workers.toml"))
        return f"echo 'source = \"bd\"' >{path}"
    # At the top: below a table it would belong to that.
    return f"sed -i '1i source = \"bd\"' {shlex.quote(str(file))}"


def mend_apart(options: Options, folder: Path) -> str:
    """Leads to worktrees, so that attempts do not get into each other's way."""
    if not options.worktree:
        name = shlex.quote(options.agent or "")
        return f"beads-workers doctor --worktree -n {options.workers or 0} --agent {name}"
    commit = "git add --all && git commit --message 'before the fleet'"
    if not (folder / ".git").exists():
        return f"git init && {commit}"
    return f"git log --oneline -n 1 || ( {commit} ); git branch --list bw"
