"""Real worker processes, and what is done to them: killed, frozen, cut off, slowed down."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beads_workers.runtime import sessions
from tests.support.fleet import Fleet
from tests.support.peer import descriptors
from tests.support.workers import words_of

SLOW_SECONDS = (0.3, 0.1)
"""Frozen and awake, in turn."""
PIDFD_GETFD = 438
NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Worker:
    """A row of the fleet. ``silence``: seconds after which its connection counts as lost.

    ``language``: of ``worker_programs()`` or ``python``, empty for one that the fleet starts.
    """

    name: str
    language: str = ""
    version: str = "1.1"
    silence: float = NEVER


WORKERS = (
    Worker("ours"),
    Worker("Bash, version 1", "bash", "1"),
    Worker("Bash", "bash", silence=15.0),
    Worker("Go", "go", silence=15.0),
    Worker("Node", "node", silence=15.0),
    Worker("Rust", "rust", silence=15.0),
    Worker("Python", "python"),
)


@dataclass(slots=True)
class Victim:
    """One of them in a trial: ``mark`` as in ``Hand.worker``; ``issue_id``: what it has in hand."""

    worker: Worker
    process: subprocess.Popen[bytes] | None = None
    """None of one that is ours."""
    mark: str = ""
    issue_id: str = ""
    pids: set[int] = field(default_factory=set)
    """Its processes, when it was frozen last."""

    @property
    def is_ours(self) -> bool:
        return not self.worker.language

    def join(self, fleet: Fleet, project: Any, command: Sequence[str], **more: str) -> None:
        """It connects, as one that somebody has started by hand."""
        self.mark = f"{self.worker.name.replace(' ', '-')}-of-{fleet.pid}"
        environment = {**project.environment, **more, "HAND": self.mark}
        environment["ORCHESTRATOR_PID"] = str(fleet.pid)
        if self.worker.version == "1":
            environment["BW_CLAIMS"] = "worker" if hasattr(project, "bd") else "orchestrator"
        log = project.folder.parent / f"{self.worker.name}.log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*words_of(self.worker.language), *command],
                cwd=project.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def members(self) -> list[int]:
        """Its living processes and those of its task, the oldest first. A task may have a session
        of its own (Node), but has the environment of its worker.
        """
        pids = sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
        if self.is_ours:
            return [pid for pid in pids if _is_in_session(pid, int(self.mark))]
        return [pid for pid in pids if sessions.start_time(pid) and _has(pid, f"HAND={self.mark}")]

    # --- what is done to it -------------------------------------------------------------------

    def freeze(self) -> None:
        """It and its task, parents first: no shell shall see that its child was stopped."""
        self.pids = set()
        while fresh := [pid for pid in self.members() if pid not in self.pids]:
            for pid in fresh:
                _signal(pid, signal.SIGSTOP)
            self.pids.update(fresh)

    def thaw(self) -> None:
        """Children first."""
        for pid in reversed(self.members()):
            _signal(pid, signal.SIGCONT)

    def kill(self) -> None:
        """The worker alone: the rest is up to its fleet, or to what it left behind for this."""
        _signal(self.process.pid if self.process else int(self.mark), signal.SIGKILL)

    def cut(self, path: Path) -> None:
        """Its connection to this socket ends, and it lives on."""
        pairs = [(pid, each) for pid in self.members() for each in _sockets(pid)]
        ended = [_shut(pid, each, str(path)) for pid, each in pairs]
        assert any(ended), f"{self.worker.name} has no connection"

    def end(self) -> None:
        """Whatever is left of it."""
        if self.process is not None:
            for pid in self.members():
                _signal(pid, signal.SIGKILL)
            self.process.wait()


@contextlib.contextmanager
def slowed(victims: Sequence[Victim]) -> Iterator[None]:
    """Frozen most of the time, so that nothing that is sent to them is read soon."""
    over = threading.Event()

    def pulse() -> None:
        while not over.is_set():
            for victim in victims:
                victim.freeze()
            time.sleep(SLOW_SECONDS[0])
            for victim in victims:
                victim.thaw()
            time.sleep(SLOW_SECONDS[1])

    pulses = threading.Thread(target=pulse)
    pulses.start()
    try:
        yield
    finally:
        over.set()
        pulses.join()


def _is_in_session(pid: int, session: int) -> bool:
    found = sessions.read_process(pid)
    return found is not None and found.session == session and not found.zombie


def _has(pid: int, variable: str) -> bool:
    try:
        return variable.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _sockets(pid: int) -> list[int]:
    """The descriptors of a process that are sockets."""
    with contextlib.suppress(FileNotFoundError):
        opened = descriptors(pid)
        return [number for number, name in opened.items() if name.startswith("socket:")]
    return []


def _shut(pid: int, descriptor: int, path: str) -> bool:
    """End the connection to ``path``, where this descriptor is one; needs Linux 5.6."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        number = libc.syscall(PIDFD_GETFD, process, descriptor, 0)
    finally:
        os.close(process)
    if number < 0 and ctypes.get_errno() in (errno.EBADF, errno.ESRCH):
        return False
    if number < 0:
        raise OSError(ctypes.get_errno(), f"no access to descriptor {descriptor} of {pid}")
    with socket.socket(fileno=number) as ours, contextlib.suppress(OSError):
        if ours.getpeername() == path:
            ours.shutdown(socket.SHUT_RDWR)
            return True
    return False
