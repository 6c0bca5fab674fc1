"""Orphans of tasks come to us: the kernel gives them to the nearest subreaper above them.

Source: docs/PROTOCOL.md, "Attempts". A task that double-forks, calls ``setsid`` and clears its
environment carries no mark of ours, but it cannot choose its parent: when the one it has dies, it
becomes a child of its worker, or of the zygote when that is dead. Children that are not reaped
keep their pids, so a signal to them can hit nobody else.
"""

from __future__ import annotations

import functools
import os
import select
import signal
from collections.abc import Callable, Collection, Iterator

PR_SET_CHILD_SUBREAPER = 36
ROUNDS_MAX = 20
"""Generations of children: each one dead makes the next one ours."""
DIES_SECONDS = 1.0
"""After KILL a process is gone at once, unless the kernel itself holds it (a dead disk)."""


def adopt() -> bool:
    """Become the parent of whatever is orphaned below this process; not inherited by a fork.

    False where the kernel refuses: then sessions and the token are all there is to go by.
    """
    try:
        return _prctl()(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


@functools.cache
def _prctl() -> Callable[..., int]:
    """Costs as much as a fork of a hundred workers: the zygote pays it for all."""
    import ctypes

    found: Callable[..., int] = ctypes.CDLL(None).prctl
    return found


def reap(keep: Collection[int]) -> None:
    """Bury orphans that have ended; ``keep``: children that somebody else waits for."""
    for pid in _children():
        if pid not in keep:
            _bury(pid)


def end(keep: Collection[int]) -> int:
    """KILL every child but ``keep``, and their children as they become ours; how many."""
    ended: set[int] = set()
    for _ in range(ROUNDS_MAX):
        found = [pid for pid in _children() if pid not in keep and pid not in ended]
        if not found:
            break
        for pid in found:
            ended.add(pid)
            _end(pid)
    return len(ended)


def _end(pid: int) -> None:
    descriptor = os.pidfd_open(pid)  # A child of ours that is not reaped: it is there.
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(DIES_SECONDS * 1000)
    except PermissionError:
        pass  # Another user's by its own doing (sudo): beyond our reach.
    finally:
        os.close(descriptor)
    _bury(pid)


def _bury(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass


def _children() -> list[int]:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []  # None at all, which is the rule and costs no look at /proc.
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return list(_children_by_parent(os.getpid()))  # A kernel without that list.


def _children_by_parent(parent: int) -> Iterator[int]:
    for name in [entry.name for entry in os.scandir("/proc")]:
        if name.isdigit() and _parent_of(name) == parent:
            yield int(name)


def _parent_of(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return 0
    return int(stat[stat.rfind(b")") + 2 :].split()[1])
