"""Process in which functions that are declared concurrent run together, started by ``python -m``.

One event loop. Descriptor 3 is its worker: each line starts or cancels a call. Each call is
answered by one line, in the order in which the calls end. A function that is not declared
concurrent is not called here, and the answer says so. The process ends with its worker's
connection.

Source: docs/SEMANTICS.md, "Concurrent functions".
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from io import TextIOBase
from types import CoroutineType
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.framing import Line, LineReader
from beads_workers.core.base.model import OutcomeKind
from beads_workers.core.base.plans import Plan
from beads_workers.executors import retry
from beads_workers.executors.functions import (
    CallResult,
    NotCallable,
    Resolver,
    failed,
    not_callable,
    succeeded,
)
from beads_workers.runtime.functions import (
    CALL_BYTES_MAX,
    WARM,
    WORKER_FD,
    answer_line,
    isolate_line,
)
from beads_workers.runtime.output import AttemptOutput, keep_result

READ_BYTES = 1 << 16
OUT_OF_THE_WAY = 20
"""Lower bound of our descriptors: what functions open, or write to by mistake, lies below."""

ALARM_SECONDS = 1.0
BLOCKED_ALARMS = 3
"""Number of alarms without a turn of the loop after which the running call has blocked it."""


class BlockedLoop(BaseException):
    """Raised in a call that lets no other call run; functions are not to catch it."""


@dataclass(slots=True, eq=False)
class ConcurrentCall:
    """A call without an answer. ``variables``: its own. ``output``: opened when it first prints."""

    number: int
    variables: Mapping[str, str]
    result_file: str
    places: Sequence[Any]
    output: AttemptOutput | None = None
    unfinished: str = ""
    task: asyncio.Task[None] | None = None
    begun: bool = False

    def print(self, text: str) -> None:
        """Write text to the attempt's log, in whole lines."""
        *lines, self.unfinished = (self.unfinished + text).split("\n")
        if len(self.unfinished) > READ_BYTES:
            lines, self.unfinished = [*lines, self.unfinished], ""
        if lines:
            self._write("\n".join(lines) + "\n")

    def end(self, trace: str) -> None:
        """Write the rest of the output and, after a failure, ``trace``; then end the output."""
        if rest := self.unfinished + ("\n" if self.unfinished and trace else "") + trace:
            self._write(rest)
        if self.output is not None:
            self.output.end()

    def _write(self, text: str) -> None:
        with suppress(OSError):  # The disk is full: the call loses only its own output.
            if self.output is None:
                log_file, output_file, bytes_max = self.places
                self.output = AttemptOutput(Plan((), "", "", log_file, output_file, bytes_max))
            os.write(self.output.fd, text.encode("utf-8", "backslashreplace"))


CALL: ContextVar[ConcurrentCall | None] = ContextVar("CALL", default=None)
"""The call whose code runs; None outside of calls."""


