"""People who stand in an attempt's worktree: with a shell there, or with the agent's own session.

As long as one stands there, the worktree is not touched and its issue is not handed out. A process
is taken for a person's if its working directory is in the worktree, it runs as this user, and it is
no part of an attempt of this project (``within_attempt``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from beads_workers.core.base.model import value
from beads_workers.core.base.text import printable
from beads_workers.runtime import within_attempt
from beads_workers.runtime.kernel import system

PASSING_SECONDS = 0.3
"""A program that somebody calls for this folder, like ``git status``, is gone by then."""

NAME_WIDTH = 30


@value
class Occupant:
    """A process of a person in a folder, and the name of its program."""

    pid: int
    name: str


def occupants(folder: str, state_directory: Path) -> list[Occupant]:
    """Return the processes of people in this folder or below it, the oldest first; this process is
    none of them."""
    return [
        Occupant(pid, _name(pid))
        for pid in sorted(standing(folder), key=_started)
        if not within_attempt.is_within(state_directory, pid)
    ]


def standing(folder: str) -> list[int]:
    """Return the processes in this folder or below it, whether of people or of an attempt."""
    root = os.path.realpath(folder)
    return [pid for pid in _pids() if _is_in(pid, root)]


def staying(folder: str, state_directory: Path) -> list[Occupant]:
    """Return the occupants who do not only pass by."""
    if not occupants(folder, state_directory):
        return []
    time.sleep(PASSING_SECONDS)
    return occupants(folder, state_directory)


def described(found: list[Occupant]) -> str:
    """Return ``pid 123, bash``, and how many more there are."""
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return f"pid {found[0].pid}, {printable(found[0].name, NAME_WIDTH)}{more}"


def _pids() -> Iterator[int]:
    """Yield the other processes of this user."""
    us, user = os.getpid(), os.getuid()
    for pid in system.pids():
        with suppress(OSError):  # It has ended.
            if pid != us and system.user_of(pid) == user:
                yield pid


def _is_in(pid: int, root: str) -> bool:
    try:
        place = system.folder_of(pid)
    except OSError:
        return False  # It has ended, or is not ours to look at.
    return place == root or place.startswith(f"{root}/")


def _started(pid: int) -> tuple[int, int]:
    """Return the order of processes: when each began, in clock ticks since boot."""
    stat = system.stat_of(pid)
    return stat.started if stat is not None else 0, pid


def _name(pid: int) -> str:
    try:
        return system.name_of(pid)
    except OSError:
        return "it has just ended"


# --- the wait for them to leave -------------------------------------------------------------------
# The kernel tells nobody that a process changes its directory. So the processes that were seen are
# looked at, one ``readlink`` each; all processes only once those have left.


class Departures:
    """Tells when the last person has left a folder."""

    def __init__(self, state_directory: Path) -> None:
        self._state_directory = state_directory
        self._awaited: dict[str, tuple[str, Callable[[], None], list[int]]] = {}
        """By issue: the folder, what to call, and the pids that were last seen there."""

    def watch(self, issue_id: str, folder: str, left: Callable[[], None]) -> None:
        """Call ``left`` once nobody stands in the folder any more, from ``tick``."""
        self._awaited[issue_id] = os.path.realpath(folder), left, []

    def tick(self) -> None:
        """Look whether they have left. Called every other second."""
        for issue_id, (folder, left, pids) in list(self._awaited.items()):
            if any(_is_in(pid, folder) for pid in pids):
                continue
            seen = [each.pid for each in occupants(folder, self._state_directory)]
            if seen:
                self._awaited[issue_id] = folder, left, seen
            else:
                del self._awaited[issue_id]
                left()
