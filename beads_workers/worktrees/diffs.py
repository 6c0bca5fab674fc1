"""Diffs for people: no program that a branch names is run, and no diff is endless."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from threading import Timer

from beads_workers.core.base.text import printable
from beads_workers.worktrees.git import GitError, GitHangs, argv, bound, complaint, environment

SAFE = ("--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short")
"""Options of ``git diff`` with which no program that the branch names is run."""

LINE_WIDTH = 2000
DIFF_BYTES_MAX = 4 << 20
"""Maximum size of a diff that is read whole: more than anybody reads on a screen."""
DIFF_SECONDS = 60.0


def diff(folder: str, *words: str, bytes_max: int = DIFF_BYTES_MAX) -> tuple[list[str], bool]:
    """Return the lines of ``git diff WORDS``, safe to show, and whether some were left out.

    Raise ``GitError``.
    """
    seconds = bound(DIFF_SECONDS)
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                argv(("-c", "core.quotePath=false", "diff", *SAFE, *words)),
                cwd=folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            raise GitError(f"git: {error.strerror} ({error.filename})") from None
        timer = Timer(seconds, _kill, [process.pid])
        timer.start()
        try:
            assert process.stdout is not None, "it is a pipe"
            with process.stdout:
                data = process.stdout.read(bytes_max + 1)
            cut = len(data) > bytes_max
            if cut:
                _kill(process.pid)
            status = process.wait()
        finally:
            timer.cancel()
        if status < 0 and not cut:
            raise GitHangs(f"git diff took longer than {seconds:g} seconds")
        if status and not cut:
            errors.seek(0)
            raise GitError(complaint(errors.read()) or f"git diff exited with {status}")
    lines = os.fsdecode(data[:bytes_max]).split("\n")
    # The last line is empty, or cut in the middle.
    return [diff_line(line) for line in lines[:-1]], cut


def _kill(leader: int) -> None:
    """Kill git and its filters: these would hold the pipe open."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def diff_line(text: str) -> str:
    """Return one line of a diff, safe to show."""
    return printable(text.replace("\t", "        "), LINE_WIDTH)
