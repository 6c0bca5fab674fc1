"""Process that calls functions for one worker, started by ``python -m``."""

from __future__ import annotations

import array
import fcntl
import json
import os
import select
import signal
import socket
import sys
from _signal import getsignal  # type: ignore[import-not-found]  # C's own: no enums
from _thread import allocate_lock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from beads_workers import registry
from beads_workers.core.base import limits
from beads_workers.core.base.framing import Line, LineReader
from beads_workers.core.base.model import OutcomeKind
from beads_workers.core.base.settings import Ahead
from beads_workers.executors.functions import (
    Caller,
    CallResult,
    CallTerminated,
    NotCallable,
    Resolver,
    not_callable,
)
from beads_workers.runtime.functions import (
    CALL_BYTES_MAX,
    WARM,
    WORKER_FD,
    answer_line,
    asking_line,
    begun_line,
)
from beads_workers.runtime.kernel import system
from beads_workers.runtime.output import keep_result

# --- surroundings --------------------------------------------------------------------------------
# What a call may change around it, and the next call must not find changed.
#
# Taken after the function's module was imported: what a module sets up once, for good, stays.
# Source: docs/SEMANTICS.md, "Functions".


SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGALRM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
    signal.SIGPIPE,
)
"""Signals that functions set handlers for."""


@dataclass(slots=True)
class Surroundings:
    """State of one process that a call may change. ``folder``: the folder in which each call
    begins."""

    folder: str
    _umask: int = 0
    _handlers: list[Any] = field(default_factory=list)
    _environment: dict[bytes, bytes] = field(default_factory=dict)
    _stdout: TextIO = field(default_factory=lambda: _printing(1))
    _stderr: TextIO = field(default_factory=lambda: _printing(2))

    def enter(self, variables: Mapping[str, str | None]) -> None:
        """Prepare for a call: go to the folder, set these variables, and remove those that are
        None. Raises ``OSError``."""
        for name, text in variables.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text
        sys.stdout, sys.stderr = self._streams()
        self.remember()
        os.chdir(self.folder)

    def settle(self) -> None:
        """Take umask and signal handlers as they are now for the normal state: a module was
        imported."""
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._handlers = _handlers()

    def remember(self) -> None:
        """Note the environment before the function is called; ``restore`` changes it back."""
        self._environment = dict(_variables())

    def restore(self) -> None:
        """Undo what the call has changed: umask, timer, signal handlers and environment."""
        self.flush()
        os.umask(self._umask)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        if (now := _handlers()) != self._handlers:
            for number, before, after in zip(SIGNALS, self._handlers, now, strict=True):
                if after != before and before is not None:
                    signal.signal(number, before)
        if _variables() != self._environment:
            for name in _variables().keys() - self._environment.keys():
                del os.environb[name]
            os.environb.update(self._environment)

    def flush(self) -> None:
        """Write everything printed so far to its file."""
        _flush(self._stdout)
        _flush(self._stderr)
        if sys.stdout is not self._stdout or sys.stderr is not self._stderr:
            _flush(sys.stdout)
            _flush(sys.stderr)

    def _streams(self) -> tuple[TextIO, TextIO]:
        if self._stdout.closed:
            self._stdout = _printing(1)
        if self._stderr.closed:
            self._stderr = _printing(2)
        return self._stdout, self._stderr


def _handlers() -> list[Any]:
    return [getsignal(number) for number in SIGNALS]


