"""Python functions as tasks: a process beside each worker imports and calls them.

This module has the protocol between the two, with a line each way for every call; the worker's end
of it; and a call as a step of a task.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.framing import (
    Framed,
    Line,
    LineReader,
    ProtocolError,
    as_integer,
    as_number,
    parse_object,
    text,
)
from beads_workers.core.base.model import Call, Outcome, OutcomeKind, value
from beads_workers.core.base.plans import Plan, Step
from beads_workers.core.base.settings import Ahead
from beads_workers.core.workers.worker_events import StepAnswered, StepOver
from beads_workers.executors.functions import NOTHING, CallResult
from beads_workers.runtime.kernel import system
from beads_workers.runtime.output import AttemptOutput
from beads_workers.runtime.processes import spawn_in_group
from beads_workers.runtime.steps import MACHINE_ERRORS, CannotStart, encoded, prepare, step_ended

# --- answers -------------------------------------------------------------------------------------
# Protocol between a worker and its process for functions: a line each way for every call.
#
# The process runs other people's code: its lines are parsed as strictly as those of a stranger.
# Source: docs/SEMANTICS.md, "Functions".


WORKER_FD = 3
"""Descriptor of the worker's connection in a process for functions, at its start."""

CALL_BYTES_MAX = 64 << 20
"""Bytes of a call's line: arguments of 16 MiB, with the longest escapes of JSON."""

CONTROL_BYTES_MAX = 64 << 10
"""Bytes of a task's request; a filter with its arguments is the longest."""

ANSWER_BYTES_MAX = limits.RESULT_CHARS_MAX + 8 * limits.ERROR_CHARS_MAX + 1000
"""Bytes of an answer's line; a longer result goes through a file."""

_KINDS = {
    kind.value: kind
    for kind in (
        OutcomeKind.SUCCESS,
        OutcomeKind.ERROR,
        OutcomeKind.RETRY,
        OutcomeKind.TIMEOUT,
        OutcomeKind.NOT_FOUND,
    )
}
_ENCODER = json.JSONEncoder(separators=(",", ":"))


@value
class CallAnswer:
    """The answer to a call."""

    outcome: Outcome
    # The result is in the file that the call named.
    in_file: bool = False
    # The process cannot be used again.
    spent: bool = False
    # The call wants the worker to end.
    is_stopping: bool = False


@value
class CallAsked:
    """Request of a call to the orchestrator; the call waits for the reply."""

    command: str
    control_data: Mapping[str, Any]


@value
class CallBegun:
    """Notice that the function is called now: everything it needs was set up and imported."""


def call_line(
    number: int,
    call: Call,
    variables: Mapping[str, str | None],
    result_file: str,
    *,
    tells_begun: bool = False,
) -> bytes:
    """Return the line of one call. ``number`` comes back with the answer. ``variables``: those that
    differ from the last call's; None for those that only the last call had. ``tells_begun``: the
    process reports when it calls the function itself. Raises ``ValueError`` if the line is too
    long."""
    fields = {
        "n": number,
        "path": call.path,
        "args": call.args,
        "kwargs": call.kwargs,
        "variables": variables,
        "result_file": result_file,
    }
    if call.message is not None:
        fields["message"] = call.message
    if tells_begun:
        fields["tells_begun"] = True
    line = _ENCODER.encode(fields).encode("ascii") + b"\n"
    if len(line) > CALL_BYTES_MAX:
        raise ValueError(f"arguments of {len(line)} bytes; {CALL_BYTES_MAX} are allowed")
    return line


def answer_line(number: int, answer: CallResult, *, in_file: bool, spent: bool) -> bytes:
    """Return the line of one answer, as ``parse_answer`` reads it."""
    line = f'{{"n":{number},"kind":"{answer.kind.value}"'
    if in_file:
        line += ',"in_file":true'
    elif answer is not NOTHING and answer.kind is OutcomeKind.SUCCESS:
        line += f',"result":{answer.result}'
    if spent:
        line += ',"spent":true'
    if answer.is_stopping:
        line += ',"is_stopping":true'
    if answer.error:
        line += f',"error":{quoted(answer.error)}'
    if answer.retry_after_seconds is not None:
        line += f',"retry_after_seconds":{answer.retry_after_seconds!r}'
    return f"{line}}}\n".encode("ascii")


def set_up_line(variables: Mapping[str, str], ahead: str) -> bytes:
    """Return the line that has the process get ready before the first call (``settings.Ahead``);
    the answer is ``WARM``."""
    return _ENCODER.encode({"variables": variables, "ahead": ahead}).encode("ascii") + b"\n"


