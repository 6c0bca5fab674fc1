"""Notifications: the command of ``--notify``, run from the loop for people who do not look."""

from __future__ import annotations

import html
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf
from pathlib import Path

from beads_workers.core.base.model import value
from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.settings import NOTIFY_DESKTOP
from beads_workers.core.records.journal import Entry
from beads_workers.core.views.snapshot import Board
from beads_workers.runtime.kernel import system
from beads_workers.ui.notices import Notice, Notices, environment
from beads_workers.ui.time_text import moment

QUEUE_MAX = 20
"""Number of notices that may wait. Further notices are dropped, and noted in the log."""

OUTPUT_BYTES_MAX = 64 << 10
"""Bytes of one command's output that the log keeps; then its pipe is closed."""


@value
class NotificationLimits:
    """Limits of notifications, in seconds."""

    # For one command: enough for a slow network, too little to block the rest.
    command: float = 30.0
    # Between TERM and KILL.
    grace: float = 2.0
    # For all remaining commands at the end of the run; the client waits longer than this for our
    # exit.
    end: float = 10.0


LIMITS = NotificationLimits()


def argv_of(command: str, notice: Notice) -> list[str]:
    """Return the command for a notice: the user's own shell line, or ``notify-send``."""
    if command != NOTIFY_DESKTOP:
        return ["/bin/sh", "-c", command]
    # The text is markup; nothing of it goes through a shell.
    title = f"beads-workers: {notice.event.replace('_', ' ')}"
    return ["notify-send", "--app-name=beads-workers", "--", title, html.escape(notice.text)]


def tell(command: str, notice: Notice) -> None:
    """Run the command for a notice outside of any run, and wait for it; it reports its own errors
    on stderr."""
    argv, line = argv_of(command, notice), (json.dumps(to_plain(notice)) + "\n").encode("ascii")
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            argv,
            input=line,
            env={**os.environ, **environment(notice)},
            stdout=2,
            check=False,
            timeout=LIMITS.command,
        )


