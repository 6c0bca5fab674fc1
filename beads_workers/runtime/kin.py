"""Processes that foreign workers have started: noted while the workers live, awaited afterwards.

Source: docs/SEMANTICS.md, "Connection loss". They are not our children and carry no token of ours.
They are known by the process that started them, by their session and process group, and by the
fleet and the issue in their environment. They are never sent a signal.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from beads_workers.core.schedule.events import Event, Warned
from beads_workers.runtime import sessions


def variables(socket: str) -> tuple[str, ...]:
    """Return the environment entries that name the fleet listening there; one of them is enough."""
    pid = Path(socket).stem.rpartition("-")[2]
    return (f"BW_SOCKET={socket}", f"ORCHESTRATOR_PID={pid}") if socket else ()


def outlives(pid: int, started: int, issue_id: str, socket: str) -> bool:
    """Return whether a worker of an earlier fleet, or a process it started for the issue, lives
    on."""
    if sessions.lives(pid, started):
        return True
    return bool(sessions.kin(pid, {}, {f"BW_ISSUE_ID={issue_id}"}, variables(socket)))


@dataclass(slots=True)
class _Watched:
    """A worker whose end is awaited. ``outlived``: pids of the processes that outlive it, once
    known."""

    gone: Callable[[], None]
    issues: set[str] = field(default_factory=set)
    outlived: tuple[int, ...] = ()
    reported: bool = False


class Kin:
    """Watcher of processes of foreign workers. ``sockets``: that of this fleet, and those of
    earlier fleets whose issues it may inherit."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        tell: Callable[[Event], None],
        sockets: Iterable[str],
    ) -> None:
        self._selector = selector
        self._tell = tell
        self._fleet = [entry for socket in sockets for entry in variables(socket)]
        self._noted: dict[int, dict[int, int]] = {}
        """Pids and start times of the processes that a worker has started, by the pid of the
        worker."""
        self._watched: dict[int, _Watched] = {}
        self._later: list[tuple[int, Callable[[], None]]] = []
        """Pids that could not be watched for lack of a descriptor, and what to call at the end of
        each."""

    def note(self, pid: int) -> None:
        """Note the living processes that this worker has started."""
        before = self._noted.get(pid, {}).items()
        lives = {each: started for each, started in before if sessions.lives(each, started)}
        self._noted[pid] = lives | {p.pid: p.started for p in sessions.descendants(pid)}

    def watch(self, pid: int, started: int, issue_id: str, gone: Callable[[], None]) -> None:
        """Call ``gone`` once this process, and the processes it started for the issue, have ended.

        ``started``: start time of the process; another one under its pid is not meant. 0: the
        process lives, or has just ended.
        """
        known = self._watched.get(pid)
        if known is not None:
            known.issues.add(issue_id)
            return
        self._watched[pid] = _Watched(gone, {issue_id})
        if started and not sessions.lives(pid, started):
            self._look(pid)
            return
        self.note(pid)
        self._wait(pid, partial(self._look, pid))

    def tick(self, busy: Collection[int]) -> None:
        """Note what busy workers have started, report processes that outlive their worker, and
        retry what could not be watched. Called every other second."""
        for pid in self._noted.keys() - self._watched.keys() - {*busy}:
            del self._noted[pid]
        for pid in busy:
            self.note(pid)
        later, self._later = self._later, []
        for pid, ended in later:
            self._wait(pid, ended)
        for pid, watched in self._watched.items():
            if watched.outlived and not watched.reported:
                watched.reported = True
                issues, pids = (
                    " ".join(sorted(watched.issues)),
                    ", ".join(map(str, watched.outlived)),
                )
                text = f"{issues}: its worker (pid {pid}) is gone, what it started lives on: {pids}"
                self._tell(Warned(text))

    def _wait(self, pid: int, ended: Callable[[], None]) -> None:
        try:
            sessions.watch_exit(self._selector, pid, ended)
        except OSError:
            self._later.append((pid, ended))

    def _look(self, pid: int) -> None:
        """Handle the end of the worker, or of a process that it had started."""
        watched = self._watched[pid]
        entries = {f"BW_ISSUE_ID={issue_id}" for issue_id in watched.issues}
        left = sessions.kin(pid, self._noted.get(pid, {}), entries, self._fleet)
        if left:
            watched.outlived = tuple(sorted(left))
            self._wait(watched.outlived[0], partial(self._look, pid))
            return
        del self._watched[pid]
        self._noted.pop(pid, None)
        watched.gone()
