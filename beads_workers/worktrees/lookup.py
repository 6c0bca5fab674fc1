"""Names looked up by one git that stays: ``cat-file --batch-check``.

The lander asks ten times for each landing which commit a ref is at, or which tree a commit has.
git reads a ref anew for each name, so an answer is never older than its question.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress

from beads_workers.worktrees.git import (
    TRIES_MAX,
    TRY_AGAIN_SECONDS,
    GitError,
    GitHangs,
    GitNoAnswer,
    argv,
    bound,
    complaint,
    environment,
    is_object,
)

ERROR_BYTES_MAX = 4096
"""Bytes read of what git complains about as it ends."""

_UNKNOWN = (" missing", " ambiguous")
"""Ends of git's answers for a name that means nothing, or several objects."""


class Lookup:
    """Lookups in one repository. ``places``: variables that tell git where it is; ``seconds``: the
    longest time of an answer. git starts with the first lookup, and ends with this object."""

    def __init__(self, folder: str, places: Mapping[str, str], seconds: float) -> None:
        self._folder, self._places, self._seconds = folder, places, seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._errors = -1
        self._end: weakref.finalize[..., Lookup] | None = None

    def find(self, name: str, kind: str) -> str | None:
        """Return the object that a name means now, followed to this kind (``commit``, ``tree``);
        None if there is none. Raises ``GitError``, which is ``GitNoAnswer`` if git said nothing."""
        asked = f"{name}^{{{kind}}}"
        if "\n" in asked:
            return None  # No name holds a line end.
        answer = self._answer(asked)
        if is_object(answer):
            return answer
        if answer.endswith(_UNKNOWN):
            return None
        raise GitError(f"git's answer names no object: {answer[:80]!r}")

    def close(self) -> None:
        """End git, until the next lookup."""
        if self._end is not None:
            self._end()
        self._process = self._end = None

    # --- inside -----------------------------------------------------------------------------------

    def _answer(self, asked: str) -> str:
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                return self._line(asked)
            except GitNoAnswer:
                self.close()
                if not tries_left:
                    raise
            except BaseException:  # An answer that nobody has read would be taken for the next one.
                self.close()
                raise
            time.sleep(TRY_AGAIN_SECONDS)
        raise AssertionError("the last try returns or raises")

    def _line(self, asked: str) -> str:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            os.write(process.stdin.fileno(), os.fsencode(f"{asked}\n"))
        except OSError as error:
            why = self._complaint() or f"git cat-file: {error.strerror}"
            raise GitNoAnswer(why) from None
        found, until = b"", time.monotonic() + bound(self._seconds)
        ready = select.poll()
        ready.register(process.stdout, select.POLLIN)
        while not found.endswith(b"\n"):
            if not ready.poll(max(0.0, until - time.monotonic()) * 1000):
                raise GitHangs(f"git cat-file took longer than {bound(self._seconds):g} seconds")
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                raise GitNoAnswer(self._complaint() or "git cat-file has ended")
            found += data
        return os.fsdecode(found[:-1])

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
        errors = os.memfd_create("errors", os.MFD_CLOEXEC)
        try:
            process = subprocess.Popen(
                argv(("cat-file", "--batch-check=%(objectname)")),
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
