"""What git keeps in plain files, read without a call of git: refs, reflogs, a worktree's places.

An attempt looks at its branch a dozen times, and nearly always the branch is one file and ``HEAD``
another. Anything else (packed refs, reftables, a symbolic ref, a detached HEAD, a file that is no
file) is no answer: then git is asked. The agent can write these files, as it can all of ``.git``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from beads_workers.core.base.model import value
from beads_workers.worktrees.git import is_object

BYTES_MAX = 4096
"""Bytes of the longest file that is read: it holds one name of git's."""


def loose_ref(common: Path, ref: str) -> str:
    """Return the commit that the file of a ref names; "" if only git can tell."""
    name = _line(common / ref)
    return name if is_object(name) else ""


def all_refs(own: Path) -> dict[str, str] | None:
    """Return every ref with its object, as ``for-each-ref`` lists them in a linked worktree; None
    if only git can tell. ``own``: the worktree's git directory."""
    named = _line(own / "commondir")
    common = own / named
    if not named or (common / "reftable").exists():
        return None
    found, symbolic = dict[str, str](), dict[str, str]()
    try:
        for name, file in _loose_files(own, common):
            line = _line(file)
            if line.startswith("ref: "):
                symbolic[name] = line.removeprefix("ref: ")
            elif is_object(line) and not _ODD_NAME.search(name):
                found[name] = line
            elif file.exists():
                return None
        # Read last: a ref that was packed meanwhile is there.
        packed = _packed(common)
    except OSError:
        return None
    found = packed | found
    return found | {name: found[to] for name, to in symbolic.items() if to in found}


_OWN_REFS = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")
"""Refs that each worktree has for itself."""

_ODD_NAME = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|/\.|\.$")


def _loose_files(own: Path, common: Path) -> Iterator[tuple[str, Path]]:
    for directory in (common, own):
        for folder, _, files in os.walk(directory / "refs"):
            below = f"{folder[len(str(directory)) + 1 :]}/"
            if (directory == own) == below.startswith(_OWN_REFS):
                names = (name for name in files if not name.endswith(".lock"))
                yield from ((below + name, Path(folder, name)) for name in names)


def _packed(common: Path) -> dict[str, str]:
    """Return the packed refs; raises ``OSError``."""
    try:
        text = (common / "packed-refs").read_text("utf-8", "surrogateescape")
    except FileNotFoundError:
        return {}
    rows = (row.partition(" ") for row in text.split("\n") if row[:1] not in ("", "#", "^"))
    return {name: commit for commit, _, name in rows}


def is_free(common: Path, ref: str) -> bool:
    """Return whether there is no ref of this name or below it; False if only git can tell."""
    if (common / "reftable").exists() or os.path.lexists(common / ref):
        return False
    try:
        packed = (common / "packed-refs").read_bytes()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    name = os.fsencode(f" {ref}")
    return name + b"\n" not in packed and name + b"/" not in packed


@value
class LoggedMove:
    """One move of a branch or of a ``HEAD``. ``was``: the commit before; ``who``: name, address and
    time (epoch seconds)."""

    commit: str
    was: str
    why: str
    who: tuple[str, str, int]


_MOVE = re.compile(r"([0-9a-f]+) ([0-9a-f]+) (.*?) ?<(.*)> (\d+) \S+\t?(.*)")


def reflog(directory: Path, ref: str) -> list[LoggedMove] | None:
    """Return the moves of a ref, the newest first; None if only git can tell."""
    try:
        text = (directory / "logs" / ref).read_text("utf-8", "surrogateescape")
    except OSError:
        return None
    found = [_MOVE.fullmatch(row) for row in text.split("\n")[-2::-1]]
    read = [LoggedMove(m[2], m[1], m[6], (m[3], m[4], int(m[5]))) for m in found if m]
    return read if len(read) == len(found) and all(is_object(m.commit) for m in read) else None


def places(folder: Path) -> tuple[str, str, str] | None:
    """Return what ``rev-parse`` says of the top of a linked worktree: its git directory, the common
    one, and the top. None if only git can tell."""
    try:
        top = folder.resolve(strict=True)
        named = _line(top / ".git")
        own = Path(named.removeprefix("gitdir: "))
        back = Path(_line(own / "gitdir"))
        common = (own / _line(own / "commondir")).resolve(strict=True)
        plain = own.is_absolute() and own == own.resolve(strict=True)
        if not plain or not named.startswith("gitdir: ") or back != top / ".git":
            return None
        if own.parent != common / "worktrees" or (own / "config.worktree").exists():
            return None
    except OSError:
        return None
    return str(own), str(common), str(top)


def is_nowhere_checked_out(common: Path, ref: str) -> bool:
    """Return whether no worktree has this branch checked out; False if only git can tell."""
    if (common / "reftable").exists():
        return False
    heads = [_line(each / "HEAD") for each in (common, *common.glob("worktrees/*"))]
    return all(heads) and f"ref: {ref}" not in heads


def is_checked_out(directory: Path, ref: str) -> bool:
    """Return whether the ``HEAD`` of a worktree names this ref. ``directory``: the worktree's own
    git directory. With reftables, it names none."""
    return _line(directory / "HEAD") == f"ref: {ref}"


def _line(path: Path) -> str:
    """Return the only line of a regular file; "" for anything else. Never waits, as for a pipe that
    an agent has put there."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return ""
        text = os.read(file, BYTES_MAX)
    except OSError:
        return ""
    finally:
        os.close(file)
    line, end, rest = os.fsdecode(text).partition("\n")
    return line if end and not rest else ""
