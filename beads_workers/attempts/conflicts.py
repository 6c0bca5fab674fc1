"""Conflict marks that were left in files, whether staged, committed or neither.

In files that conflicted in a merge, any mark counts that no side of the merge had. A cherry-pick, a
rebase and a stash leave no trace once they are committed: in all other changed files only a whole
conflict counts, with its three kinds of marks. If the file is new, or had marks before, it may hold
them on purpose: there the last mark must have a label that git writes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from beads_workers.attempts.git_calls import Git
from beads_workers.worktrees.git import lines, merged, names

CONFLICTS = 1
"""The exit status of ``merge-tree`` if there are conflicts."""

MARKS = (b"<<<<<<< ", b">>>>>>> ")
PARTED = b"======="
_COMMIT = re.compile(rb"(?:parent of )?([0-9a-f]{7,64}) \(")
FILE_BYTES_MAX = 1 << 25
"""Bytes of the largest file examined: a larger file is no source that anybody merges by lines."""


def left_marks(
    folder: str, at_top: Git, directory: Path, base: str, tip: str, known: list[str] | None = None
) -> list[str]:
    """Return the files with conflict marks, as seen from ``folder``.

    ``at_top``: git at the top of the worktree, where all of its answers name a file in the same
    way; ``base`` and ``tip``: of the attempt; ``directory``: the worktree's git directory;
    ``known``: the tracked files that differ from ``base``, from the top, if that is known, and none
    of them is unmerged. Raises ``GitError``.
    """
    found = set()
    merged_all = known is not None and not _may_undo(directory)
    for name, sides in _conflicted(at_top, directory, base, tip, merged_all=merged_all):
        if name not in found and _has_marks(at_top, name, sides):
            found.add(name)
    if known is None:
        asked = ("diff", "--name-only", "--no-renames", "--diff-filter=d", "-z", base)
        known = names(at_top(*asked))
    for name in known:
        if name not in found and _has_conflict(at_top, name, base):
            found.add(name)
    return sorted(_from(folder, at_top, name) for name in found)


def tracked_changes(status: str) -> list[str] | None:
    """Return the tracked files that differ from HEAD, from the top; None if any is unmerged.
    ``status``: git's output for ``removal.STATUS``; raises ``GitError``."""
    rows = iter(names(status))
    found = []
    for row in rows:
        if row.startswith("u "):
            return None
        if row[:2] in _FIELDS:
            found.append(row.split(" ", _FIELDS[row[:2]])[-1])
        if row.startswith("2 "):
            next(rows, None)  # The name before it was renamed.
    return found


_FIELDS = {"1 ": 8, "2 ": 9}
"""Number of fields before the name in each kind of line on a tracked file."""


def unmerged(folder: str, at_top: Git) -> tuple[str, ...]:
    """Return the files with unresolved conflicts, also those outside of ``folder``, as seen from
    there; raises ``GitError``."""
    found = names(at_top("diff", "--name-only", "--diff-filter=U", "-z"))
    return tuple(_from(folder, at_top, name) for name in found)


def _from(folder: str, at_top: Git, name: str) -> str:
    return os.path.relpath(Path(at_top.folder, name), folder)


def _conflicted(
    git: Git, directory: Path, base: str, tip: str, *, merged_all: bool
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield files that conflicted, each with the commits on the sides of its merge."""
    merges: list[tuple[str, ...]] = []
    if tip != base:
        listed = git("rev-list", "--merges", "--first-parent", "--parents", f"{base}..{tip}")
        merges = [tuple(row.split(" ")[1:3]) for row in lines(listed)]
    if (directory / "MERGE_HEAD").exists():
        merges.append((tip, (directory / "MERGE_HEAD").read_text().split()[0]))
    for sides in merges:
        for name in _files_of(git, sides):
            yield name, sides
    if merged_all:
        return
    # Files of a stash or a cherry-pick, resolved or not, as long as nothing is committed.
    for row in names(git("ls-files", "-z", "--unmerged", "--resolve-undo")):
        yield row.partition("\t")[2], (tip,)


def _may_undo(directory: Path) -> bool:
    """Return whether the index may hold conflicts that were resolved: git writes an extension of
    this name then."""
    try:
        return b"REUC" in (directory / "index").read_bytes()
    except OSError:
        return True


def _files_of(git: Git, sides: tuple[str, ...]) -> list[str]:
    asked = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", *sides)
    done = git.ask(*asked, good=(0, CONFLICTS))
    if done.status in (0, CONFLICTS):
        return merged(done.output)[1]
    # An older git, or a merge driver that cannot run: every file that differs from both sides.
    unlike = [{*names(git("diff", "--name-only", "-z", side))} for side in sides]
    return sorted(set.intersection(*unlike))


def _has_marks(git: Git, name: str, sides: tuple[str, ...]) -> bool:
    try:
        left = _marks(Path(git.folder, name).read_bytes())
    except IsADirectoryError:  # A submodule has no marks: it is staged once it is resolved.
        return bool(git("ls-files", "-z", "--unmerged", "--", f":(literal){name}"))
    except OSError:
        return False  # It was removed, which resolves the conflict.
    if left:
        for side in sides:
            left -= _marks(os.fsencode(_text(git, side, name)))
    return all(any(line.startswith(mark) for line in left) for mark in MARKS)


def _has_conflict(git: Git, name: str, base: str) -> bool:
    file = Path(git.folder, name)
    try:
        if file.is_symlink() or file.stat().st_size > FILE_BYTES_MAX:
            return False
        text = file.read_bytes()
    except OSError:
        return False  # Gone, or a submodule.
    if not (ends := _ends(text)):
        return False
    before = os.fsencode(_text(git, base, name))
    known = _marks(before)
    ends -= known
    if ends and before and not known:
        return True
    return any(_is_gits(git, end) for end in ends)


def _ends(text: bytes) -> set[bytes]:
    """Return the last lines of whole conflicts."""
    found, reached = set(), 0
    for line in text.splitlines() if MARKS[0] in text else ():
        if line.startswith(MARKS[0]):
            reached = 1
        elif line == PARTED and reached:
            reached = 2
        elif line.startswith(MARKS[1]) and reached == 2:
            found.add(line)
            reached = 0
    return found


def _is_gits(git: Git, end: bytes) -> bool:
    """Return whether git ends conflicts with this line: with a stash, or a commit and its
    subject."""
    label = end.removeprefix(MARKS[1])
    if label == b"Stashed changes":
        return True
    if (named := _COMMIT.match(label)) is None:
        return False
    name = f"{named[1].decode()}^{{commit}}"
    return git.ask("rev-parse", "--verify", "--quiet", name, good=(0, 1)).status == 0


def _text(git: Git, commit: str, name: str) -> str:
    for row in names(git("ls-tree", "-z", commit, "--", f":(literal){name}")):
        _, kind, blob = row.partition("\t")[0].split(" ")
        if kind == "blob":
            return git("cat-file", "blob", blob)
    return ""


def _marks(text: bytes) -> set[bytes]:
    return {line for line in text.splitlines() if line.startswith(MARKS)}
