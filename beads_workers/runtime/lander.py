"""The lander, seen from the loop: a process of its own, with lines of JSON on its two pipes.

If the orchestrator dies, the lander's stdin closes, and the lander ends its gates and itself.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from beads_workers.core.base.framing import Line, LineReader
from beads_workers.core.records import landing
from beads_workers.core.schedule.events import Event, LanderGone, LanderSaid
from beads_workers.executors.files import log_file
from beads_workers.runtime import sessions, side_programs
from beads_workers.runtime.processes import say

MODULE = "beads_workers.landing.run"
LANDER = "lander"
"""Name of the lander among the workers of a run: part of the token."""
LINE_BYTES_MAX = 1 << 20
READ_BYTES = 1 << 16


def _existing(path: str, flags: int) -> int:
    """Open a log that exists; create none, because the log of an attempt may lie in an earlier
    run."""
    return os.open(path, flags & ~os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC)


class LanderProcess:
    """Handle of the lander's process. ``report`` is called with its messages, and with its end."""

    def __init__(
        self,
        settings: landing.LanderSettings,
        log: Path,
        selector: selectors.BaseSelector,
        report: Callable[[Event], None],
    ) -> None:
        self._settings = settings
        self._log = log
        self._selector = selector
        self._report = report
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = LineReader(LINE_BYTES_MAX)
        self._unsent: deque[bytes] = deque()

    def start(self) -> None:
        """Start the lander; report a failure to start as its end."""
        self._reader = LineReader(LINE_BYTES_MAX)
        self._unsent = deque([landing.settings_to_line(self._settings)])
        run_id = self._settings.run_id
        try:
            process = side_programs.start(MODULE, run_id, LANDER, self._log, subprocess.PIPE)
        except OSError as error:
            self._report(LanderGone(error.strerror or str(error)))
            return
        self._process = process
        assert process.stdin is not None and process.stdout is not None
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(pipe.fileno(), False)
        self._selector.register(
            process.stdout, selectors.EVENT_READ, lambda mask: self._read_news()
        )
        self._send()

    def tell(self, order: landing.Order) -> None:
        """Send an order, or keep it while the lander is slow to read."""
        if self._process is not None:
            self._unsent.append(landing.to_line(order))
            self._send()

    def close(self) -> None:
        """Close the lander's pipes and wait until it has ended its gates and itself."""
        process = self._process
        if process is None:
            return
        self._forget()
        side_programs.end(process, self._settings.run_id, LANDER)

    def _send(self) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        pipe = process.stdin.fileno()
        while self._unsent:
            line = self._unsent.popleft()
            try:
                sent = os.write(pipe, line)
            except BlockingIOError:
                sent = 0
            except OSError:
                return  # Its end is about to be read.
            if sent < len(line):
                self._unsent.appendleft(line[sent:])
                with suppress(KeyError):  # We wait for it already.
                    self._selector.register(
                        process.stdin, selectors.EVENT_WRITE, lambda mask: self._has_room()
                    )
                return

    def _has_room(self) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._selector.unregister(self._process.stdin)
        self._send()

    def _read_news(self) -> None:
        process = self._process
        assert process is not None and process.stdout is not None
        try:
            data = os.read(process.stdout.fileno(), READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended()
            return
        for framed in self._reader.feed(data):
            if not isinstance(framed, Line):
                continue
            try:
                news = landing.from_line(framed.text)
            except (ValueError, RecursionError) as error:
                say("lander", f"it said what nobody understands: {error}")
                continue
            if isinstance(news, landing.Refused):
                self._add_to_log(news)
            self._report(LanderSaid(news))

    def _add_to_log(self, refused: landing.Refused) -> None:
        """Add the refusal to the attempt's log, where people look for it: below the attempt's own
        output."""
        log = log_file(str(self._log.parent), refused.issue_id, refused.attempt)
        text = f"[beads-workers] did not land: {refused.why}\n{refused.text}\n"
        with suppress(OSError), open(log, "ab", opener=_existing) as file:
            file.write(text.encode("utf-8", "replace"))

    def _ended(self) -> None:
        process = self._process
        assert process is not None
        self._forget()
        # Its output is closed: it is about to end, or has failed.
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        status = process.wait()
        sessions.sweep(self._settings.run_id, LANDER)
        self._report(LanderGone(f"exit status {status}; see {self._log}"))

    def _forget(self) -> None:
        process, self._process = self._process, None
        self._unsent.clear()
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(KeyError, ValueError):
                    self._selector.unregister(pipe)
                with suppress(OSError):
                    pipe.close()
