"""The lines that bring a tracker to where a team has its issues, and back: ``[tracker] before`` and
``after``.

The tracker thread runs ``before`` ahead of the first claim, and both every some minutes while it
takes issues. Once all is settled, ``after`` runs a last time.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from beads_workers.core.base.settings import TrackerRules
from beads_workers.core.base.source import SourceError
from beads_workers.core.workers.worker import last_line
from beads_workers.kinds import CallLog
from beads_workers.runtime import sessions

LINE_SECONDS = 300.0
"""Time that a line may take."""
TAIL_BYTES = 2000


class TrackerSync:
    """The two lines of one run. ``log``: the file that has their output."""

    def __init__(self, rules: TrackerRules, folder: str, log: Path, call_log: CallLog) -> None:
        self._rules, self._folder, self._log, self._call_log = rules, folder, log, call_log
        self._due, self._has_run = 0.0, False
        self._running: subprocess.Popen[bytes] | None = None

    def before_taking(self) -> None:
        """Run what is due. Raises ``SourceError``: without it, nothing is begun."""
        if time.monotonic() < self._due:
            return
        if self._has_run:
            self._run("after", self._rules.after)
        self._run("before", self._rules.before)
        self._due, self._has_run = time.monotonic() + self._rules.every_seconds, True

    def stop(self) -> None:
        """End a line that runs, and run none before the end: the run is over. Any thread may call
        it."""
        self._due = math.inf
        if (running := self._running) is not None:
            _kill(running)

    def at_the_end(self) -> str:
        """Run ``after`` if anything was begun; return what went wrong, or ""."""
        try:
            if self._has_run:
                self._run("after", self._rules.after)
        except SourceError as error:
            return f"{error}: what was closed here is not told; run it by hand"
        return ""

    def _run(self, name: str, line: str | None) -> None:
        if line is None:
            return
        with self._log.open("ab") as log:
            begin = log.tell()
            process = subprocess.Popen(
                ["sh", "-c", line],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._running = process
        # A later run waits for its end.
        started = sessions.start_time(process.pid) or 0
        self._call_log.started(process.pid, started, ["sh", "-c", line])
        why = ""
        try:
            status = process.wait(LINE_SECONDS)
            why = f"exit {status}" if status else ""
        except subprocess.TimeoutExpired:
            why = f"it took longer than {LINE_SECONDS:g} s"
        finally:
            _kill(process)
            process.wait()
            self._running = None
            self._call_log.ended(process.pid)
        if why:
            with self._log.open("rb") as log:
                log.seek(max(begin, os.fstat(log.fileno()).st_size - TAIL_BYTES))
                said = last_line(log.read().decode("utf-8", "replace"))
            text = ": ".join(filter(None, (f"[tracker] {name}", why, said)))
            raise SourceError(text, f"the whole output is in {self._log}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
