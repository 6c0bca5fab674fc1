"""What orchestrator and workers do to their own process, and how they start others."""

from __future__ import annotations

import errno
import functools
import io
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

OPEN_FILES_MAX = 65_536

SEND_LATER = (errno.EAGAIN, errno.EINTR, errno.ENOBUFS, errno.ENOMEM)
"""What a socket says that takes nothing now: its peer is slow, or the kernel short of memory.
Nothing was sent, and nothing is over."""

NOT_KEPT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a disk says that cannot keep what is printed to it."""

ASK_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What a worker takes as a wish that it should leave."""


def redirect_output(folder: Path, log_directory: str | None) -> None:
    """From here on, what goes wrong inside goes to ``orchestrator.log`` in the run's ``folder``.

    ``log_directory``: where the attempts' logs are to lie instead, in a folder of the run's name.
    """
    if log_directory:
        elsewhere = Path(log_directory) / folder.name
        elsewhere.mkdir(parents=True)
        (folder / "logs").rmdir()
        (folder / "logs").symlink_to(elsewhere.resolve())
    log = os.open(
        folder / "orchestrator.log",
        os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC,
        0o600,
    )
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(null)
    os.close(log)


def raise_file_limit() -> int:
    """Raise the soft limit as far as it goes; returns what it was, for workers and tasks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return soft


def keep_from_tasks() -> None:
    """No descriptor but 0, 1, 2 reaches a task; the ``alive`` lock above all stays with us."""
    for name in [entry.name for entry in os.scandir("/proc/self/fd")]:
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError:
                pass  # the listing's own descriptor


class Spares:
    """Descriptors that are kept for what must never fail for lack of one."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: list[int] = []
        self._take()

    def do(self, act: Callable[[], object]) -> None:
        """Do it; where that raises ``OSError``, once more with so many descriptors to spare."""
        try:
            act()
        except OSError:
            self._give()
            try:
                act()
            finally:
                self._take()

    def _give(self) -> None:
        while self._held:
            os.close(self._held.pop())

    def _take(self) -> None:
        while len(self._held) < self._count:
            try:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                return  # None is left just now: taken back after the next time.


def say(who: str, text: str) -> None:
    """Write a line to stderr, which is the run's log; one that cannot be written is lost.

    ``who``: a worker's id, or what else of a run speaks.
    """
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    try:
        os.write(2, f"{who}: {shown}\n".encode("utf-8", "replace"))
    except OSError:
        pass  # Nobody listens any more, or its disk is full.


class _LossyOutput(io.RawIOBase):
    """Takes everything that is written to a descriptor; what meets such an error is lost."""

    def __init__(self, fd: int, lost: Callable[[OSError], bool]) -> None:
        self._fd = fd
        self._lost = lost

    def writable(self) -> bool:
        """It is for writing only."""
        return True

    def fileno(self) -> int:
        """The descriptor, which stays open when this is closed."""
        return self._fd

    def isatty(self) -> bool:
        """Whether somebody sees it at once."""
        return os.isatty(self._fd)

    def write(self, data: Any) -> int:
        """All of it, as far as the caller can tell."""
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError as error:
            if not self._lost(error):
                raise
        return size


def outlive_output(lost: Callable[[OSError], bool] = lambda error: True) -> None:
    """From here on no ``print``, warning or traceback ends this process or what it does, because
    its stdout or stderr cannot be written: that is lost.

    Children that are forked inherit it. ``lost``: which errors that holds for.
    """
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            continue
        lossy = io.TextIOWrapper(
            io.BufferedWriter(_LossyOutput(fd, lost)),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=fd == 2 or stream.line_buffering,
        )
        setattr(sys, name, lossy)


def wake_on(signals: Iterable[int]) -> socket.socket:
    """From here on the numbers of these signals arrive here, one byte each, and do nothing else."""
    import socket  # Most who call this module listen to nobody.

    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.detach(), warn_on_full_buffer=False)
    for number in signals:
        signal.signal(number, lambda *_: None)
    return ours


def heard(wake: socket.socket) -> bytes:
    """The numbers of signals that have come since the last call; none is fine."""
    try:
        return wake.recv(64)
    except OSError:
        return b""


# --- git places ----------------------------------------------------------------------------------
# The variables by which git is told where it is: never passed on into another checkout.


GIT_PLACES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_PREFIX",
    "GIT_NAMESPACE",
    "GIT_GRAFT_FILE",
    "GIT_SHALLOW_FILE",
    "GIT_REPLACE_REF_BASE",
    "GIT_INTERNAL_SUPER_PREFIX",
)
"""What ``git rev-parse --local-env-vars`` lists, without its ways to give configuration."""


# --- spawns --------------------------------------------------------------------------------------
# How a program is started: found as a shell finds it, the first of a process group of its own.


DEFAULT_SIGNALS = (
    signal.SIGPIPE,  # Python ignores these two
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGCHLD,
)
"""What a worker handles or ignores, and what it starts does not."""


def spawn_found(
    argv: list[bytes], environment: Mapping[bytes, bytes], actions: Sequence[tuple[int, ...]]
) -> int:
    """``spawn_in_group``, and what has no ``#!`` line is run by a shell. Raises ``OSError``."""
    try:
        return spawn_in_group(argv, environment, actions)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    return spawn_in_group([b"/bin/sh", _path_of(argv[0]), *argv[1:]], environment, actions)


def spawn_in_group(
    argv: list[bytes] | list[str],
    environment: Mapping[bytes, bytes],
    actions: Sequence[tuple[int, ...]],
) -> int:
    """Start a program, looked for in ``PATH``, as the first of a process group of its own.

    Signals are as for any program that a shell starts. Returns the pid; raises ``OSError``.
    """
    spawn = functools.partial(
        os.posix_spawnp,
        file_actions=actions,
        setpgroup=0,
        setsigmask=(),
        setsigdef=DEFAULT_SIGNALS,
    )
    try:
        return spawn(_path_of(os.fsencode(argv[0])), argv, environment)
    except (FileNotFoundError, PermissionError):  # It may have moved since it was found.
        return spawn(argv[0], argv, environment)


def _path_of(program: bytes) -> bytes:
    path = os.environb.get(b"PATH", b"/bin:/usr/bin")
    return program if b"/" in program else _found(program, path)


@functools.lru_cache(maxsize=64)
def _found(program: bytes, path: bytes) -> bytes:
    """Where it is, as a shell remembers it: each folder to look in would cost an ``execve``.

    Raises ``FileNotFoundError``, which is not remembered.
    """
    for folder in path.split(b":"):
        candidate = (folder or b".") + b"/" + program
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):  # noqa: PTH112
            return candidate
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
