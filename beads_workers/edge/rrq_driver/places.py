"""Where an executor is to listen: a Unix socket below the run, or a port of this machine."""

from __future__ import annotations

import errno
import os
import socket

UNIX_PATH_BYTES_MAX = 107
"""What the kernel's address of a Unix socket holds, without the zero behind it."""
LOOPBACK = "127.0.0.1"
REACH_SECONDS = 1.0
"""Connecting takes microseconds here, but for a process whose queue is full."""

Address = str | tuple[str, int]
"""A path, or a host and a port."""


class SocketFolder:
    """Nobody else may reach into it. It is the run's, and goes with that, whoever is killed."""

    def __init__(self, run_directory: str, worker_id: str) -> None:
        self._prefix = worker_id
        self._folder = f"{run_directory}/executors"
        os.makedirs(self._folder, 0o700, exist_ok=True)  # noqa: PTH103
        self._opened = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def unix(self, name: str, number: int) -> str:
        """A path that is short enough, and holds while this process lives; nothing is there."""
        path = self._path(self._folder, name, number)
        if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
            # The same folder by another name, which is short however far down it lies.
            path = self._path(f"/proc/{os.getpid()}/fd/{self._opened}", name, number)
        if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        _remove(path)
        return path

    def log(self, name: str) -> str:
        """Where what the executor prints is kept."""
        return f"{self._folder}/{name}.{self._prefix}.log"

    def close(self) -> None:
        """It is not needed any more."""
        os.close(self._opened)

    def _path(self, folder: str, name: str, number: int) -> str:
        return f"{folder}/{name}.{self._prefix}.{number}.sock"


def tcp() -> tuple[str, int]:
    """A loopback port that is free now; who takes it meanwhile has the executor end, and start
    anew."""
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        return LOOPBACK, int(found.getsockname()[1])


def reach(address: Address) -> socket.socket:
    """A connection; raises ``OSError``. Takes ``REACH_SECONDS`` at most."""
    unix = isinstance(address, str)
    connection = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
    try:
        connection.settimeout(REACH_SECONDS)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def begin(address: Address) -> socket.socket:
    """A connection that does not block; over TCP one that may still have to come to stand.

    Raises ``BlockingIOError`` where so many connect at once that another one has to come back, and
    ``OSError``.
    """
    unix = isinstance(address, str)
    connection = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
    connection.setblocking(False)
    if not unix:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    failed = connection.connect_ex(address)
    if failed not in (0, errno.EINPROGRESS):
        connection.close()
        raise OSError(failed, os.strerror(failed))
    return connection


def forget(address: Address | None) -> None:
    """What a dead executor has left of its address."""
    if isinstance(address, str):
        _remove(address)


def _remove(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:
        pass