WARM = b"\n"
"""Sent once by a process that is ready: an empty line, which is no answer to anything."""


def begun_line(number: int) -> bytes:
    """Return the line that reports that call ``number`` is made now."""
    return b'{"n":%d,"begun":true}\n' % number


def parse_answer(line: bytes, number: int) -> CallAnswer | CallAsked | CallBegun:
    """Parse the answer to call ``number``, its request, or the notice that it has begun; raises
    ``ProtocolError`` for anything else."""
    if line == b'{"n":%d,"kind":"success"}' % number:
        return _WELL  # Most functions return nothing.
    fields = parse_object(line)
    if as_integer(fields.get("n")) != number:
        raise ProtocolError("an answer to another call")
    if "control" in fields:
        return _asked(fields)
    if fields.get("begun") is True:
        return CallBegun()
    return _read_answer(fields)


def _read_answer(fields: dict[str, Any]) -> CallAnswer:
    kind = _KINDS.get(text(fields, "kind", ""))
    if kind is None:
        raise ProtocolError("no such kind of answer")
    spent, stopping = fields.get("spent") is True, fields.get("is_stopping") is True
    if kind is not OutcomeKind.SUCCESS:
        error = text(fields, "error", "")[: limits.ERROR_CHARS_MAX]
        after = _after(fields) if kind is OutcomeKind.RETRY else None
        outcome = Outcome(kind, error or "it gave no reason", after)
        return CallAnswer(outcome, spent=spent, is_stopping=stopping)
    if fields.get("in_file") is True:
        return CallAnswer(Outcome(kind), in_file=True, spent=spent, is_stopping=stopping)
    result: Any = fields.get("result")
    outcome = Outcome(kind, result="" if result is None else _encode(result))
    return CallAnswer(outcome, spent=spent, is_stopping=stopping)


def concurrent_call_line(
    number: int, call: Call, variables: Mapping[str, str], plan: Plan
) -> bytes:
    """Return the line of one call of many that run together. ``variables``: its own; ``plan`` says
    where its output and a long result go. Raises ``ValueError`` if the line is too long."""
    fields = {
        "n": number,
        "path": call.path,
        "args": call.args,
        "kwargs": call.kwargs,
        "variables": variables,
        "result_file": plan.result_file,
        "output": (plan.log_file, plan.output_file, plan.log_bytes_max),
    }
    line = _ENCODER.encode(fields).encode("ascii") + b"\n"
    if len(line) > CALL_BYTES_MAX:
        raise ValueError(f"arguments of {len(line)} bytes; {CALL_BYTES_MAX} are allowed")
    return line


def cancel_line(number: int) -> bytes:
    """Return the line that cancels call ``number``; the call is answered like any other."""
    return b'{"cancel":%d}\n' % number


def isolate_line(number: int) -> bytes:
    """Return the answer that call ``number`` was not made: its function is not declared
    concurrent."""
    return b'{"n":%d,"isolate":true}\n' % number


def parse_concurrent_answer(line: bytes) -> tuple[int, CallAnswer | None]:
    """Return the call's number and its answer; None: the call was not made. Raises
    ``ProtocolError``."""
    fields = parse_object(line)
    number = as_integer(fields.get("n"))
    if number is None:
        raise ProtocolError("an answer to no call")
    return number, None if fields.get("isolate") is True else _read_answer(fields)


def asking_line(number: int, command: str, data: Mapping[str, Any]) -> bytes:
    """Return the line of a request of call ``number`` to the orchestrator. Raises ``ValueError`` if
    the request is not JSON, or too long."""
    try:
        text = _ENCODER.encode({"n": number, "control": command, "control_data": data})
    except TypeError as error:
        raise ValueError(f"not JSON: {error}") from None
    if len(text) > CONTROL_BYTES_MAX:
        raise ValueError(f"{len(text)} bytes of JSON; {CONTROL_BYTES_MAX} are allowed")
    return text.encode("ascii") + b"\n"


def reply_line(reply: Mapping[str, Any]) -> bytes:
    """Return the line of the orchestrator's reply, as the process for functions reads it."""
    return _ENCODER.encode({"reply": reply}).encode("ascii") + b"\n"


def _asked(fields: dict[str, Any]) -> CallAsked:
    command, data = text(fields, "control", ""), fields.get("control_data")
    if not command or not isinstance(data, dict):
        raise ProtocolError("a question without a command or its data")
    return CallAsked(command, data)


