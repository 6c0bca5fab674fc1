"""A git that stays: one process that answers one question after the other.

The lander asks many small things for each landing, and starting git costs more than its answer.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress

from beads_workers.runtime.kernel import system
from beads_workers.worktrees.git import (
    TRIES_MAX,
    TRY_AGAIN_SECONDS,
    GitHangs,
    GitNoAnswer,
    argv,
    bound,
    complaint,
    environment,
)

ERROR_BYTES_MAX = 4096
"""Bytes read of what git complains about as it ends."""


class StayingGit:
    """One command of git that reads questions from stdin. ``places``: variables that tell git where
    it is; ``seconds``: the longest time of an answer. git starts with the first question, and ends
    with this object."""

    def __init__(
        self, folder: str, places: Mapping[str, str], seconds: float, *arguments: str
    ) -> None:
        self._folder, self._places, self._seconds = folder, places, seconds
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._errors = -1
        self._end: weakref.finalize[..., StayingGit] | None = None

    def ask(self, asked: bytes, is_whole: Callable[[bytes], bool]) -> bytes:
        """Return git's answer, as soon as it is whole. If git dies meanwhile it is asked again.
        Raises ``GitNoAnswer``, with git's complaint if it said one."""
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                return self._once(asked, is_whole)
            except GitNoAnswer:
                self.close()
                if not tries_left:
                    raise
            except BaseException:  # An answer that nobody has read would be taken for the next one.
                self.close()
                raise
            time.sleep(TRY_AGAIN_SECONDS)
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        """End git, until the next question."""
        if self._end is not None:
            self._end()
        self._process = self._end = None

    # --- inside -----------------------------------------------------------------------------------

    def _once(self, asked: bytes, is_whole: Callable[[bytes], bool]) -> bytes:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        name = f"git {self._arguments[0]}"
        try:
            os.write(process.stdin.fileno(), asked)
        except OSError as error:
            raise GitNoAnswer(self._complaint() or f"{name}: {error.strerror}") from None
        found, until = b"", time.monotonic() + bound(self._seconds)
        ready = select.poll()
        ready.register(process.stdout, select.POLLIN)
        while not is_whole(found):
            if not ready.poll(max(0.0, until - time.monotonic()) * 1000):
                raise GitHangs(f"{name} took longer than {bound(self._seconds):g} seconds")
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                raise GitNoAnswer(self._complaint() or f"{name} has ended")
            found += data
        return found

    def _complaint(self) -> str:
        return complaint(os.pread(self._errors, ERROR_BYTES_MAX, 0))

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner == os.getpid():
            return self._process
        if self._process is not None and self._end is not None:
            # After a fork the pipes would be shared with the process that forked this one. They are
            # not closed here: their numbers may be those of other files by now.
            self._end.detach()
            _LEFT.append(self._process)
        errors = system.memory_file("errors")
        try:
            process = subprocess.Popen(
                argv(self._arguments),
                cwd=self._folder,
                env=environment() | dict(self._places),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
            )
        except OSError as error:
            os.close(errors)
            raise GitNoAnswer(f"git: {error.strerror} ({error.filename})") from None
        self._process, self._owner, self._errors = process, os.getpid(), errors
        self._end = weakref.finalize(self, _ended, process, errors, os.getpid())
        return process


_LEFT: list[subprocess.Popen[bytes]] = []
"""Processes of the process that forked this one."""


def _ended(process: subprocess.Popen[bytes], errors: int, owner: int) -> None:
    """Close the pipes, and see the end of a git of ours: it may hang."""
    if owner != os.getpid():
        return
    with suppress(OSError):
        os.close(errors)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    process.kill()
    process.wait()
