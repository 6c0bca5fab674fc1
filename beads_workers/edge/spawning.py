"""How a program is started: found as a shell finds it, the first of a process group of its own."""

from __future__ import annotations

import errno
import functools
import os
import signal
from collections.abc import Mapping, Sequence

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
