"""Note each function of ours that a process executes, from its start on, with all its threads.

Python imports this module by itself if its folder is on ``PYTHONPATH``. ``SHAPE_TRACE`` names the
folder of the notes. Our processes are forked, replaced and killed, and close descriptors that they
do not know. So every new function is written at once, to a file that is named by the process, and
nothing stays open.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from types import CodeType, FrameType
from typing import Any

PACKAGE = __file__.rpartition("/tests/shape/")[0] + "/beads_workers/"


class Notes:
    """A profile function. A forked child has a file of its own, and sees everything anew."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: dict[int, CodeType] = {}  # By id: to hash a code object costs its whole length.

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and id(code := frame.f_code) not in self._seen:
            self._seen[id(code)] = code
            if code.co_filename.startswith(PACKAGE) and _is_def(code):
                self.write(_named(code))

    def forked(self) -> None:
        """Begin a file for the child, headed by the function that forked it."""
        self._seen.clear()
        self.write(f"fork {os.getppid()} {_named(sys._getframe(1).f_code)}")

    def write(self, line: str) -> None:
        """Append a line to the file of this process."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(f"{self._folder}/{os.getpid()}", flags)
        os.write(fd, line.encode() + b"\n")
        os.close(fd)


def _is_def(code: CodeType) -> bool:
    """Return whether it was written with ``def``: no lambda, no body of a class or a module."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")


def _named(code: CodeType) -> str:
    file = code.co_filename.removeprefix(PACKAGE)
    return f"{file}:{code.co_firstlineno}:{code.co_qualname}"


def begin(folder: str) -> None:
    """Trace this process and the children that it forks."""
    notes = Notes(folder)
    notes.write("exec " + " ".join(sys.orig_argv[1:]).replace("\n", " "))
    os.register_at_fork(after_in_child=notes.forked)
    threading.setprofile(notes)
    sys.setprofile(notes)


if "SHAPE_TRACE" in os.environ:
    begin(os.environ["SHAPE_TRACE"])
