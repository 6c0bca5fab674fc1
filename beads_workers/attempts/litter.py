"""Files that agents and tools leave beside the work: histories, caches, lines that hide them from
git.

aider ends with 0 if its login has expired, and has written a history and ``.gitignore`` by then. A
change that contains only such files is no work.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from beads_workers.attempts.git_calls import Git

_HISTORY = (
    r"\.aider\.(?:chat|input|llm|tags)[^/]*|\.[\w.-]*history[\w.-]*|"
    # qwen 0.24 writes its version into the settings that it finds.
    r"\.qwen/settings\.json(?:\.orig)?"
)
_CACHE = r"__pycache__|\.cache|\.(?:pytest|mypy|ruff)_cache|[^/]+\.pyc"
_OF_AGENTS = re.compile(rf"(?:^|/)(?:{_HISTORY})(?:/|$)")
_LITTER = re.compile(rf"(?:^|/)(?:{_HISTORY}|{_CACHE})(?:/|$)")
_HIDES = re.compile(r"/?\.aider.*|\.env|\s*(?:#.*)?")
IGNORES = ".gitignore"
NOT_THERE = 128


def is_litter(files: Sequence[str], git: Git, base: str) -> bool:
    """Return whether these changed files are only litter. ``git``: at the top; raises
    ``GitError``."""
    others = no_litter(files)
    return others in ([], [IGNORES]) and (not others or _only_hides(git, base))


def no_litter(files: Sequence[str]) -> list[str]:
    """Return those of the files that are neither a history nor a cache."""
    return [name for name in files if not _LITTER.search(name)]


def of_agents(files: Sequence[str]) -> bool:
    """Return whether an agent left some of these files: a check leaves caches as well."""
    return any(name == IGNORES or _OF_AGENTS.search(name) for name in files)


def _only_hides(git: Git, base: str) -> bool:
    """Return whether all lines added to the ignore file hide an agent's own files."""
    before = git.answered("show", f"{base}:{IGNORES}", good=(0, NOT_THERE))
    old = before.output.splitlines() if before.status == 0 else []
    try:
        new = Path(git.folder, IGNORES).read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    added = [line for line in new if line not in old]
    hides = any(".aider" in line for line in added) and all(map(_HIDES.fullmatch, added))
    return hides and set(old) <= set(new)