class _Printing(TextIOBase):
    """``sys.stdout`` and ``sys.stderr``: write to the log of the call that prints."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        if (call := CALL.get()) is not None:
            call.print(text)
        else:
            with suppress(OSError):
                os.write(2, text.encode("utf-8", "backslashreplace"))
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2


@dataclass(slots=True)
class ConcurrentHost:
    """This process. ``run`` serves calls until the worker is gone."""

    allowed: Sequence[str]
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    worker: socket.socket = field(init=False)
    resolver: Resolver = field(init=False)
    reader: LineReader = field(default_factory=lambda: LineReader(CALL_BYTES_MAX))
    calls: dict[int, ConcurrentCall] = field(default_factory=dict)
    outbox: bytearray = field(default_factory=bytearray)
    flushes: bool = False
    turned: bool = True
    alarms: int = 0
    """Number of alarms without a turn of the loop, while the same call ran."""
    blocking: ConcurrentCall | None = None
    """The call that ran at the last of these alarms."""
    watches: bool = False

    def __post_init__(self) -> None:
        kept = fcntl.fcntl(WORKER_FD, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
        os.close(WORKER_FD)
        self.worker = socket.socket(fileno=kept)
        self.worker.setblocking(False)
        self.resolver = Resolver(self.allowed)
        # Functions lie in the project, as for any program that is started there.
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
        sys.stdout = sys.stderr = _Printing()
        retry.find_variables = _variables
        os.register_at_fork(after_in_child=self.worker.close)
        signal.signal(signal.SIGALRM, self._alarm)

    def run(self) -> None:
        """Serve calls; return when the worker is gone."""
        asyncio.set_event_loop(self.loop)
        self.loop.add_reader(self.worker, self._read)
        while True:
            try:
                self.loop.run_forever()
            except (KeyboardInterrupt, SystemExit):
                continue  # Raised in a task that a call has created: only that task ends.
            return

    # --- lines --------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            received = self.worker.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self.loop.stop()
            return
        for framed in self.reader.feed(received):
            assert isinstance(framed, Line), "a worker knows how long a line may be"
            fields = json.loads(framed.text)
            if "cancel" in fields:
                self._cancel(fields["cancel"])
            elif "ahead" in fields:
                self.resolver.load()
                self._say(WARM)
            else:
                self._begin(fields)

    def _say(self, line: bytes) -> None:
        self.outbox += line
        if not self.flushes:
            self.flushes = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self.flushes = False
        try:
            sent = self.worker.send(self.outbox)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.loop.stop()
            return
        del self.outbox[:sent]
        if self.outbox:
            self.loop.add_writer(self.worker, self._flush)
            self.flushes = True
        else:
            self.loop.remove_writer(self.worker)

    # --- calls --------------------------------------------------------------------------------

    def _begin(self, fields: dict[str, Any]) -> None:
        path = fields["path"]
        places = fields["output"]
        call = ConcurrentCall(fields["n"], fields["variables"], fields["result_file"], places)
        try:
            function = self.resolver.known.get(path) or self.resolver.find(path)
        except NotCallable as error:
            self._answer(call, not_callable(error))
            return
        if getattr(function, "concurrent", None) is not True:
            self._say(isolate_line(call.number))
            return
        self.calls[call.number] = call
        self._watch()
        token = CALL.set(call)  # The task begins with a copy of what is set here.
        coroutine = self._run(call, function, fields["args"], fields["kwargs"])
        call.task = self.loop.create_task(coroutine)
        CALL.reset(token)

    async def _run(
        self,
        call: ConcurrentCall,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        call.begun = True
        try:
            value = function(*args, **kwargs)
            if type(value) is CoroutineType:
                value = await value
            answer = succeeded(value)
        except SystemExit as left:
            answer = CallResult(OutcomeKind.ERROR, error=f"it called exit({left.code!r})"[:200])
        except BlockedLoop as error:
            answer = CallResult(OutcomeKind.ERROR, error=str(error), trace=failed(error).trace)
        except BaseException as error:  # Any exception is the call's answer.
            answer = failed(error)
        self._answer(call, answer)

    def _cancel(self, number: int) -> None:
        call = self.calls.get(number)
        if call is None or call.task is None:
            return
        call.task.cancel()
        if not call.begun:
            self._answer(call, CallResult(OutcomeKind.ERROR, error="cancelled before it began"))

    def _answer(self, call: ConcurrentCall, answer: CallResult) -> None:
        self.calls.pop(call.number, None)
        if call.unfinished or call.output is not None or answer.trace:
            call.end(answer.trace)
        in_file = len(answer.result) > limits.RESULT_CHARS_MAX
        if in_file:
            try:
                keep_result(call.result_file, answer.result)
            except OSError as error:
                why = f"its result cannot be kept: {error.filename}: {error.strerror}"
                answer, in_file = CallResult(OutcomeKind.RETRY, error=why), False
        self._say(answer_line(call.number, answer, in_file=in_file, spent=False))

    # --- a loop that does not turn ------------------------------------------------------------

    def _watch(self) -> None:
        if not self.watches:
            self.watches, self.turned, self.alarms = True, True, 0
            signal.setitimer(signal.ITIMER_REAL, ALARM_SECONDS, ALARM_SECONDS)

    def _alarm(self, *_: object) -> None:
        # This runs in the middle of any other code.
        if self.turned and not self.calls:
            self.watches = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        elif self.turned:
            self.turned, self.alarms = False, 0
            self.loop.call_soon_threadsafe(self._turn)
        else:
            before, self.blocking = self.blocking, CALL.get()
            self.alarms = 1 if self.blocking is not before else self.alarms + 1
            if self.alarms >= BLOCKED_ALARMS and self.blocking is not None:
                seconds = self.alarms * ALARM_SECONDS
                raise BlockedLoop(f"it blocked the event loop, which it shares, for {seconds:g} s")

    def _turn(self) -> None:
        self.turned = True


def _variables() -> Mapping[str, str]:
    call = CALL.get()
    return os.environ if call is None else call.variables


if __name__ == "__main__":
    ConcurrentHost(sys.argv[1:]).run()
    # Threads and tasks that calls have left are dropped: nobody waits for them.
    os._exit(0)
