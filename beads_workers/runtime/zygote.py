"""A small process, forked before anything else is loaded, that forks the workers and reaps them.

The orchestrator sends requests over a socket pair, as JSON lines. The zygote reports every worker's
pid and exit status, and kills whatever a dead worker left behind before it reports. It outlives the
orchestrator just long enough to see its workers end. The zygote sends signals itself, because only
a parent knows that a pid still means its child.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
from collections.abc import Collection, Sequence
from typing import Any

from beads_workers.core.base.framing import Line, LineReader
from beads_workers.core.base.model import value
from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.settings import WorkerSettings
from beads_workers.runtime.kernel import system
from beads_workers.runtime.zygote_loop import IGNORED, run_zygote

SEND_SECONDS = 5.0
"""Seconds for a request: a zygote that has not read for this long is gone or stuck."""


@value
class ChildSpawned:
    """Event: a worker process exists; it will connect by itself."""

    worker_id: str
    pid: int
    started: int
    """Clock ticks since boot: with the pid, this process and no other."""


@value
class WorkerRefused:
    """Event: there was no process, or no descriptor, for a worker."""

    worker_id: str
    error: str


@value
class ChildExited:
    """Event: a worker is gone, and with it every process that it had started.

    ``status``: its exit status, or minus the number of the signal that ended it.
    """

    worker_id: str
    pid: int
    status: int


ZygoteEvent = ChildSpawned | WorkerRefused | ChildExited


class Zygote:
    """The orchestrator's end of a zygote. When ``closed``, the zygote has died: start another one.

    Watch ``socket`` for reading; then call ``read_events``. The caller has to reap ``pid``
    (``reap``).
    """

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.socket = connection
        self.pid = pid
        self.closed = False
        self._reader = LineReader()
        connection.setblocking(False)

    def begin(self, keep_fds: Collection[int] = (), nofile_soft: int | None = None) -> None:
        """Begin; call first. From now on the zygote has our own input and output.

        ``keep_fds``: descriptors that stay open in the zygote and its workers, never in a task.
        ``nofile_soft``: the soft limit of open files for workers and tasks, if we have raised ours.
        """
        self._send({"begin": {"nofile_soft": nofile_soft}}, (0, 1, 2, *keep_fds))

    def spawn(self, settings: WorkerSettings) -> None:
        """Ask for a worker; ``ChildSpawned`` or ``WorkerRefused`` answers."""
        self._send({"spawn": to_plain(settings)})

    def kill(self, pid: int, number: int) -> None:
        """Send a signal to a worker, unless it has exited already (its pid is not reused)."""
        self._send({"kill": pid, "signal": int(number)})

    def read_events(self) -> list[ZygoteEvent]:
        """Return what has happened; set ``closed`` at the end. Never waits."""
        try:
            received = self.socket.recv(1 << 16)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            received = b""
        if not received:
            self.closed = True
            return []
        framed = self._reader.feed(received)
        return [_event(json.loads(line.text)) for line in framed if isinstance(line, Line)]

    def close(self) -> None:
        """Close the connection: the zygote waits for its workers, kills those that stay, and
        exits."""
        self.closed = True
        self.socket.close()

    def put_down(self) -> None:
        """KILL a zygote that does not answer; ``closed`` follows."""
        os.kill(self.pid, signal.SIGKILL)  # A child that is not reaped: the pid is still its own.

    def reap(self) -> bool:
        """Collect the zygote's exit status, if it has exited; never waits."""
        try:
            pid, _ = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return True
        return pid != 0

    def _send(self, request: dict[str, Any], fds: Sequence[int] = ()) -> None:
        # Only sends wait, and never for long: the zygote always reads.
        self.socket.settimeout(SEND_SECONDS)
        line = json.dumps(request).encode("ascii") + b"\n"
        try:
            sent = socket.send_fds(self.socket, [line], fds) if fds else 0
            self.socket.sendall(line[sent:])
        except OSError:
            self.closed = True
        finally:
            self.socket.setblocking(False)


def start_zygote() -> Zygote:
    """Fork the zygote; call this early: every worker is a copy of what is loaded by then.

    Descriptors that are open here are closed there, except 0, 1 and 2.
    """
    ours, theirs = socket.socketpair()
    gc.collect()
    # What exists now is shared with every worker until somebody writes to it.
    gc.freeze()
    # Blocked until the zygote ignores them: a signal that comes this early must not kill it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            # The collector never closes a socket object here: the fork ends in _exit.
            ours.close()
            keep = {0, 1, 2, theirs.fileno()}
            # The wake-up descriptor of the orchestrator must not be written to from here.
            signal.set_wakeup_fd(-1)
            for descriptor in system.own_descriptors():
                if descriptor not in keep:
                    os.close(descriptor)
            status = run_zygote(theirs, before)
        finally:
            os._exit(status)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    gc.unfreeze()
    theirs.close()
    return Zygote(ours, pid)


def _event(fields: dict[str, Any]) -> ZygoteEvent:
    if "exited" in fields:
        return ChildExited(fields["exited"], fields["pid"], fields["status"])
    if "refused" in fields:
        return WorkerRefused(fields["refused"], fields["error"])
    return ChildSpawned(fields["spawned"], fields["pid"], fields["started"])
