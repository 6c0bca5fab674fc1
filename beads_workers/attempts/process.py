"""An agent's process: started with its prompt, its output read, and ended by its clocks."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from beads_workers.core.base.model import value
from beads_workers.runtime import sessions
from beads_workers.runtime.kernel import system
from beads_workers.runtime.processes import spawn_found

READ_BYTES = 1 << 16
AFTER_RESULT_SECONDS = 15.0
"""Seconds for an agent to exit after its result: some agent CLIs idle for minutes then."""
TERM_SECONDS = 5.0
"""Seconds between TERM and KILL: the agent saves its transcript and ends its tools meanwhile."""


class EndedBy(Enum):
    """Reason why we ended the agent; ``agents.verdict`` uses the values as names of these
    clocks."""

    NOBODY = ""
    STALL = "stall"
    IDLE_AFTER_RESULT = "result"
    MUST_END = "timeout"


@value
class Clocks:
    """Time limits of an agent. ``stall_seconds``: seconds without any output of its own; None: no
    limit."""

    stall_seconds: float | None = None
    after_result_seconds: float = AFTER_RESULT_SECONDS
    term_seconds: float = TERM_SECONDS


@value
class ProcessEnd:
    """End of an agent's process. ``status``: the exit status, or minus the number of a signal."""

    status: int
    ended_by: EndedBy


@dataclass(slots=True)
class Hearing:
    """Handlers of an agent's output."""

    # Gets stdout as it comes, and returns whether the agent is over: it has reported its result,
    # and waits for nothing.
    output: Callable[[bytes], object]
    # Gets stderr.
    errors: Callable[[bytes], object]
    # Called at least once a second.
    tick: Callable[[], None]


class AgentNotStarted(Exception):
    """Error: the agent's program cannot be run, because it is ``missing``, or as ``str()`` says."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"{os.fsdecode(error.filename or 'the agent')}: {error.strerror}")
        self.missing = isinstance(error, FileNotFoundError)


def run_agent(
    argv: Sequence[str],
    prompt: str | None,
    environment: Mapping[str, str],
    hearing: Hearing,
    clocks: Clocks,
    must_end: Callable[[], bool],
) -> ProcessEnd:
    """Run the agent to its end in the current folder; no process of it is left then.

    ``prompt``: what it reads from stdin; None: nothing. ``must_end``: return whether to end the
    agent now. Raises ``AgentNotStarted``.
    """
    running = _Running(hearing, clocks, must_end)
    running.start(argv, prompt, environment)
    try:
        return running.listen()
    finally:
        running.close()


class _Running:
    def __init__(self, hearing: Hearing, clocks: Clocks, must_end: Callable[[], bool]) -> None:
        self._hearing, self._clocks, self._must_end = hearing, clocks, must_end
        self._selector = selectors.DefaultSelector()
        self._pid = self._pidfd = -1
        self._pipes: dict[int, Callable[[bytes], object]] = {}
        self._ended_by = EndedBy.NOBODY
        self._heard_at = 0.0
        self._result_at: float | None = None
        self._kill_at: float | None = None

    def start(
        self, argv: Sequence[str], prompt: str | None, environment: Mapping[str, str]
    ) -> None:
        out, out_writing = system.pipe()
        err, err_writing = system.pipe()
        given = -1 if prompt is None else _readable(prompt)
        stdin: tuple[int, ...] = (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)  # type: ignore[assignment]
        if given >= 0:
            stdin = (os.POSIX_SPAWN_DUP2, given, 0)
        outputs = [(os.POSIX_SPAWN_DUP2, out_writing, 1), (os.POSIX_SPAWN_DUP2, err_writing, 2)]
        try:
            self._pid = spawn_found(
                [os.fsencode(argument) for argument in argv],
                {os.fsencode(name): os.fsencode(text) for name, text in environment.items()},
                [stdin, *outputs],
            )
        except OSError as error:
            os.close(out)
            os.close(err)
            raise AgentNotStarted(error) from None
        finally:
            for descriptor in (out_writing, err_writing, given):
                if descriptor >= 0:
                    os.close(descriptor)
        self._heard_at = time.monotonic()
        self._pidfd = system.exit_descriptor(self._pid)
        self._selector.register(self._pidfd, selectors.EVENT_READ)
        for descriptor, act in ((out, self._spoken), (err, self._hearing.errors)):
            os.set_blocking(descriptor, False)
            self._pipes[descriptor] = act
            self._selector.register(descriptor, selectors.EVENT_READ)

    def listen(self) -> ProcessEnd:
        while True:
            ready = {key.fd for key, _ in self._selector.select(1.0)}
            for descriptor in [fd for fd in self._pipes if fd in ready]:
                self._read(descriptor)
            self._hearing.tick()
            if self._pidfd in ready:
                break
            self._look_at_clocks(time.monotonic())
        return self._buried()

    def close(self) -> None:
        for descriptor in (*self._pipes, self._pidfd):
            if descriptor >= 0:
                os.close(descriptor)
        self._selector.close()

    # --- inside -----------------------------------------------------------------------------------

    def _buried(self) -> ProcessEnd:
        # Processes it started may still hold its pipes: kill them first, so that all can be read.
        system.wait_unreaped(self._pid)
        _signal(self._pid, signal.SIGKILL)
        sessions.end((self._pid,))
        for descriptor in list(self._pipes):
            while self._read(descriptor):
                pass
        _, status = os.waitpid(self._pid, 0)
        return ProcessEnd(os.waitstatus_to_exitcode(status), self._ended_by)

    def _read(self, descriptor: int) -> bool:
        """Read a piece of the output; return False if there is nothing now, or nothing more will
        come."""
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(descriptor)
            os.close(descriptor)
            del self._pipes[descriptor]
            return False
        self._pipes[descriptor](data)
        return True

    def _spoken(self, data: bytes) -> None:
        self._heard_at = time.monotonic()
        if not self._hearing.output(data):
            self._result_at = None
        elif self._result_at is None:
            self._result_at = self._heard_at

    def _look_at_clocks(self, now: float) -> None:
        clocks = self._clocks
        if self._kill_at is not None:
            if now >= self._kill_at:
                _signal(self._pid, signal.SIGKILL)
            return
        stall = clocks.stall_seconds
        if self._must_end():
            self._end(EndedBy.MUST_END, now)
        elif self._result_at is not None:
            if now - self._result_at >= clocks.after_result_seconds:
                self._end(EndedBy.IDLE_AFTER_RESULT, now)
        elif stall is not None and now - self._heard_at >= stall:
            self._end(EndedBy.STALL, now)

    def _end(self, why: EndedBy, now: float) -> None:
        self._ended_by = why
        self._kill_at = now + self._clocks.term_seconds
        _signal(self._pid, signal.SIGTERM)


def _signal(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # Its group is empty, or it changed its user.


def _readable(prompt: str) -> int:
    # A file in memory, of any size: the agent reads it to its end, and nobody has to feed it.
    descriptor = system.memory_file("prompt")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(prompt.encode("utf-8", "surrogateescape"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
