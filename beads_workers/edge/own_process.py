"""What orchestrator and workers do to their own process at its start: output, files, signals."""

from __future__ import annotations

import os
import resource
import signal
import socket
from collections.abc import Iterable
from pathlib import Path

OPEN_FILES_MAX = 65_536

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


def wake_on(signals: Iterable[int]) -> socket.socket:
    """From here on the numbers of these signals arrive here, one byte each, and do nothing else."""
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
    except BlockingIOError:
        return b""
