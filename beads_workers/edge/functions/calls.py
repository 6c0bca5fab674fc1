"""The worker's end of the process that calls functions: one call at a time."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

from beads_workers.core.framing import Line, LineReader
from beads_workers.core.jobs import Call
from beads_workers.core.json_fields import ProtocolError
from beads_workers.core.outcomes import Outcome, OutcomeKind
from beads_workers.core.values import value
from beads_workers.edge.functions.answers import (
    ANSWER_BYTES_MAX,
    WORKER_FD,
    Asked,
    Said,
    call_line,
    parse_answer,
    reply_line,
)
from beads_workers.edge.spawning import spawn_in_group

HOST_MODULE = "beads_workers.edge.functions.host"

SEND_SECONDS = 10.0
"""How long a process that has nothing else to do may take to read a call."""

RETIRE_MS = 2_000
"""For ``on_shutdown`` of an application; a stop allows for more."""

_DIES_MS = 200
"""A process that has closed its descriptors by dying is dead that much later."""


@value
class Ended:
    """The process is gone without an answer; ``status``: its exit status, or minus a signal."""

    status: int


class Host:
    """A running one; watch ``socket`` for reading. Raises ``OSError`` where none can be had.

    ``allowed``: what may be imported. It runs in the current folder, in a process group of its
    own, and is of no use any more once ``buried``.
    """

    def __init__(self, allowed: Sequence[str], environment: Mapping[bytes, bytes]) -> None:
        self.socket, theirs = socket.socketpair()
        self.buried = False
        self._reader = LineReader(ANSWER_BYTES_MAX)
        self._number = 0
        self._variables: Mapping[str, str] = {}
        self._output: object = None
        self._dispatches = False
        with theirs:
            try:
                self.pid = _spawn(theirs.fileno(), allowed, environment)
                self._pidfd = os.pidfd_open(self.pid)
            except OSError:
                self.socket.close()
                raise
        self.socket.setblocking(False)
        self._unfit = select.poll()
        self._unfit.register(self._pidfd, select.POLLIN)
        self._unfit.register(self.socket, select.POLLIN)

    def is_fit(self) -> bool:
        """Whether it lives and is silent, as it should between calls."""
        return not self.buried and not self._unfit.poll(0)

    def call(
        self,
        call: Call,
        environment: Mapping[str, str],
        output: int,
        place: object = None,
        result_file: str = "",
    ) -> None:
        """Have it called; what it prints goes to the descriptor ``output``.

        ``place``: something that is the same for two calls whose output goes to the same file.
        A result that is too long for an answer goes to ``result_file``. Raises ``ValueError``
        where the arguments are too long, ``OSError`` where it does not take them; a process that
        has just ended is noticed by ``read``.
        """
        known = self._variables
        changed: dict[str, str | None]
        changed = {name: text for name, text in environment.items() if known.get(name) != text}
        changed |= dict.fromkeys(known.keys() - environment.keys())
        self._variables = environment
        self._number += 1
        self._dispatches = self._dispatches or call.message is not None
        line = call_line(self._number, call, changed, result_file)
        same = place is not None and place is self._output
        self._output = place
        try:
            sent = (
                self.socket.send(line) if same else socket.send_fds(self.socket, [line], [output])
            )
            if sent < len(line):
                self.socket.settimeout(SEND_SECONDS)
                self.socket.sendall(line[sent:])
                self.socket.setblocking(False)
        except (BrokenPipeError, ConnectionResetError):
            pass  # It has ended, as the next reading tells.

    def read(self) -> Said | Asked | Ended | None:
        """What came of the call, or what it asks; None: nothing yet. ``Ended`` has buried the
        process, and so has an answer that makes no sense."""
        try:
            received = self.socket.recv(1 << 16)
        except BlockingIOError:
            # A child that it has left may keep the connection open.
            return self._bury() if _is_dead(self._pidfd, 0) else None
        except ConnectionResetError:
            received = b""
        if not received:
            return self._closed()
        framed = self._reader.feed(received)
        if not framed:
            return None
        try:
            if len(framed) > 1 or not isinstance(framed[0], Line):
                raise ProtocolError("more than an answer")
            return parse_answer(framed[0].text, self._number)
        except ProtocolError as error:
            self.close()
            return _broken(f"its process said what is no answer ({error})")

    def tell(self, reply: Mapping[str, object]) -> None:
        """Hand it what it has asked for; one that does not take it waits for nothing."""
        try:
            self.socket.settimeout(SEND_SECONDS)
            self.socket.sendall(reply_line(reply))
            self.socket.setblocking(False)
        except OSError:
            pass  # It has ended, as the next reading tells.

    def ask_to_cancel(self) -> None:
        """SIGUSR1, to the process alone."""
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGUSR1)
        except ProcessLookupError:
            pass

    def end(self, *, hard: bool) -> None:
        """TERM, or KILL when ``hard``, to its process group; ``read`` gives ``Ended`` then."""
        number = signal.SIGKILL if hard else signal.SIGTERM
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            # It has moved to another group; what is not reaped is still itself.
            signal.pidfd_send_signal(self._pidfd, number)
        except PermissionError:
            pass  # Another user's by its own doing.

    def retire(self) -> None:
        """``close``, with a moment for what a worker class of dispatcherd does at its end."""
        if self._dispatches:
            try:
                self.socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # It is gone.
            _is_dead(self._pidfd, RETIRE_MS)
        self.close()

    def close(self) -> None:
        """It is not needed any more: it and all of its group are killed."""
        if not self.buried:
            self._bury()

    def _closed(self) -> Said | Ended:
        if _is_dead(self._pidfd, _DIES_MS):
            return self._bury()
        self.close()
        return _broken("it closed its process's connection")

    def _bury(self) -> Ended:
        # What it has started ends with it.
        self.end(hard=True)
        _, status = os.waitpid(self.pid, 0)
        self.buried = True
        os.close(self._pidfd)
        self.socket.close()
        return Ended(os.waitstatus_to_exitcode(status))


def _is_dead(pidfd: int, within_ms: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(within_ms))


def _broken(why: str) -> Said:
    return Said(Outcome(OutcomeKind.ERROR, why), spent=True)


def _spawn(theirs: int, allowed: Sequence[str], environment: Mapping[bytes, bytes]) -> int:
    # -P: our own modules come from where we are installed, and never from the project.
    argv = [sys.executable, "-P", "-m", HOST_MODULE, *allowed]
    return spawn_in_group(argv, environment, ((os.POSIX_SPAWN_DUP2, theirs, WORKER_FD),))
