"""Files below one folder, whatever their path says: no ``..``, no symbolic link, no foreign file.

Every part of a path is opened by itself, relative to the one before it, so that nobody can put a
link in its place between a check and its use.
"""

from __future__ import annotations

import errno
import os
import stat

from beads_workers.core.log_paths import NotConfined, parts_below
from beads_workers.core.scripts import LogRoot

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK a pipe that somebody left there would hold us for ever.
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def open_to_read(root: str, path: str) -> int:
    """A descriptor of the file; raises ``NotConfined``, or ``OSError`` where it is not there."""
    *folders, name = parts_below(root, path)
    folder = _enter(root, folders, make=False)
    try:
        return _opened(folder, name, os.O_RDONLY)
    finally:
        os.close(folder)


def append(root: LogRoot, path: str, data: bytes) -> None:
    """Add to the log, making it and its folders where they are missing, for us alone.

    One that would get too long is rotated first. Raises ``NotConfined`` or ``OSError``.
    """
    *folders, name = parts_below(root.path, path)
    folder = _enter(root.path, folders, make=True)
    try:
        file = _opened(folder, name, _APPEND)
        if (size := os.fstat(file).st_size) and size + len(data) > root.bytes_max:
            os.close(file)
            _rotate(folder, name, root.keep)
            file = _opened(folder, name, _APPEND)
        try:
            written = 0
            while written < len(data):
                written += os.write(file, data[written:])
        finally:
            os.close(file)
    finally:
        os.close(folder)


def _enter(root: str, folders: list[str], *, make: bool) -> int:
    # The root is the user's own word: that one may be a link.
    folder = os.open(root, _FOLDER)
    for name in folders:
        try:
            if make:
                try:
                    os.mkdir(name, 0o700, dir_fd=folder)
                except FileExistsError:
                    pass
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        except OSError as error:
            raise _explained(error, name) from None
        finally:
            os.close(folder)
        folder = inner
    return folder


def _opened(folder: int, name: str, flags: int) -> int:
    try:
        file = os.open(name, flags | _FILE, 0o600, dir_fd=folder)
    except OSError as error:
        raise _explained(error, name) from None
    found = os.fstat(file)
    trouble = ""
    if not stat.S_ISREG(found.st_mode):
        trouble = "is no file"
    elif found.st_nlink != 1:
        trouble = "has another name elsewhere"
    elif found.st_uid != os.geteuid():
        trouble = "belongs to another user"
    if trouble:
        os.close(file)
        raise NotConfined(f"{name} {trouble}")
    return file


def _explained(error: OSError, name: str) -> Exception:
    match error.errno:
        case errno.ELOOP | errno.ENOTDIR:
            return NotConfined(f"{name} is a link, or no folder")
        case errno.ENXIO | errno.EISDIR:
            return NotConfined(f"{name} is no file")
        case _:
            error.filename = name
            return error


def _rotate(folder: int, name: str, keep: int) -> None:
    names = [name, *(f"{name}.{number}" for number in range(1, keep + 1))]
    # From the oldest on: what is renamed over another is gone.
    for older, newer in reversed(list(zip(names[1:], names, strict=False))):
        try:
            os.rename(newer, older, src_dir_fd=folder, dst_dir_fd=folder)
        except FileNotFoundError:
            pass
    if not keep:
        os.unlink(name, dir_fd=folder)