class Notifier:
    """Runner of notify commands: ``add`` journaled entries, and ``pump`` once they are on file.

    ``elapsed``: the run's clock, in which ``deadline`` answers. ``warn`` is called the first time
    that a command fails.
    """

    def __init__(
        self,
        command: str,
        folder: Path,
        board: Board,
        elapsed: Callable[[], float],
        warn: Callable[[str], None],
        limits: NotificationLimits = LIMITS,
    ) -> None:
        self._command = command
        self._log = folder / "notify.log"
        self._board = board
        self._elapsed = elapsed
        self._warn: Callable[[str], None] | None = warn
        self._limits = limits
        self._notices = Notices()
        self._waiting: deque[Notice] = deque()
        self._running: Running | None = None
        self._selector: selectors.BaseSelector | None = None

    def attach(self, selector: selectors.BaseSelector) -> None:
        """Connect the notifier with the loop."""
        self._selector = selector

    def add(self, entry: Entry) -> None:
        """Queue the notices for an entry, once the board has it."""
        self._queue(self._notices.add(entry, self._board))

    def deadline(self) -> float:
        """Return when ``pump`` is due, in elapsed seconds of the run; infinite if nothing is
        due."""
        ends = self._notices.ends
        return min(ends, self._running.due_at) if self._running else ends

    def pump(self) -> None:
        """Start a waiting command, or end one that takes too long; quick, and never waits."""
        now = self._elapsed()
        self._queue(self._notices.due(now, self._board))
        if self._running is not None:
            self._running.press(now)
        elif self._waiting:
            self._start(self._waiting.popleft(), now)

    def finish(self) -> None:
        """Run the remaining commands at the end of the run, and leave none behind. Waits, with a
        limit."""
        ends = self._elapsed() + self._limits.end
        # Half of the time is for the last notice, whatever comes before it.
        half_time = ends - self._limits.end / 2
        while self._running is not None or self._waiting:
            if self._running is None:
                notice = self._waiting.popleft()
                if self._waiting and self._elapsed() >= half_time:
                    self._write(f"dropped at the end of the run: {notice.text}\n")
                    continue
                self._start(notice, self._elapsed())
            if self._running is not None:
                self._running.wait(half_time if self._waiting else ends, self._elapsed)
                self._ended()

    def _queue(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            if len(self._waiting) < QUEUE_MAX or notice.event == "finished":
                self._waiting.append(notice)
            else:
                self._write(f"dropped, too many wait: {notice.text}\n")

    def _start(self, notice: Notice, now: float) -> None:
        argv = argv_of(self._command, notice)
        self._write(f"{moment(time.time())} {notice.event}: {notice.text}\n")
        try:
            self._running = Running(argv, notice, now, self._write, self._limits)
        except OSError as error:
            self._failed(f"{argv[0]}: {error.strerror}")
            return
        if self._selector is not None:
            self._running.watch(self._selector, self._ended)

    def _ended(self) -> None:
        assert self._running is not None, "only what runs can end"
        running, self._running = self._running, None
        if wrong := running.close():
            self._failed(wrong)

    def _failed(self, wrong: str) -> None:
        self._write(f"{wrong}\n")
        if self._warn is not None:
            warn, self._warn = self._warn, None
            warn(f"the notify command failed ({wrong}); its output is in {self._log}")

    def _write(self, text: str | bytes) -> None:
        data = text.encode("utf-8", "replace") if isinstance(text, str) else text
        try:
            with self._log.open("ab") as file:
                file.write(data)
        except OSError:
            pass  # A full disk, or a folder that is gone: a notice is not worth an error.


class Running:
    """One running command. ``due_at``: when ``press`` has to signal it, in the run's clock."""

    def __init__(
        self,
        argv: list[str],
        notice: Notice,
        now: float,
        write: Callable[[bytes], None],
        limits: NotificationLimits,
    ) -> None:
        self.due_at = now + limits.command
        self._grace = limits.grace
        self._write = write
        self._left = OUTPUT_BYTES_MAX
        self._ended_by_us = False
        self._selector: selectors.BaseSelector | None = None
        with tempfile.TemporaryFile() as stdin:
            stdin.write(json.dumps(to_plain(notice)).encode("ascii") + b"\n")
            stdin.seek(0)
            self._process = subprocess.Popen(
                argv,
                env={**os.environ, **environment(notice)},
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                bufsize=0,
            )
        assert self._process.stdout is not None, "a pipe was asked for"
        self._output = self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        self._pidfd = system.exit_descriptor(self._process.pid)

    def watch(self, selector: selectors.BaseSelector, ended: Callable[[], None]) -> None:
        """Let the loop read the command's output, and call ``ended`` when the command has ended."""
        self._selector = selector
        selector.register(self._pidfd, selectors.EVENT_READ, lambda mask: ended())
        if not self._output.closed:
            selector.register(self._output, selectors.EVENT_READ, lambda mask: self._read())

    def press(self, now: float) -> None:
        """Send TERM, and later KILL, to the whole process group once the time is over."""
        if now < self.due_at:
            return
        self._signal(signal.SIGKILL if self._ended_by_us else signal.SIGTERM)
        self.due_at = inf if self._ended_by_us else now + self._grace
        self._ended_by_us = True

    def wait(self, limit: float, elapsed: Callable[[], float]) -> None:
        """Wait for the command's end; it is killed before ``limit``, and abandoned soon after."""
        self.due_at = min(self.due_at, limit - self._grace)
        self._forget()
        with selectors.DefaultSelector() as selector:
            gone: list[bool] = []
            self.watch(selector, lambda: gone.append(True))
            while not gone and elapsed() < limit + self._grace:
                self.press(elapsed())
                until = min(self.due_at, limit + self._grace)
                for key, mask in selector.select(max(0.0, until - elapsed())):
                    key.data(mask)
            self._forget()

    def close(self) -> str:
        """Kill what the command has left, and reap it; return what went wrong, or an empty
        string."""
        # The process is not reaped yet, so the number of its group is still its own.
        self._signal(signal.SIGKILL)
        self._read()
        self._forget()
        try:
            self._process.wait(self._grace)
        except subprocess.TimeoutExpired:
            pass  # Not even KILL ends it: it is stuck in the kernel, and we can do no more.
        self._output.close()
        os.close(self._pidfd)
        if self._ended_by_us:
            return "took too long, and was ended"
        status = self._process.returncode or 0
        return f"ended with status {status if status >= 0 else 128 - status}" if status else ""

    def _read(self) -> None:
        if self._output.closed:
            return
        try:
            data = os.read(self._output.fileno(), min(self._left, 1 << 16))
        except BlockingIOError:
            return
        except OSError:
            data = b""  # The rest of its output is lost; the pidfd reports its end.
        self._write(data)
        self._left -= len(data)
        if not data or not self._left:
            if not self._left:
                self._write(b"\n(the rest of its output was cut)\n")
            if self._selector is not None:
                self._selector.unregister(self._output)
            self._output.close()

    def _forget(self) -> None:
        if self._selector is None:
            return
        self._selector.unregister(self._pidfd)
        if not self._output.closed:
            self._selector.unregister(self._output)
        self._selector = None

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # It has left its group, or runs under another user: beyond our reach.
