"""Programs of ours beside the orchestrator, in sessions of their own: the lander, the pool, and the
lines to other machines."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from beads_workers.core.base.framing import Line, LineReader
from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.settings import Worktrees
from beads_workers.runtime import sessions
from beads_workers.runtime.processes import say

LINE_BYTES_MAX = 1 << 20
READ_BYTES = 1 << 16
LEAVES_SECONDS = 10.0
"""Seconds that a program may take to finish once its stdin is closed."""


def start(
    module: str, run_id: str, name: str, log: Path, output: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a program of ours beside the orchestrator; raises ``OSError``.

    The program runs in a session of its own and, like a worker, carries the run's token under this
    ``name``: the processes it starts are found and killed with the run. The program ends when its
    stdin closes. ``output``: descriptor for its stdout; None: ``log``, which gets its stderr in any
    case.
    """
    with log.open("ab") as file:
        return subprocess.Popen(
            # -P: modules in the project's folder are never imported.
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=file if output is None else output,
            stderr=file,
            start_new_session=True,
            env={**os.environ, "BW_RUN_ID": run_id, "BW_WORKER_ID": name},
        )


def end(process: subprocess.Popen[bytes], run_id: str, name: str) -> None:
    """Wait until the program, whose stdin is closed, has ended; kill it if it takes longer than
    ``LEAVES_SECONDS``, and then every process it started."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(LEAVES_SECONDS)
    if process.returncode is None:
        process.kill()
        process.wait()
    sessions.sweep(run_id, name)


class Talking:
    """A program of ours that is told lines and tells lines, on its two pipes; neither side waits.

    If the orchestrator dies, its stdin closes, and it ends by itself.
    """

    def __init__(
        self,
        module: str,
        ids: tuple[str, str],
        log: Path,
        selector: selectors.BaseSelector,
        hear: Callable[[bytes], None],
        ended: Callable[[str], None],
    ) -> None:
        """``ids``: the run and the program's name in it. ``hear`` is called with each line,
        ``ended`` with why it has ended, or could not be started."""
        self._module, self._ids, self._log = module, ids, log
        self._selector, self._hear, self._ended = selector, hear, ended
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = LineReader(LINE_BYTES_MAX)
        self._unsent: deque[bytes] = deque()

    def start(self, first: bytes) -> None:
        """Start the program, and tell it a first line; report a failure to start as its end."""
        self._reader = LineReader(LINE_BYTES_MAX)
        self._unsent = deque([first])
        try:
            process = start(self._module, *self._ids, self._log, subprocess.PIPE)
        except OSError as error:
            self._ended(error.strerror or str(error))
            return
        self._process = process
        assert process.stdin is not None and process.stdout is not None
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(pipe.fileno(), False)
        self._selector.register(process.stdout, selectors.EVENT_READ, lambda mask: self._read())
        self._send()

    def tell(self, line: bytes) -> None:
        """Send a line, or keep it while the program is slow to read."""
        if self._process is not None:
            self._unsent.append(line)
            self._send()

    def close(self) -> None:
        """Close its pipes, and wait until it has ended."""
        process = self._process
        if process is not None:
            self._forget()
            end(process, *self._ids)

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

    def _read(self) -> None:
        process = self._process
        assert process is not None and process.stdout is not None
        try:
            data = os.read(process.stdout.fileno(), READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._has_ended(process)
            return
        for framed in self._reader.feed(data):
            if isinstance(framed, Line):
                self._hear(framed.text)

    def _has_ended(self, process: subprocess.Popen[bytes]) -> None:
        self._forget()
        # Its output is closed: it is about to end, or has failed.
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        status = process.wait()
        sessions.sweep(*self._ids)
        self._ended(f"exit status {status}; see {self._log}")

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


# --- pool ----------------------------------------------------------------------------------------
# The process that creates worktrees ahead (``worktrees.pool``), seen from the fleet.


MODULE = "beads_workers.worktrees.pool"
POOL = "pool"
"""Name of the pool among the workers of a run: part of the token."""


class PoolProcess:
    """The process that creates worktrees ahead of attempts; ends with ``close``, or with this
    process.

    Attempts wake the pool themselves, and do without it if it has died.
    """

    def __init__(self, worktrees: Worktrees, run_id: str, log: Path) -> None:
        self._run_id = run_id
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = start(MODULE, run_id, POOL, log)
        except OSError as error:
            say(POOL, f"no worktrees are made ahead: {error.strerror or error}")
            return
        assert self._process.stdin is not None
        fields = {"worktrees": to_plain(worktrees), "run_id": run_id}
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(fields).encode() + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """Close the pool's stdin and wait until the process has ended."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        with suppress(BrokenPipeError):
            process.stdin.close()
        end(process, self._run_id, POOL)
