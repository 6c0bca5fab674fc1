"""Programs that a repository's own settings run, and which of them changed during an attempt.

All worktrees share ``.git/config`` and ``.git/hooks``: the user's next git runs what an agent
writes there. We do not take back such changes; we name them. Our own calls switch most of these
settings off (``worktrees.overrides``).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from beads_workers.worktrees.git import config

FILE = "bw-programs"
"""File in a worktree's own git directory: the settings as they were before its first attempt."""

SETTINGS = ("config", "config.worktree")
_OF_ANY = "clean|cmd|command|defaultkeycommand|driver|external|path|process|program|smudge|textconv"
RUNS = re.compile(
    r"(alias|pager)\..+|include(if\..+)?\.path|protocol\.(.+\.)?allow|credential\.(.+\.)?helper"
    r"|core\.(alternaterefscommand|askpass|editor|fsmonitor|gitproxy|hookspath|pager|sshcommand)"
    r"|(browser|diff|difftool|filter|gpg|guitool|hook|man|merge|mergetool|tar|trailer)\.(.+\.)?"
    rf"({_OF_ANY})|interactive\.difffilter|remote\..+\.(receivepack|uploadpack|vcs)"
    r"|sendemail\..*cmd|sequence\.editor|submodule\..+\.update|uploadpack\.packobjectshook",
    re.DOTALL,
)
"""Keys, as git prints them, whose value is run, or leads to a program that is."""


def keep(directory: Path) -> None:
    """Write the current settings and hooks to a worktree's own git directory; raises
    ``OSError``."""
    file = os.open(directory / FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(file, "w") as kept:
        json.dump(_now(directory), kept)


def changed(directory: Path, git: Callable[..., str]) -> list[str]:
    """Return the keys and hooks that have changed; none if nobody kept them. Raises as ``git``
    does."""
    try:
        text = (directory / FILE).read_text("utf-8", "surrogateescape")
    except OSError:
        return []
    before = read_kept(text)
    if before is None:
        return [FILE]  # The agent can write to this file, too.
    now = _now(directory)
    if before == now:
        return []
    old, new = _running(before, git), _running(now, git)
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


def read_kept(text: str) -> dict[str, str] | None:
    """Parse what ``keep`` wrote; None if it is something else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_kept = isinstance(found, dict) and all(isinstance(each, str) for each in found.values())
    return found if is_kept else None


def _now(directory: Path) -> dict[str, str]:
    """Return the text of each file of settings, and the inode and time of change of each hook."""
    common = directory / _read(directory / "commondir").strip()
    found = {name: _read(common / name) for name in SETTINGS}
    try:
        with os.scandir(common / "hooks") as hooks:
            for hook in hooks:
                if not hook.name.endswith(".sample"):
                    status = hook.stat(follow_symlinks=False)
                    found[f"hooks/{hook.name}"] = f"{status.st_ino} {status.st_mtime_ns}"
    except OSError:
        pass  # There are none, or one was removed meanwhile.
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "surrogateescape")
    except OSError:
        return ""


def _running(files: Mapping[str, str], git: Callable[..., str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, text in files.items():
        if name not in SETTINGS:
            found[name] = [text]
            continue
        for key, setting in config(git("config", "--file", "-", "--list", "-z", stdin=text)):
            if RUNS.fullmatch(key):
                found.setdefault(key, []).append(setting)
    return found
