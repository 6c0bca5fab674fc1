"""``python -m beads_workers`` out of a warm process: forked where its modules are loaded already.

Loading them is nearly all that a short command costs, and tests call thousands. Each call is a
process of its own, with the arguments, folder, environment and descriptors that it is given, and it
ends as Python ends; what it starts itself is started as ever. Tests of the start of the program, of
documents and of the package run the real one.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import beads_workers
from beads_workers.cli import launch
from beads_workers.cli.app import main
from beads_workers.core.base.model import compile_values
from beads_workers.registry import commands, service
from tests.support.trust import TRUSTED

REQUEST_BYTES_MAX = 200_000
NUMBER_BYTES = 8
OURS = dict(os.environ)
"""The environment in which the warm process starts, whatever a test does to its own."""
ORCHESTRATOR = "beads_workers.runtime.main"
ATTEMPT = "beads_workers.attempts.run"
PROGRAMS = (ATTEMPT, "beads_workers.landing.run", "beads_workers.worktrees.preparation")
"""Those that an orchestrator or a worker starts, each a module with a function ``main``."""
LOADED_LATER = (
    *PROGRAMS,
    *(ORCHESTRATOR, "beads_workers.runtime.fleet", "beads_workers.trackers.sqlite.source"),
    *("beads_workers.checks.machine", "tomllib"),
)
"""What a command or an orchestrator loads as soon as it is at work."""
PATH = "PYTHONPATH"
OUR_FOLDERS = sum(bool(name) for name in OURS.get(PATH, "").split(os.pathsep))
LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")
"""The first of these that is set says in which encoding Python reads and writes."""


class Process:
    """A running ``beads-workers`` in the shape of ``subprocess.Popen``; without ``stdin`` its own
    is empty. ``module``: one of ``PROGRAMS`` that is run instead. ``safe``: as ``python -P``.
    ``user``: the command, with its arguments, that makes a process that user's."""

    def __init__(
        self,
        arguments: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        stdout: int,
        stderr: int,
        *,
        stdin: int | None = None,
        module: str = "",
        safe: bool = False,
        user: tuple[str, ...] = (),
    ) -> None:
        self.args = list(arguments)
        self.returncode: int | None = None
        self._told, theirs = socket.socketpair()
        with theirs, open(os.devnull, "rb") as nothing:
            asked = (self.args, str(cwd), dict(env), _umask(), module, safe)
            request = json.dumps(asked).encode()
            given = nothing.fileno() if stdin is None else stdin
            descriptors = [theirs.fileno(), given, stdout, stderr]
            socket.send_fds(_server(user), [request], descriptors)
        self.pid = self._number()

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it has ended; raises ``subprocess.TimeoutExpired``."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = self._number()
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # It has just ended.
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def _number(self) -> int:
        told = self._told.recv(NUMBER_BYTES, socket.MSG_WAITALL)
        assert len(told) == NUMBER_BYTES, "the warm process has ended"
        return int.from_bytes(told, signed=True)


def start(
    arguments: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    stdout: int,
    stderr: int,
    *,
    safe: bool = False,
    user: tuple[str, ...] = (),
) -> Process | subprocess.Popen[bytes]:
    """Start ``beads-workers``; anew where Python itself would begin differently there.

    What a test has written is trusted, unless its environment says so itself ("": it is not).
    """
    env = {**TRUSTED, **env}
    if _read_at_the_start(env) == _read_at_the_start(OURS) and not _customized(env):
        return Process(arguments, cwd, env, stdout, stderr, safe=safe, user=user)
    command = [*user, sys.executable, *("-P" for _ in range(safe)), "-m", "beads_workers"]
    command += arguments
    return subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
    )


