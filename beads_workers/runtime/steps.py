"""One program of a task as a process: started, ended, and reaped with every process it has left.

Source: docs/SEMANTICS.md, "Attempts". A step leads a process group of its own. Its output goes
straight into the attempt's log; it gets no descriptors besides 0, 1 and 2.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from beads_workers.core.base.plans import Plan, Step, StepKind
from beads_workers.core.base.redaction import UnsafePath
from beads_workers.core.workers.worker_events import StepAnswered, StepEnded
from beads_workers.runtime import warm_steps
from beads_workers.runtime.kernel import system
from beads_workers.runtime.output import AttemptOutput, CapturedOutput, with_result
from beads_workers.runtime.processes import spawn_found

if TYPE_CHECKING:
    from beads_workers.runtime.attempt_channel import AttemptChannel

MACHINE_ERRORS = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EAGAIN,
        errno.EROFS,
        errno.EIO,
        errno.ESTALE,
    )
)
"""Errors of a machine that is full or broken: no fault of a task."""


class RunningStep:
    """A started step. Watch ``fd`` for reading; then call ``finish`` once."""

    def __init__(
        self,
        pid: int,
        output: AttemptOutput,
        captured: CapturedOutput | AttemptChannel | None,
        result_file: str,
        place_file: str | None,
    ) -> None:
        self.pid = pid
        self.fd = system.exit_descriptor(pid)
        self.ended_by_us = False
        self.output = output
        self.captured = captured
        self.answer: StepAnswered | None = None
        """Answer of an agent's attempt, once it is over."""
        self._result_file = result_file
        self._place_file = place_file

    @property
    def is_attempt(self) -> bool:
        """Whether this is an attempt of an agent, whose tools have sessions of their own."""
        return self.captured is not None and not isinstance(self.captured, CapturedOutput)

    def end(self, *, hard: bool) -> None:
        """Send TERM, or KILL if ``hard``, to the whole process group."""
        self.ended_by_us = True
        # The leader is not reaped yet, so the group's number is still its own.
        self._signal_group(signal.SIGKILL if hard else signal.SIGTERM)

    def suspend(self, *, on: bool) -> None:
        """Send STOP, or CONT if not ``on``, to the whole process group."""
        self._signal_group(signal.SIGSTOP if on else signal.SIGCONT)

    def finish(self) -> StepEnded:
        """Kill what is left of the process group, then reap the process, which has ended."""
        system.wait_unreaped(self.pid)
        self._signal_group(signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        result = ""
        if isinstance(self.captured, CapturedOutput):
            result = self.captured.end(self.output.tee)
        elif self.captured is not None:
            self.answer = self.captured.end()
        said = self.output.said(_folder(self._place_file)) if status and self.answer is None else ""
        tail = self.output.end()
        os.close(self.fd)
        ended = replace(step_ended(os.waitstatus_to_exitcode(status), tail), said=said)
        return with_result(ended, result, self._result_file) if result else ended

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            # Not there yet, or it changed its user (sudo): beyond our reach.
            pass


class CannotStart(Exception):
    """Error: a step's program could not be started; ``str()`` is one line.

    ``missing``: there is no such program, or it may not be executed. ``degraded``: the machine has
    no room, no descriptor or no process left, or what was prepared for the task is gone.
    """

    def __init__(self, error: str, *, missing: bool = False, degraded: bool = False) -> None:
        super().__init__(error)
        self.missing = missing
        self.degraded = degraded


def start_step(plan: Plan, step: Step, inherited: Mapping[bytes, bytes]) -> RunningStep:
    """Start a step in the current folder, or in the prepared one; raises ``CannotStart``.

    ``inherited``: the environment under the step's own variables (a plain dict: reading
    ``os.environb`` costs as much as a fork).
    """
    return launch(step, prepare(plan, step), inherited, plan.result_file)


def launch(
    step: Step, output: AttemptOutput, inherited: Mapping[bytes, bytes], result_file: str = ""
) -> RunningStep:
    """Start a step as ``start_step`` does, with a given output; end the output if the start
    fails."""
    captured: CapturedOutput | AttemptChannel | None = None
    try:
        if step.is_attempt:
            # Imported here: every worker would pay for the import.
            from beads_workers.runtime.attempt_channel import AttemptChannel

            captured = AttemptChannel()
        elif step.speaks:
            captured = CapturedOutput(output.fd)
        stdout = captured.writing if captured else output.fd
        pid = _spawn_in_place(step, (stdout, output.fd), inherited)
        return _watched(pid, output, captured, result_file, step.place_file)
    except _NoPlace as error:
        _unused(output, captured)
        # Before its own work the task cannot have removed the folder.
        raise CannotStart(str(error), degraded=step.kind is StepKind.RUN) from None
    except OSError as error:
        _unused(output, captured)
        missing = error.errno in (errno.ENOENT, errno.EACCES)
        degraded = error.errno in MACHINE_ERRORS
        error_text = _explain(error, step.argv[0])
        raise CannotStart(error_text, missing=missing, degraded=degraded) from None


def prepare(plan: Plan, step: Step) -> AttemptOutput:
    """Write the files that a step may read, and open its output; raises ``CannotStart``."""
    try:
        if step is plan.steps[0] and plan.issue_file:
            _write_private(plan.issue_file, plan.issue_text)
        return AttemptOutput(plan)
    except UnsafePath as error:
        raise CannotStart(f"log_path: {error}") from None
    except OSError as error:
        error_text = f"cannot write {error.filename}: {error.strerror}"
        raise CannotStart(error_text, degraded=error.errno in MACHINE_ERRORS) from None


def step_ended(status: int, tail: str) -> StepEnded:
    """Return the event of a step's end. ``status``: an exit status, or minus the number of a
    signal."""
    return StepEnded(status, tail, _signal_name(-status) if status < 0 else "")


def _folder(place_file: str | None) -> str:
    """Return the folder in which a step ran."""
    if place_file is None:
        return os.getcwd()  # noqa: PTH109 - no Path here
    try:
        with open(place_file, "rb") as file:
            return str(json.loads(file.read())["folder"])
    except (OSError, ValueError, KeyError):
        return ""


def _unused(output: AttemptOutput, captured: CapturedOutput | AttemptChannel | None) -> None:
    output.end()
    if captured:
        captured.end()


def _watched(
    pid: int,
    output: AttemptOutput,
    captured: CapturedOutput | AttemptChannel | None,
    result_file: str,
    place_file: str | None,
) -> RunningStep:
    if captured:
        captured.started()
    try:
        return RunningStep(pid, output, captured, result_file, place_file)
    except OSError:
        # Without a descriptor to watch it, the process must not run on.
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


class _NoPlace(Exception):
    """Error: the folder that was prepared for a step is not there."""


@contextlib.contextmanager
def _in_its_place(place_file: str) -> Iterator[Mapping[bytes, bytes]]:
    """Be in the step's prepared folder meanwhile; yield the variables that its preparation adds.

    ``posix_spawn`` cannot set a folder, and this process has one thread.
    """
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            with open(place_file, "rb") as file:
                place = json.loads(file.read())
            os.chdir(place["folder"])
            added = encoded(place["environment"])
        except OSError as error:
            raise _NoPlace(f"cannot use {error.filename}: {error.strerror}") from None
        except (ValueError, LookupError, TypeError, AttributeError):
            raise _NoPlace(f"{place_file} is damaged") from None
        yield added
    finally:
        os.fchdir(here)
        os.close(here)


def _spawn_in_place(step: Step, outputs: tuple[int, int], inherited: Mapping[bytes, bytes]) -> int:
    if step.place_file is None:
        return _spawn(step, outputs, inherited)
    with _in_its_place(step.place_file) as added:
        return _spawn(step, outputs, {**inherited, **added})


def _spawn(step: Step, outputs: tuple[int, int], inherited: Mapping[bytes, bytes]) -> int:
    environment = {**inherited, **encoded(step.environment)}
    argv = [_encode(argument) for argument in step.argv]
    prompt = None if step.stdin is None else _prompt_file(step.stdin)
    stdin: tuple[int, ...] = (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)  # type: ignore[assignment]
    if prompt is not None:
        stdin = (os.POSIX_SPAWN_DUP2, prompt, 0)
    stdout, log = outputs
    actions = [stdin, (os.POSIX_SPAWN_DUP2, stdout, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
    try:
        if prompt is not None and (module := warm_steps.loaded(step.argv)) is not None:
            return warm_steps.fork_in_group(module, environment, (prompt, stdout, log))
        return spawn_found(argv, environment, actions)
    finally:
        if prompt is not None:
            os.close(prompt)


def _prompt_file(prompt: str) -> int:
    # A file in memory, of any size: the program reads it to its end, and nobody has to feed it.
    descriptor = system.memory_file("prompt")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(_encode(prompt))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _write_private(path: str, text: str) -> None:
    # Overwritten and cut rather than emptied first: some file systems sync an emptied file.
    data = _encode(text)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        written = 0
        while written < len(data):
            written += os.write(descriptor, data[written:])
        os.ftruncate(descriptor, written)
    finally:
        os.close(descriptor)


def encoded(environment: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return an environment as ``execve`` takes it."""
    return {_encode(name): _encode(value) for name, value in environment.items()}


def _encode(text: str) -> bytes:
    # Text that a person typed may hold bytes that are not UTF-8: they are restored here.
    return text.encode("utf-8", "surrogateescape")


def _explain(error: OSError, program: str) -> str:
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return f"command not found: {program}"
        case errno.EACCES:
            return f"not executable: {program}"
        case errno.E2BIG:
            return f"arguments and environment are too long for {program}"
        case _:
            return f"cannot start {program}: {error.strerror}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)