_WELL = CallAnswer(Outcome(OutcomeKind.SUCCESS))


def _encode(result: Any) -> str:
    encoded = _ENCODER.encode(result)
    if len(encoded) > limits.RESULT_CHARS_MAX:
        raise ProtocolError("a result that is too long for a line")
    return encoded


def _after(fields: Mapping[str, Any]) -> float | None:
    seconds = as_number(fields.get("retry_after_seconds"))
    if seconds is None or seconds < 0:
        return None
    return min(seconds, limits.RETRY_AFTER_MAX_SECONDS)


# --- calls ---------------------------------------------------------------------------------------
# The worker's end of the process that calls functions: one call at a time.


HOST_MODULE = "beads_workers.runtime.function_host"

SEND_SECONDS = 10.0
"""Seconds that an idle process may take to read a call."""

RETIRE_MS = 2_000
"""Milliseconds for ``on_shutdown`` of an application; a stop allows for more."""

_DIES_MS = 200
"""Milliseconds after which a process is dead if its descriptors closed because it dies."""


@value
class HostExited:
    """The process ended without an answer; ``status``: its exit status, or minus a signal."""

    status: int


class HostProcess:
    """A running process for functions; watch ``socket`` for reading. Raises ``OSError``.

    ``allowed``: modules that may be imported. The process runs in the current folder, in a process
    group of its own. Once ``buried``, it is of no use any more.
    """

    def __init__(
        self,
        allowed: Sequence[str],
        environment: Mapping[bytes, bytes],
        module: str = HOST_MODULE,
    ) -> None:
        self.socket, theirs = socket.socketpair()
        self.buried = False
        self.is_cold = False
        """Whether the process was told to get ready, and has sent nothing since."""
        self._reader = LineReader(ANSWER_BYTES_MAX)
        self._number = 0
        self._variables: Mapping[str, str] = {}
        self._output: object = None
        self._dispatches = False
        self._framed: list[Framed] = []
        self._path = ""
        self._begun: set[str] = set()
        with theirs:
            try:
                self.pid = _spawn(theirs.fileno(), module, allowed, environment)
                self._pidfd = system.exit_descriptor(self.pid)
            except OSError:
                self.socket.close()
                raise
        self.socket.setblocking(False)
        self._unfit = select.poll()
        self._unfit.register(self._pidfd, select.POLLIN)
        self._unfit.register(self.socket, select.POLLIN)

    def is_fit(self) -> bool:
        """Return whether the process lives and is silent, as it should be between calls."""
        if self.buried:
            return False
        return not self._unfit.poll(0) or (self.warms() and not self._unfit.poll(0))

    def set_up(self, environment: Mapping[str, str], ahead: str) -> None:
        """Have the process get ready (``settings.Ahead``); call once, before anything else."""
        self._variables, self._dispatches = environment, ahead == Ahead.MESSAGES
        self.is_cold = True
        self.socket.send(set_up_line(environment, ahead))

    def warms(self) -> bool:
        """Read what the process says while it has no call; return whether it says that it is
        ready."""
        if not self.is_cold:
            return False
        try:
            self.is_cold = self.socket.recv(len(WARM)) != WARM
        except OSError:
            pass  # Nothing was sent yet, or the process is gone.
        return not self.is_cold

    def call(
        self,
        call: Call,
        environment: Mapping[str, str],
        output: int,
        place: object = None,
        result_file: str = "",
    ) -> bool:
        """Make a call; what it prints goes to the descriptor ``output``.

        ``place``: an object that is the same for two calls whose output goes to the same file. A
        result that is too long for an answer goes to ``result_file``. Return True if ``read``
        returns ``CallBegun`` first: something may have to be set up for this message. Raises
        ``ValueError`` if the arguments are too long, ``OSError`` if the process does not take them;
        ``read`` notices a process that has just ended.
        """
        known = self._variables
        changed: dict[str, str | None]
        changed = {name: text for name, text in environment.items() if known.get(name) != text}
        changed |= dict.fromkeys(known.keys() - environment.keys())
        self._variables = environment
        self._number += 1
        self._dispatches = self._dispatches or call.message is not None
        tells = call.message is not None and call.path not in self._begun
        self._path = call.path
        line = call_line(self._number, call, changed, result_file, tells_begun=tells)
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
            pass  # It has ended, as the next read reports.
        return tells

    def read(self) -> CallAnswer | CallAsked | CallBegun | HostExited | None:
        """Return the answer to the call, or its request; None: nothing yet. The process is buried
        after ``HostExited`` and after an invalid answer. After ``CallBegun`` read once more."""
        if not self._framed:
            try:
                received = self.socket.recv(1 << 16)
            except BlockingIOError:
                # A child that the process has left may keep the connection open.
                return self._bury() if _is_dead(self._pidfd, 0) else None
            except OSError:
                received = b""
            if not received:
                return self._closed()
            self.is_cold = False  # A process reads a call only once it is ready.
            self._framed = self._reader.feed(received)
            if not self._framed:
                return None
        try:
            return self._parsed(self._framed.pop(0))
        except ProtocolError as error:
            self.close()
            return _broken(f"its process said what is no answer ({error})")

    def _parsed(self, framed: Framed) -> CallAnswer | CallAsked | CallBegun:
        if not isinstance(framed, Line):
            raise ProtocolError("too long for an answer")
        answer = parse_answer(framed.text, self._number)
        if isinstance(answer, CallBegun):
            self._begun.add(self._path)
        elif self._framed:
            raise ProtocolError("more than an answer")
        return answer

    def tell(self, reply: Mapping[str, object]) -> None:
        """Send the reply to the call's request; ignore a process that does not take it."""
        try:
            self.socket.settimeout(SEND_SECONDS)
            self.socket.sendall(reply_line(reply))
            self.socket.setblocking(False)
        except OSError:
            pass  # It has ended, as the next read reports.

    def ask_to_cancel(self) -> None:
        """Send SIGUSR1 to the process alone."""
        try:
            system.send(self._pidfd, signal.SIGUSR1)
        except ProcessLookupError:
            pass

    def end(self, *, hard: bool) -> None:
        """Send SIGTERM, or SIGKILL if ``hard``, to the process group; ``read`` returns
        ``HostExited`` then."""
        number = signal.SIGKILL if hard else signal.SIGTERM
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            # It has moved to another group; until it is reaped, the pidfd names it.
            system.send(self._pidfd, number)
        except PermissionError:
            pass  # It has become another user's.

    def retire(self) -> None:
        """``close`` the process, with a moment for what a worker class of dispatcherd does at its
        end."""
        if self._dispatches:
            try:
                self.socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # It is gone.
            _is_dead(self._pidfd, RETIRE_MS)
        self.close()

    def close(self) -> None:
        """Kill the process and all of its group: it is no longer needed."""
        if not self.buried:
            self._bury()

    def bury(self) -> HostExited:
        """Kill the process if it does not end by itself at once; return how it has ended."""
        _is_dead(self._pidfd, _DIES_MS)
        return self._bury()

    def is_dead(self) -> bool:
        """Return whether the process has ended."""
        return _is_dead(self._pidfd, 0)

    def _closed(self) -> CallAnswer | HostExited:
        if _is_dead(self._pidfd, _DIES_MS):
            return self._bury()
        self.close()
        return _broken("it closed its process's connection")

    def _bury(self) -> HostExited:
        # The processes that it started end with it.
        self.end(hard=True)
        _, status = os.waitpid(self.pid, 0)
        self.buried = True
        os.close(self._pidfd)
        self.socket.close()
        return HostExited(os.waitstatus_to_exitcode(status))


