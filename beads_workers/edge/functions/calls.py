"""The worker's end of the process that calls functions: one call at a time."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beads_workers.core.framing import Line, LineReader
from beads_workers.core.jobs import Call
from beads_workers.core.outcomes import Outcome, OutcomeKind

WORKER_FD = 3
HOST_MODULE = "beads_workers.edge.functions.host"
LINE_BYTES_MAX = 64 * 1024 * 1024
"""Arguments and results of 16 MiB, as escaped as JSON can be."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The process is gone without an answer; ``status``: its exit status, or minus a signal."""

    status: int


class Host:
    """A running one; watch ``socket`` for reading. Raises ``OSError`` where none can be had.

    ``allowed``: what may be imported. It runs in the current folder, in a process group of its
    own, and is of no use any more once ``read`` has given ``Ended``.
    """

    def __init__(self, allowed: Sequence[str], environment: Mapping[bytes, bytes]) -> None:
        self.socket, theirs = socket.socketpair()
        self._reader = LineReader(LINE_BYTES_MAX)
        self.buried = False
        with theirs:
            try:
                self.pid = _spawn(theirs.fileno(), allowed, environment)
            except OSError:
                self.socket.close()
                raise
        self.pidfd = os.pidfd_open(self.pid)

    def call(self, call: Call, environment: Mapping[str, str], output: int) -> None:
        """Have it called; what it prints goes to the descriptor ``output``.

        Raises ``ValueError`` where the arguments are too long. A process that has just ended is
        noticed by ``read``.
        """
        fields = {
            "path": call.path,
            "args": list(call.args),
            "kwargs": dict(call.kwargs),
            "environment": dict(environment),
        }
        line = json.dumps(fields).encode() + b"\n"
        if len(line) > LINE_BYTES_MAX:
            raise ValueError(f"arguments of {len(line)} bytes; {LINE_BYTES_MAX} are allowed")
        self.socket.setblocking(True)
        try:
            sent = socket.send_fds(self.socket, [line], [output])
            self.socket.sendall(line[sent:])
        except (BrokenPipeError, ConnectionResetError):
            pass  # It has ended, as the next reading tells.
        self.socket.setblocking(False)

    def read(self) -> Outcome | Ended | None:
        """What came of the call; None: nothing yet. ``Ended`` buries the process."""
        try:
            received = self.socket.recv(1 << 16)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            received = b""
        if not received:
            return self._bury()
        for framed in self._reader.feed(received):
            if isinstance(framed, Line):
                return _outcome(json.loads(framed.text))
        return None

    def end(self, *, hard: bool) -> None:
        """TERM, or KILL when ``hard``, to its process group; ``read`` gives ``Ended`` then."""
        try:
            os.killpg(self.pid, signal.SIGKILL if hard else signal.SIGTERM)
        except (ProcessLookupError, PermissionError):
            pass  # Not there yet, or another user's by its own doing.

    def close(self) -> None:
        """It is not needed any more."""
        self.end(hard=True)
        self._bury()

    def _bury(self) -> Ended:
        # A function may have closed the connection, and live on.
        self.end(hard=True)
        _, status = os.waitpid(self.pid, 0)
        self.buried = True
        os.close(self.pidfd)
        self.socket.close()
        return Ended(os.waitstatus_to_exitcode(status))


def _outcome(fields: dict[str, Any]) -> Outcome:
    kind = OutcomeKind(fields["kind"])
    result = fields["result"] if kind is OutcomeKind.SUCCESS else ""
    return Outcome(kind, fields["error"], fields["retry_after_seconds"], result=result)


def _spawn(theirs: int, allowed: Sequence[str], environment: Mapping[bytes, bytes]) -> int:
    # -P: our own modules come from where we are installed, and never from the project.
    argv = (sys.executable, "-P", "-m", HOST_MODULE, *allowed)
    actions = ((os.POSIX_SPAWN_DUP2, theirs, WORKER_FD),)
    return os.posix_spawn(argv[0], argv, environment, file_actions=actions, setpgroup=0)
