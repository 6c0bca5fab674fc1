"""What the kernel tells of the entries of folders (inotify). Linux.

Source: ``man 7 inotify``.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

IN_OPEN, IN_CLOSE_WRITE, IN_MOVED_TO, IN_CREATE = 0x20, 0x8, 0x80, 0x100
WRITTEN = IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE
IN_ISDIR, IN_Q_OVERFLOW = 0x40000000, 0x4000
_EVENT = struct.Struct("iIII")


class FolderEvents:
    """Watches on folders. ``fd`` is readable when ``read`` is due; -1 if nothing can be watched.
    ``lost``: not all that happened was told."""

    def __init__(self) -> None:
        self.fd = _call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
        self.lost = False
        self._folders: dict[int, Path] = {}

    def watch(self, folders: Iterable[Path], events: int) -> None:
        """Watch the folders of these that are there."""
        for folder in folders:
            if folder.is_dir():
                number = _call("inotify_add_watch", self.fd, os.fsencode(folder), events)
                self.lost = self.lost or number < 0
                self._folders[number] = folder

    def read(self) -> Iterator[tuple[int, Path]]:
        """Yield what has happened since: the events, and the entry."""
        with contextlib.suppress(BlockingIOError):
            while self.fd >= 0 and (data := os.read(self.fd, 1 << 16)):
                yield from self._events(data)

    def _events(self, data: bytes) -> Iterator[tuple[int, Path]]:
        at = 0
        while at < len(data):
            number, mask, _, size = _EVENT.unpack_from(data, at)
            name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + size].rstrip(b"\0"))
            at += _EVENT.size + size
            folder = self._folders.get(number)
            if mask & IN_Q_OVERFLOW or folder is None:
                self.lost = True
            else:
                yield mask, folder / name

    def close(self) -> None:
        """Stop watching."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _call(name: str, *arguments: object) -> int:
    import ctypes  # Imported here: few processes watch anything.

    found: Callable[..., int] = getattr(ctypes.CDLL(None, use_errno=True), name)
    return found(*arguments)
