"""Calls of ``git``, in the environment of nobody else's checkout."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from beads_workers.runtime.processes import GIT_PLACES

NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
"""What we do to a repository by ourselves runs none of its hooks: some write to the tracker."""

BRANCHES = "bw"
"""Our branches are ``bw/<issue>/<attempt>``."""


class GitError(Exception):
    """``git`` failed; ``str()`` is one line, in its own words."""


def git(folder: str, *arguments: str, given: str | None = None, index: str | None = None) -> str:
    """What ``git`` prints when it is called in ``folder``; raises ``GitError``.

    Names may hold bytes that are no UTF-8: they come and go as surrogates. ``index``: the path of
    another index than the folder's own.
    """
    try:
        done = subprocess.run(
            ["git", *NO_HOOKS, *arguments],
            cwd=folder,
            env=_environment() | ({"GIT_INDEX_FILE": index} if index else {}),
            input=os.fsencode(given or ""),
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise GitError(f"git: {error.strerror} ({error.filename})") from None
    if done.returncode != 0:
        raise GitError(_said(done.stderr) or f"git {arguments[0]} exited with {done.returncode}")
    return os.fsdecode(done.stdout)


def lines(folder: str, *arguments: str, given: Sequence[str] = ()) -> list[str]:
    """The lines that ``git`` prints, given these ones; raises ``GitError``."""
    return git(folder, *arguments, given="".join(f"{line}\n" for line in given)).splitlines()


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in GIT_PLACES}
    # Nobody is there to be asked, and looking must not write to an index that somebody uses.
    return kept | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}


def _said(stderr: bytes) -> str:
    said = [line.strip() for line in os.fsdecode(stderr).splitlines() if line.strip()]
    telling = [line for line in said if line.startswith(("fatal:", "error:"))]
    return (telling or said or [""])[0].removeprefix("fatal: ").removeprefix("error: ")
