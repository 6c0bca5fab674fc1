"""Setup of the orchestrator's and workers' own process, and starting of other processes."""

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

from beads_workers.runtime.kernel import system

if TYPE_CHECKING:
    import socket

OPEN_FILES_MAX = 65_536

SEND_LATER = (errno.EAGAIN, errno.EINTR, errno.ENOBUFS, errno.ENOMEM)
"""Errors of a socket that takes nothing now: its peer is slow, or the kernel short of memory.
Nothing was sent, and the connection still stands."""

NOT_KEPT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a disk that cannot keep what is printed to it."""

ASK_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a worker to leave."""


def lacking(error: BaseException) -> str:
    """Return what this machine has too little of, by an error of Python itself; "": nothing."""
    if isinstance(error, MemoryError):
        return "no memory is left"
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return "no thread can be started: too little memory, or too many processes"
    return ""


def redirect_output(folder: Path, log_directory: str | None) -> None:
    """From here on, write internal errors to ``orchestrator.log`` in the run's ``folder``.

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
    """Raise the soft limit of open files as far as possible; return its old value, for workers and
    tasks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return soft


def keep_from_tasks() -> None:
    """Keep all descriptors but 0, 1, 2 from tasks; above all the ``alive`` lock stays with us."""
    for descriptor in system.own_descriptors():
        if descriptor > 2:
            os.set_inheritable(descriptor, False)


class Spares:
    """Spare descriptors, kept for actions that must never fail for lack of one."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: list[int] = []
        self._take()

    def do(self, act: Callable[[], object]) -> None:
        """Call ``act``; if that raises ``OSError``, free the spare descriptors and call it once
        more."""
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
                return  # None is free just now: taken back after the next use.


def say(who: str, text: str) -> None:
    """Write a line to stderr, which is the run's log; a line that cannot be written is lost.

    ``who``: a worker's id, or the name of another part of the run.
    """
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    try:
        os.write(2, f"{who}: {shown}\n".encode("utf-8", "replace"))
    except OSError:
        pass  # Nobody reads it any more, or its disk is full.


class _LossyOutput(io.RawIOBase):
    """Stream that accepts everything written to a descriptor; ``lost``: which errors lose the
    data."""

    def __init__(self, fd: int, lost: Callable[[OSError], bool]) -> None:
        self._fd = fd
        self._lost = lost

    def writable(self) -> bool:
        """Return True: the stream is for writing only."""
        return True

    def fileno(self) -> int:
        """Return the descriptor, which stays open when the stream is closed."""
        return self._fd

    def isatty(self) -> bool:
        """Return whether the descriptor is a terminal."""
        return os.isatty(self._fd)

    def write(self, data: Any) -> int:
        """Write the data; report all of it as written, even what was lost."""
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
    """From here on, keep a ``print``, warning or traceback from ending this process because its
    stdout or stderr cannot be written: that text is lost.

    Children that are forked inherit this. ``lost``: return whether an error loses the text.
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
    """From here on, send the numbers of these signals to the returned socket, one byte each, and do
    nothing else."""
    import socket  # Most who import this module need no socket.

    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.detach(), warn_on_full_buffer=False)
    for number in signals:
        signal.signal(number, lambda *_: None)
    return ours


def received_signals(wake: socket.socket) -> bytes:
    """Return the numbers of signals that have come since the last call; there may be none."""
    try:
        return wake.recv(64)
    except OSError:
        return b""


# --- git places ----------------------------------------------------------------------------------
# Variables that tell git where it is: never passed on into another checkout.


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
"""Variables that ``git rev-parse --local-env-vars`` lists, except those that hold configuration."""

NOT_FOR_WORKTREES = (*GIT_PLACES, "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT")
"""Variables that are not for a worktree: they name the user's checkout, as a git hook that starts a
fleet sets them, or its Python environment, into which ``poetry install`` would put each worktree's
code in place of the checkout's."""


def without(environ: Mapping[str, str], secrets: Iterable[str]) -> dict[str, str]:
    """Return an environment without these variables; ``NAME=TEXT`` is set instead."""
    found = dict(environ)
    for each in secrets:
        name, is_set, text = each.partition("=")
        found.pop(name, None)
        if is_set:
            found[name] = text
    return found


def hide(secrets: Iterable[str]) -> None:
    """Take variables out of this process's environment, as ``without`` does."""
    left = without(os.environ, secrets)
    for name in set(os.environ) - set(left):
        del os.environ[name]
    os.environ.update(left)


def inherited() -> dict[str, str]:
    """Return this process's environment, as programs in a worktree inherit it."""
    return {name: text for name, text in os.environ.items() if name not in NOT_FOR_WORKTREES}


# --- spawns --------------------------------------------------------------------------------------
# Start of a program: found as a shell finds it, the first of a process group of its own.


DEFAULT_SIGNALS = (
    signal.SIGPIPE,  # Python ignores these two
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGCHLD,
)
"""Signals that a worker handles or ignores, and that the programs it starts do not."""


def spawn_found(
    argv: list[bytes], environment: Mapping[bytes, bytes], actions: Sequence[tuple[int, ...]]
) -> int:
    """Start a program as ``spawn_in_group`` does; a file without ``#!`` is run by a shell. Raises
    ``OSError``."""
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

    Signals are set as for any program that a shell starts. Returns the pid; raises ``OSError``.
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
    """Return a program's path and remember it, as a shell does: each folder searched would cost an
    ``execve``.

    Raises ``FileNotFoundError``, which is not remembered.
    """
    for folder in path.split(b":"):
        candidate = (folder or b".") + b"/" + program
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):  # noqa: PTH112
            return candidate
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
