"""Trust in files and folders: docs/TRUST.md, "What is read, and who must own it".

A repository may bring any file, also below the run directory. Files there are opened by name in
many places, so all of them are checked before any is opened. No other user can change them
afterwards: the folder is ours alone.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from shlex import quote

FILE, FOLDER, SOCKET = stat.S_IFREG, stat.S_IFDIR, stat.S_IFSOCK
KINDS = {
    FILE: "file",
    FOLDER: "folder",
    SOCKET: "socket",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "named pipe",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}
PROBE = ".bw-doctor-"
"""Begin of the name of a socket that a check of the folder makes, and removes at once."""
NAMED = {
    ".gitignore": FILE,
    "lock": FILE,
    "run.json": FILE,
    "tracker.db": FILE,
    "web.json": FILE,
    "control.sock": SOCKET,
    "runs": FOLDER,
    "worktrees": FOLDER,
    "worktree-records": FOLDER,
    "alive": FILE,
    "ended.json": FILE,
    "issues": FOLDER,
    "journal.jsonl": FILE,
    "lander.log": FILE,
    "logs": FOLDER,
    "orchestrator.log": FILE,
    "settings.json": FILE,
    "settled": FILE,
}
"""Required kind of each name, in the run directory and in the folder of a run. Anything else there
is a file or a folder."""

FILES_ONLY = ("worktree-records", "logs", "issues")
PIPES = {"pool.wake": stat.S_IFIFO}
"""Entries that may be no file, despite ``FILES_ONLY``: created by ``worktrees.pool``."""


class Untrusted(Exception):
    """Error: ``path`` decides what is run and where is written, and is not to be trusted.

    ``str()`` says why, ``hint`` what to do.
    """

    def __init__(self, path: Path, why: str, hint: str) -> None:
        super().__init__(f"{path} {why}, and is not used")
        self.path = path
        self.hint = hint


def check_owner(path: Path, start: Path) -> None:
    """Raise ``Untrusted`` unless root, this user, or the owner of the folder ``start`` owns the
    path.

    Both a link and its target are checked. A path that does not exist passes.
    """
    for status in (os.lstat, os.stat):
        try:
            uid = status(path).st_uid
        except OSError:
            return
        if not _is_trusted(uid, start):
            raise stranger(path, uid)


def check_place(path: Path, start: Path) -> None:
    """Raise ``Untrusted`` as ``check_owner`` does, for the path and each folder above it that does
    not hold ``start`` itself: whoever owns one of them can put another in its place."""
    for each in (path, *path.parents, *path.resolve().parents):
        if not start.is_relative_to(each):
            check_owner(each, start)


def check_state(root: Path, start: Path) -> None:
    """Raise ``Untrusted`` if a run directory contains something that no run creates: a link, a
    device, a folder instead of a file, or a file of a stranger.

    The directory itself may be a link. Checkouts (``worktrees/*``) may contain anything.
    """
    check_owner(root, start)
    for entry in _entries(root):
        _check_entry(entry, start)
        if entry.name in ("worktrees", "worktree-records"):
            _check_below(entry)
        elif entry.name == "runs":
            for run in _entries(entry):
                _check_entry(run, start)
                for each in _entries(run):
                    _check_entry(each, start)
                    _check_below(each)


def is_in_index(root: Path) -> bool:
    """Return whether the name is in the repository's index; read without git, which would cost each
    command some milliseconds. True also if the index cannot be read."""
    found = _index(root.absolute().parent)
    if found is None:
        return False
    top, file = found
    try:
        index = file.read_bytes()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    written_in_full = index[4:8] in (b"\0\0\0\2", b"\0\0\0\3") and b"link" not in index
    below = os.fsencode(root.absolute().parent.resolve().relative_to(top) / root.name)
    return not written_in_full or below in index


def in_repository(folder: Path) -> bool:
    """Return whether a checkout contains this folder."""
    return _index(folder) is not None


def _is_trusted(uid: int, start: Path) -> bool:
    # The owner of ``start`` is checked last: in a container another user has often checked out.
    return uid in (0, os.geteuid()) or uid == start.stat().st_uid


def _entries(folder: os.DirEntry[str] | Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; empty if it is no folder, or cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _check_entry(entry: os.DirEntry[str], start: Path) -> None:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return  # Removed meanwhile: a fleet is running.
    kind = stat.S_IFMT(status.st_mode)
    expected = SOCKET if entry.name.startswith(PROBE) else NAMED.get(entry.name)
    if kind not in (expected,) if expected else kind not in (FILE, FOLDER):
        raise _wrong_kind(entry, kind)
    if not _is_trusted(status.st_uid, start):
        raise stranger(Path(entry.path), status.st_uid)


def _check_below(folder: os.DirEntry[str]) -> None:
    """Check the entries of a folder, which are opened by name as well. Files are not examined with
    ``stat``: there may be thousands."""
    for entry in _entries(folder):
        if entry.is_file(follow_symlinks=False):
            continue
        if folder.name not in FILES_ONLY and entry.is_dir(follow_symlinks=False):
            continue
        try:
            kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
        except FileNotFoundError:
            continue
        if kind == PIPES.get(entry.name):
            continue
        if kind != SOCKET or folder.name in FILES_ONLY:
            raise _wrong_kind(entry, kind)


def _wrong_kind(entry: os.DirEntry[str], kind: int) -> Untrusted:
    path = Path(entry.path)
    hint = f"no run made it; look where it came from, then remove it: rm -r -- {quote(str(path))}"
    return Untrusted(path, f"is a {KINDS.get(kind, 'device')}", hint)


def stranger(path: Path, uid: int) -> Untrusted:
    """Return the error for something that belongs to another user."""
    hint = "go to a folder of your own, or have it removed"
    return Untrusted(path, f"belongs to another user (uid {uid})", hint)


def _index(folder: Path) -> tuple[Path, Path] | None:
    """Return the top of the checkout that contains the folder, and its index; None outside of
    one."""
    folder = folder.resolve()
    for above in (folder, *folder.parents):
        dot_git = above / ".git"
        # Without ``HEAD``, git goes on in the folders above.
        if os.path.lexists(dot_git / "HEAD"):
            return above, dot_git / "index"
        if dot_git.is_file():
            git_directory = os.fsdecode(dot_git.read_bytes()).removeprefix("gitdir:").strip()
            return above, above / git_directory / "index"
    return None
