"""Keys of a person's own, for the dashboard: each runs a command on the chosen issue.

They are in the person's settings, ``~/.config/beads-workers/config.toml``, and in no project's:

    [keys]
    o = "code {worktree}"
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from beads_workers.cli.config import content_of, table_of
from beads_workers.core.base.text import printable
from beads_workers.errors import CommandError
from beads_workers.ui.bindings import KEYS_TAKEN

PLACEHOLDERS = ("{issue}", "{worktree}", "{branch}")
SECONDS_MAX = 3600.0
"""Time after which nobody waits for how a command ends."""


def own_keys() -> dict[str, str]:
    """Return the commands by their keys; raise ``CommandError`` for a file that has mistakes."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    file = Path(home) / "beads-workers" / "config.toml"
    return read_text(file, content_of(file)) if file.exists() else {}


def read_text(file: Path, content: bytes) -> dict[str, str]:
    """Do the same as ``own_keys`` for this content; ``file``: for messages only."""
    found = table_of(file, content).get("keys", {})
    if not isinstance(found, dict):
        raise CommandError(f"{file}: keys is no table")
    for key, command in found.items():
        if len(key) != 1 or not key.isprintable() or key in KEYS_TAKEN:
            raise CommandError(f"{file}: {printable(key, 20)} is no free key: one letter or sign")
        if not isinstance(command, str) or "\0" in command or not _words(command):
            raise CommandError(f"{file}: {key} is no command")
    return dict(found)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def run(command: str, issue_id: str, directory: Path) -> str:
    """Run a command on an issue, and return what is said of it once it has ended."""
    from beads_workers.views.attempt_files import worktree_of
    from beads_workers.worktrees.records import Records

    record = worktree_of(Records(directory), issue_id)
    if record is None and any(each in command for each in PLACEHOLDERS[1:]):
        return f"no worktree of {printable(issue_id)} is here"
    argv = _words(command)
    values = (issue_id, record.path if record else "", record.branch if record else "")
    for name, text in zip(PLACEHOLDERS, values, strict=True):
        argv = [word.replace(name, text) for word in argv]
    try:
        # No shell: an issue's id and its branch are never part of a shell line.
        ended = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS_MAX,
            check=False, start_new_session=True, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return printable(f"{argv[0]}: {error}", 200)
    said = (ended.stderr or ended.stdout).strip().splitlines()
    how = f"exit {ended.returncode}" if ended.returncode else "done"
    return printable(": ".join([argv[0], how, *said[-1:]]), 200)
