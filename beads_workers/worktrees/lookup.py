"""What the lander asks ten times for each landing, of gits that stay.

Which commit a ref is at, and which tree a commit has (``cat-file --batch-check``): git reads a ref
anew for each name, so an answer is never older than its question. In which files two trees differ
(``diff-tree --stdin``). And what it writes of its own: scratch commits (``hash-object
--stdin-paths``), and the refs that keep them (``update-ref --stdin``).
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from beads_workers.worktrees.batch_git import StayingGit
from beads_workers.worktrees.git import GitError, is_object, names

_UNKNOWN = (" missing", " ambiguous")
"""Ends of git's answers for a name that means nothing, or several objects."""

NOBODY = "beads-workers <beads-workers@localhost>"
"""Author and committer of commits that no branch has."""


class Lookup:
    """Lookups in one repository; ``places``, ``seconds``: as of ``StayingGit``."""

    def __init__(self, folder: str, places: Mapping[str, str], seconds: float) -> None:
        self._git = StayingGit(folder, places, seconds, "cat-file", "--batch-check=%(objectname)")

    def find(self, name: str, kind: str) -> str | None:
        """Return the object that a name means now, followed to this kind (``commit``, ``tree``);
        None if there is none. Raises ``GitError``, which is ``GitNoAnswer`` if git said nothing."""
        asked = f"{name}^{{{kind}}}"
        if "\n" in asked:
            return None  # No name holds a line end.
        answer = os.fsdecode(self._git.ask(os.fsencode(f"{asked}\n"), _is_line))[:-1]
        if is_object(answer):
            return answer
        if answer.endswith(_UNKNOWN):
            return None
        raise GitError(f"git's answer names no object: {answer[:80]!r}")

    def close(self) -> None:
        """End git, until the next lookup."""
        self._git.close()


class Differences:
    """Differences of trees in one repository; ``places``, ``seconds``: as of ``StayingGit``."""

    def __init__(self, folder: str, places: Mapping[str, str], seconds: float) -> None:
        asked = ("diff-tree", "-r", "-z", "--name-only", "--stdin")
        self._git = StayingGit(folder, places, seconds, *asked)

    def between(self, tree: str, other: str) -> list[str]:
        """Return the names of the files in which two trees differ; raises ``GitError``."""
        # A line that names no object is printed as it is: it marks the end of the answer.
        end = f"end-{secrets.token_hex(8)}\n"
        asked, marked = f"{tree} {other}\n{end}".encode(), end.encode()
        answer = os.fsdecode(self._git.ask(asked, lambda found: found.endswith(marked)))
        head, listed = f"{tree} {other}\n", answer[: -len(end)]
        if not listed.startswith(head):
            raise GitError(f"git's answer is of other trees: {answer[:100]!r}")
        return names(listed[len(head) :])


class Scratch:
    """Commits that no branch of anybody has, in one repository; ``places``, ``seconds``: as of
    ``StayingGit``. ``file``: a file of ours, for one commit after the other."""

    def __init__(self, file: Path, places: Mapping[str, str], seconds: float) -> None:
        self._file = file
        asked = ("hash-object", "-t", "commit", "-w", "--no-filters", "--stdin-paths")
        self._git = StayingGit(str(file.parent), places, seconds, *asked)

    def commit(self, tree: str, parents: Iterable[str], message: str) -> str:
        """Write a commit of nobody, unsigned; raises ``GitError`` and ``OSError``."""
        who = f"{NOBODY} {int(time.time())} +0000"
        head = [f"tree {tree}", *(f"parent {each}" for each in parents)]
        head += [f"author {who}", f"committer {who}", "", message]
        self._file.write_bytes("\n".join(head).encode())
        answer = self._git.ask(os.fsencode(f"{self._file.name}\n"), _is_line).decode()[:-1]
        if not is_object(answer):
            raise GitError(f"git's answer names no object: {answer[:80]!r}")
        return answer


class Refs:
    """Changes of refs that nobody else changes, in one repository; ``places``, ``seconds``: as of
    ``StayingGit``."""

    def __init__(self, folder: str, places: Mapping[str, str], seconds: float) -> None:
        self._git = StayingGit(folder, places, seconds, "update-ref", "--stdin")

    def change(self, *changes: str) -> None:
        """Make these changes in one transaction, each a line of ``update-ref --stdin``; raises
        ``GitError``."""
        asked = "".join(f"{line}\n" for line in ("start", *changes, "commit"))
        self._git.ask(asked.encode(), lambda found: found.endswith(b"commit: ok\n"))


def _is_line(found: bytes) -> bool:
    return found.endswith(b"\n")