def run(
    arguments: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    *,
    safe: bool = False,
    user: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run ``beads-workers`` to its end, and to that of whoever holds its outputs."""
    pipes = [os.pipe(), os.pipe()]
    process = start(arguments, cwd, env, *(w for _, w in pipes), safe=safe, user=user)
    return _ended(process, pipes, timeout)


def run_module(
    module: str, given: str, cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run one of ``PROGRAMS`` to its end, as ``python -P -m``, with that on its stdin."""
    pipes = [os.pipe(), os.pipe()]
    with tempfile.TemporaryFile() as stdin:
        stdin.write(given.encode())
        stdin.seek(0)
        out, err = (w for _, w in pipes)
        process = Process((), cwd, env, out, err, stdin=stdin.fileno(), module=module, safe=True)
    return _ended(process, pipes, timeout)


def _ended(
    process: Process | subprocess.Popen[bytes], pipes: Sequence[tuple[int, int]], timeout: float
) -> subprocess.CompletedProcess[str]:
    for _, written in pipes:
        os.close(written)
    try:
        printed = _read_all([read for read, _ in pipes], time.monotonic() + timeout)
        code = process.wait(timeout)
    except BaseException:  # Whatever ended the waiting, nobody waits for it any more.
        process.kill()
        raise
    finally:
        for read, _ in pipes:
            os.close(read)
    return subprocess.CompletedProcess(process.args, code, *printed)


def _read_all(pipes: Sequence[int], deadline: float) -> list[str]:
    said = dict.fromkeys(pipes, b"")
    left = set(pipes)
    while left:
        ready, _, _ = select.select(left, [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise subprocess.TimeoutExpired("beads-workers", 0)
        for pipe in ready:
            said[pipe] += (some := os.read(pipe, 65536))
            if not some:
                left.discard(pipe)
    return [text.decode().replace("\r\n", "\n") for text in said.values()]


def _umask() -> int:
    return int(re.findall(r"^Umask:\s+(\d+)", Path("/proc/self/status").read_text(), re.M)[0], 8)


def _read_at_the_start(environment: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """What Python reads of its environment before it runs anything."""
    locale = next((value for name in LOCALE if (value := environment.get(name))), "")
    return locale, {k: v for k, v in environment.items() if k.startswith("PYTHON") and k != PATH}


def _customized(environment: Mapping[str, str]) -> bool:
    """Whether Python would run a module of its path before anything else."""
    folders = [Path(folder) for folder in environment.get(PATH, "").split(os.pathsep) if folder]
    return any((f / f"{who}customize.py").exists() for f in folders for who in ("site", "user"))


_one = threading.Lock()


def _server(user: tuple[str, ...]) -> socket.socket:
    with _one:
        if _started(*user)[1].poll() is not None:
            # Tests of attempts are the process of one, and end all that it has started.
            _started(*user)[0].close()
            _started.cache_clear()
        return _started(*user)[0]


@functools.cache
def _started(*user: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """That user's warm process of this one, and the connection to it, with which it ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        warm = subprocess.Popen(
            [*user, sys.executable, "-m", __name__, str(theirs.fileno()), "-" * 200],
            cwd=Path(__file__).parents[2],
            env=OURS,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
        )
    return ours, warm


# --- the warm process ----------------------------------------------------------------------------


def serve(requests: socket.socket) -> Callable[[], object]:
    """Fork for each request; returns in the child, with what it is to run."""
    running: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready in running:
                poll.unregister(ready)
                pid, answers = running.pop(ready)
                os.close(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                _answer(answers, code)
                answers.close()
                continue
            request, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 4)
            if not request:
                os._exit(0)
            if (pid := os.fork()) == 0:
                return _become(request, descriptors)
            answers = socket.socket(fileno=descriptors[0])
            for descriptor in descriptors[1:]:
                os.close(descriptor)
            watched = os.pidfd_open(pid)
            running[watched] = (pid, answers)
            poll.register(watched, select.POLLIN)
            _answer(answers, pid)


def _answer(answers: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # Nobody wants to know.
        answers.sendall(number.to_bytes(NUMBER_BYTES, signed=True))


def _become(request: bytes, descriptors: Sequence[int]) -> Callable[[], object]:
    arguments, folder, environment, umask, module, safe = json.loads(request)
    for number, descriptor in enumerate(descriptors[1:]):
        os.dup2(descriptor, number)
    os.closerange(3, max(256, *descriptors) + 1)
    beads_workers.BEGUN = os.getppid(), time.monotonic()
    os.chdir(folder)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv[1:] = arguments
    sys.path[0] = folder
    theirs = environment.get(PATH, "").split(os.pathsep)
    sys.path[1 : 1 + OUR_FOLDERS] = [os.path.abspath(name) for name in theirs if name]  # noqa: PTH100
    if safe:
        del sys.path[0]
    if module:
        program = importlib.import_module(module).main
        return lambda: sys.exit(program())
    if arguments[:1] == ["start"]:
        launch.start_orchestrator = _fork_orchestrator
    return main


# --- its orchestrator -----------------------------------------------------------------------------


def _fork_orchestrator(client: socket.socket) -> int:
    """In place of ``launch.start_orchestrator``: what that starts, of the modules loaded here."""
    if (pid := os.fork()) == 0:
        _become_orchestrator(client)
    return pid


def _become_orchestrator(client: socket.socket) -> NoReturn:
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    connection = os.dup2(client.fileno(), 3)
    os.closerange(4, max(256, client.fileno(), null) + 1)
    del sys.path[0]
    _name(f"{sys.executable} -P -m {ORCHESTRATOR} {connection}")
    _run(lambda: sys.exit(importlib.import_module(ORCHESTRATOR).main([str(connection)])))


def _run(program: Callable[[], object]) -> NoReturn:
    """As Python runs one; it ends without taking apart, object by object, what is loaded here."""
    code = 0
    try:
        program()
    except SystemExit as wish:
        code = wish.code if isinstance(wish.code, int) else int(wish.code is not None)
        if wish.code not in (None, code):
            print(wish.code, file=sys.stderr)
    except BaseException:  # Python says it and ends with 1, whatever it is.
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for output in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            output.flush()
    os._exit(code)


def _name(command: str) -> None:
    """Let ``/proc`` show that command as our own, in the place of the one that is there."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    words = command.replace(" ", "\0").encode()
    assert len(words) < end - begin, "the warm process needs a longer command line"
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(begin)
        memory.write(words.ljust(end - begin, b"\0"))


def load() -> None:
    """The modules of every command, and of an orchestrator."""
    for module in ("cli.application", *commands()):
        importlib.import_module(f"beads_workers.{module}")
    for module in LOADED_LATER:
        importlib.import_module(module)
    service("tracing")
    compile_values()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    load()
    _run(serve(socket.socket(fileno=int(sys.argv[1]))))