def _printing(descriptor: int) -> TextIO:
    """Open a line-buffered stream, so that followers of a log see each line; it can print any
    text."""
    return open(
        descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except (OSError, ValueError, AttributeError):
        pass  # The disk is full, or the function closed it: only its own output is lost.


def _variables() -> dict[bytes, bytes]:
    # The dict behind ``environ`` and ``environb``: reading either of them costs as much as a call.
    found: dict[bytes, bytes] = vars(os.environ)["_data"]
    return found


# --- host ----------------------------------------------------------------------------------------
# The process that calls functions for one worker: a program of its own, started by ``functions``.
#
# Descriptor 3 is its worker. Every line is a call; if its output goes to another file than before,
# the descriptor comes with it. Every call is answered by one line, in order. The process ends with
# its worker's connection.


READ_BYTES = 1 << 16
OUT_OF_THE_WAY = 20
"""Lower bound of our descriptors: what functions open, or write to by mistake, lies below."""

THREADS_MAX = 64
"""Number of threads that functions may leave; a process with more is not used again."""

_FD_BYTES = socket.CMSG_SPACE(array.array("i").itemsize)


class FunctionHost:
    """This process. ``run`` serves calls until the worker is gone."""

    def __init__(self, allowed: Sequence[str]) -> None:
        kept = fcntl.fcntl(WORKER_FD, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
        os.close(WORKER_FD)
        self._worker = socket.socket(fileno=kept)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._null = fcntl.fcntl(null, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
        self._output = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
        self._between = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
        os.close(null)
        self._pid = os.getpid()
        self._caller = Caller()
        self._resolver = Resolver(allowed)
        self._reader = LineReader(CALL_BYTES_MAX)
        self._number = 0
        self._asking = allocate_lock()
        self._messages: Any = None
        folder = os.getcwd()  # noqa: PTH109
        # Functions lie in the project, as for any program that is started there.
        sys.path.insert(0, folder)
        self._surroundings = Surroundings(folder)
        self._calling = self._ending = False
        signal.signal(signal.SIGTERM, self._asked_to_end)
        self._surroundings.settle()
        os.register_at_fork(after_in_child=self._forked)

    def run(self) -> None:
        """Serve calls; return when the worker is gone."""
        while True:
            self._wait()
            received, control, _, _ = self._worker.recvmsg(READ_BYTES, _FD_BYTES)
            if not received:
                return
            if control:
                for level, kind, data in control:
                    if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                        (fd,) = array.array("i", data[: array.array("i").itemsize])
                        os.dup2(fd, self._output, inheritable=False)
                        os.close(fd)
                self._own_descriptors()
            for framed in self._reader.feed(received):
                assert isinstance(framed, Line), "a worker knows how long a line may be"
                call = json.loads(framed.text)
                if "path" in call:
                    self._worker.sendall(self._answer(call))
                elif "variables" in call:
                    self._set_up(call["variables"], call["ahead"])
                # Otherwise it is a reply for a call that no longer waits for it.

    def _wait(self) -> None:
        """Wait until there is something to read; meanwhile do what a worker class of dispatcherd
        does when idle."""
        while self._messages is not None and (seconds := self._messages.idle_seconds) > 0:
            if select.select([self._worker], (), (), seconds)[0]:
                return
            # The log of the last attempt is closed, or by now that of the next attempt.
            os.dup2(self._between, 1)
            os.dup2(self._between, 2)
            self._messages.rest()
            self._surroundings.flush()
            self._own_descriptors()

    def retire(self) -> None:
        """Close the worker class of dispatcherd, if any: the worker is gone, or says goodbye."""
        if self._messages is not None:
            self._messages.close()

    def _answer(self, call: dict[str, Any]) -> bytes:
        self._number = call["n"]
        try:
            self._calling = True
            answer = self._carry_out(call)
            self._calling = False
        except CallTerminated:
            self._ending = True
        if os.getpid() != self._pid:
            os._exit(0)  # A fork that the function let outlive the call.
        self._own_descriptors()
        self._surroundings.restore()
        if self._ending:
            self._die()
        if answer.trace:
            _write(answer.trace.encode("utf-8", "backslashreplace"))
        in_file = len(answer.result) > limits.RESULT_CHARS_MAX
        if in_file:
            try:
                keep_result(call["result_file"], answer.result)
            except OSError as error:
                # The work is done, and will be done again: better than losing its result.
                why = f"its result cannot be kept: {error.filename}: {error.strerror}"
                answer, in_file = CallResult(OutcomeKind.RETRY, error=why), False
        return answer_line(call["n"], answer, in_file=in_file, spent=self._is_spent())

    def _carry_out(self, call: dict[str, Any]) -> CallResult:
        try:
            self._surroundings.enter(call["variables"])
        except OSError as error:
            return CallResult(
                OutcomeKind.RETRY, error=f"cannot use {error.filename}: {error.strerror}"
            )
        if "message" in call:
            return self._call_message(call)
        path = call["path"]
        try:
            if (function := self._resolver.known.get(path)) is None:
                function = self._resolver.find(path)
                self._surroundings.settle()
        except NotCallable as error:
            return not_callable(error)
        self._surroundings.remember()
        return self._caller.call(function, call["args"], call["kwargs"])

    def _set_up(self, variables: Mapping[str, str | None], ahead: str) -> None:
        """Get ready before a call comes. Ignore errors: the call meets them again, and reports
        them."""
        try:
            self._surroundings.enter(variables)
            if ahead == Ahead.MESSAGES:
                self._prepare(None)
            else:
                self._resolver.load()
                self._surroundings.settle()
        except (OSError, NotCallable):
            pass
        except registry.need("task_messages").Cancelled:
            self._die()  # The message has come meanwhile, and was cancelled.
        self._worker.sendall(WARM)

    def _prepare(self, path: str | None) -> None:
        """Set up the caller of dispatcherd's messages. Raises what ``DispatcherCaller.prepare``
        does."""
        if self._messages is None:
            tasks = registry.need("task_messages")  # Few fleets run any.
            worker_id = os.environ.get("BW_WORKER_ID", "")
            made = tasks.open_caller(worker_id, self._resolver, self._caller, self._ask)
            self._messages = made
        if self._messages.prepare(path):
            self._surroundings.settle()

    def _call_message(self, call: dict[str, Any]) -> CallResult:
        """Call the message of another system as that system's own workers call it."""
        path = call["path"]
        try:
            self._prepare(path)
        except NotCallable as error:
            return not_callable(error)
        except registry.need("task_messages").Cancelled:
            cancelled: CallResult = registry.need("task_messages").CANCELLED
            return cancelled
        if call.get("tells_begun"):
            self._worker.sendall(begun_line(call["n"]))
        self._surroundings.remember()
        message = {"task": path, "args": call["args"], "kwargs": call["kwargs"]}
        answer: CallResult = self._messages.call(message | call["message"])
        return answer

    def _ask(self, command: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the orchestrator, by way of the worker. Raises ``ValueError`` if the request is not
        JSON, or too long."""
        with self._asking:  # A function may have threads.
            self._worker.sendall(asking_line(self._number, command, data))
            while True:
                received = self._worker.recv(READ_BYTES)
                if not received:
                    os._exit(0)  # The worker is gone.
                for framed in self._reader.feed(received):
                    assert isinstance(framed, Line), "a worker knows how long a line may be"
                    reply: dict[str, Any] = json.loads(framed.text)["reply"]
                    return reply

    def _own_descriptors(self) -> None:
        """Restore our descriptors 0 to 2: a function may have closed or replaced them."""
        os.dup2(self._null, 0)
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)

    def _is_spent(self) -> bool:
        """Return whether calls have left a child or too many threads, which must not meet the next
        call."""
        if system.has_children():
            return True
        threading = sys.modules.get("threading")
        return threading is not None and threading.active_count() > THREADS_MAX

    def _asked_to_end(self, *_: object) -> None:
        if not self._calling:
            self._die()
        self._ending = True
        self._caller.end()

    def _die(self) -> None:
        """Kill this process with SIGTERM, so that its exit status shows the signal."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(self._pid, signal.SIGTERM)

    def _forked(self) -> None:
        """Set up a forked child: it answers nobody, keeps no connection open, and ends at
        SIGTERM."""
        self._worker.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _write(text: bytes) -> None:
    try:
        os.write(2, text)
    except OSError:
        pass  # The disk is full: the error itself is reported all the same.


if __name__ == "__main__":
    host = FunctionHost(sys.argv[1:])
    host.run()
    host.retire()
    # Threads that functions have left, and exit handlers, are dropped: nobody waits for them.
    os._exit(0)
