"""What agents and tools leave beside the work: histories, caches, lines that hide them from git.

aider ends with 0 when its login is gone, and has written a history and ``.gitignore`` by then. A
change that has nothing else is no work.
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
    """Whether these changed files are nothing else. ``git``: at the top; raises ``GitError``."""
    others = [name for name in files if not _LITTER.search(name)]
    return others in ([], [IGNORES]) and (not others or _only_hides(git, base))


def of_agents(files: Sequence[str]) -> bool:
    """Whether an agent left some of it: a check leaves caches as well."""
    return any(name == IGNORES or _OF_AGENTS.search(name) for name in files)


def _only_hides(git: Git, base: str) -> bool:
    """Whether all that the ignore file has got is lines that hide an agent's own files."""
    before = git.answered("show", f"{base}:{IGNORES}", good=(0, NOT_THERE))
    old = before.output.splitlines() if before.status == 0 else []
    try:
        new = Path(git.folder, IGNORES).read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    added = [line for line in new if line not in old]
    hides = any(".aider" in line for line in added) and all(map(_HIDES.fullmatch, added))
    return hides and set(old) <= set(new)