def _is_dead(pidfd: int, within_ms: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(within_ms))


def _broken(why: str) -> CallAnswer:
    return CallAnswer(Outcome(OutcomeKind.ERROR, why), spent=True)


def _spawn(
    theirs: int, module: str, allowed: Sequence[str], environment: Mapping[bytes, bytes]
) -> int:
    # -P: our own modules are imported from where we are installed, never from the project.
    argv = [sys.executable, "-P", "-m", module, *allowed]
    return spawn_in_group(argv, environment, ((os.POSIX_SPAWN_DUP2, theirs, WORKER_FD),))


# --- step ----------------------------------------------------------------------------------------
# A function's call as a step of a task: started and ended as any program is.


Questions = Callable[[str, Mapping[str, Any]], None]
"""Function that takes a control command and its data."""
Begun = Callable[[], None]
"""Function that is called when a message of dispatcherd is called, after the setup it needs."""


class CallStep:
    """A running call; the same shape as ``steps.RunningStep``."""

    def __init__(
        self,
        host: HostProcess,
        output: AttemptOutput,
        result_file: str,
        asked: Questions,
        begun: Begun,
    ) -> None:
        self._host = host
        self._asked = asked
        self._begun = begun
        self._result_file = result_file
        self.fd = host.socket.fileno()
        self.output = output
        self.ended_by_us = False

    def end(self, *, hard: bool, ask: bool = False) -> None:
        """End the call with its process; ``ask``: send SIGUSR1 instead, and the process may live
        on."""
        self.ended_by_us = True
        if ask:
            self._host.ask_to_cancel()
        else:
            self._host.end(hard=hard)

    def tell(self, reply: Mapping[str, Any]) -> None:
        """Send the reply to the call's request."""
        self._host.tell(reply)

    def finish(self) -> StepOver | None:
        """Return how the step ended; None: it still runs. Call when ``fd`` can be read, or a child
        ended."""
        answer = self._host.read()
        match answer:
            case None:
                return None
            case CallAsked(command, data):
                self._asked(command, data)
                return None
            case CallBegun():
                self._begun()
                return self.finish()
            case HostExited(status):
                return step_ended(status, self.output.end())
            case CallAnswer(outcome, in_file, spent, is_stopping):
                if spent:
                    self._host.close()
                self.output.end(keep=True)
                if in_file:
                    outcome = replace(outcome, result_file=self._result_file)
                return StepAnswered(outcome, is_stopping)


