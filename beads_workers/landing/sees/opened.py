"""Sources of the checkout that are opened while a check runs: for machines without mounts."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

IN_OPEN = 0x20
EVENT_BYTES = 16
READ_BYTES = 1 << 16


class Opened:
    """Watch on these files for opens by any process; raises ``OSError`` if they cannot be
    watched."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = {str(file): str(file) for file in files}
        for file in list(self._files):
            path = Path(file)
            if path.suffix == ".py":
                self._files[f"{path.parent}/__pycache__/{path.stem}"] = file
        import ctypes

        library = ctypes.CDLL(None)
        self._descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._folders: dict[int, str] = {}
        for folder in sorted({os.path.dirname(each) for each in self._files}):  # noqa: PTH120
            if Path(folder).is_dir():
                watch = library.inotify_add_watch(self._descriptor, os.fsencode(folder), IN_OPEN)
                self._folders[watch] = folder
        if self._descriptor < 0 or -1 in self._folders:
            raise OSError(0, "files cannot be watched", "inotify")

    def since(self) -> set[str]:
        """Return the files that were opened since the last call."""
        found = set[str]()
        while True:
            try:
                data = os.read(self._descriptor, READ_BYTES)
            except BlockingIOError:
                return found
            while data:
                watch, _, _, length = struct.unpack("iIII", data[:EVENT_BYTES])
                name = os.fsdecode(data[EVENT_BYTES : EVENT_BYTES + length].rstrip(b"\0"))
                data = data[EVENT_BYTES + length :]
                path = f"{self._folders.get(watch, '')}/{name}"
                if name.endswith(".pyc"):
                    path = path.rsplit(".", 2)[0]
                found |= {self._files[path]} if path in self._files else set()

    def close(self) -> None:
        """Stop watching."""
        os.close(self._descriptor)