class Functions:
    """All calls of one worker, one at a time, in one process that is replaced if it has died.

    ``asked``: called with each request of a call to the orchestrator.
    """

    def __init__(self, allowed: Sequence[str], asked: Questions, begun: Begun) -> None:
        self._asked = asked
        self._begun = begun
        self._allowed = allowed
        self._host: HostProcess | None = None
        self._output: AttemptOutput | None = None

    def pids(self) -> Collection[int]:
        """Return the pids of our children that are buried here, and nowhere else."""
        return () if self._host is None or self._host.buried else (self._host.pid,)

    def start(self, plan: Plan, step: Step, inherited: Mapping[bytes, bytes]) -> CallStep:
        """Start a step that is a call; raises ``CannotStart``."""
        assert step.call is not None
        output = self._prepared(plan, step)
        try:
            host = self._living(step, inherited)
            result_file, environment = plan.result_file, step.environment
            tells = host.call(step.call, environment, output.fd, output, result_file)
        except (OSError, ValueError) as error:
            self.let_go()
            self.close()
            degraded = isinstance(error, OSError) and error.errno in MACHINE_ERRORS
            raise CannotStart(f"cannot call {step.name}: {error}", degraded=degraded) from None
        if step.call.message is not None and not tells:
            self._begun()
        return CallStep(host, output, result_file, self._asked, self._begun)

    def start_ahead(
        self, added: Mapping[str, str], inherited: Mapping[bytes, bytes], ahead: str
    ) -> None:
        """Start a process that is ready (``settings.Ahead``) when the first call comes; raises
        ``OSError``. Call this only if there is no process. ``added``: variables added to its
        environment."""
        self._host = HostProcess(self._allowed, {**inherited, **encoded(added)})
        self._host.set_up(added, ahead)

    @property
    def is_cold(self) -> bool:
        """Whether the process still gets ready."""
        return self._host is not None and self._host.is_cold and not self._host.buried

    def on_input(self) -> None:
        """Handle input or the end of a process without a call: note that it is ready, or close
        it."""
        if self._host is not None and not (self._host.buried or self._host.warms()):
            self._host.close()

    @property
    def fd(self) -> int:
        """Descriptor to watch for reading, also while no call runs: then ``on_input``. -1: no
        process."""
        return -1 if self._host is None or self._host.buried else self._host.socket.fileno()

    def close(self) -> None:
        """Kill the process and every process it started; the next call gets another one."""
        if self._host is not None:
            self._host.close()

    def retire(self) -> None:
        """End the process with the worker, with a moment for dispatcherd's own shutdown."""
        if self._host is not None and not self._host.buried:
            self._host.retire()

    def let_go(self) -> None:
        """Close the output: another program of the worker prints next, to a file that it opens, and
        may rename."""
        if self._output is not None:
            self._output.close()
            self._output = None

    def _prepared(self, plan: Plan, step: Step) -> AttemptOutput:
        output = self._output
        if output is None or plan.issue_file or not output.reuse(plan):
            self.let_go()
            output = self._output = prepare(plan, step)
        return output

    def _living(self, step: Step, inherited: Mapping[bytes, bytes]) -> HostProcess:
        host = self._host
        if host is not None and not host.is_fit():
            host.close()  # Killed, or talking, while it was idle: not the next call's fault.
        if host is None or host.buried:
            # This task's variables contain the token by which our processes are found.
            environment = {**inherited, **encoded(step.environment)}
            host = self._host = HostProcess(self._allowed, environment)
        return host
