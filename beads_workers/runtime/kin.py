"""The processes that workers of others have started: noted while those live, waited for after.

Source: docs/SEMANTICS.md, "Connection loss". They are no children of ours and carry no token of
ours. They are known by who has started them, by their session and process group, and by the fleet
and the issue in their environment. None of them is ever sent a signal. Linux: reads /proc.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from beads_workers.core.events import Event, Warned
from beads_workers.runtime import sessions


def variables(socket: str) -> tuple[str, ...]:
    """The entries of an environment of which one names the fleet that listens there."""
    pid = Path(socket).stem.rpartition("-")[2]
    return (f"BW_SOCKET={socket}", f"ORCHESTRATOR_PID={pid}") if socket else ()


def outlives(pid: int, started: int, issue_id: str, socket: str) -> bool:
    """Whether a worker of an earlier fleet lives on, or what it had started for an issue."""
    if sessions.lives(pid, started):
        return True
    return bool(sessions.kin(pid, {}, {f"BW_ISSUE_ID={issue_id}"}, variables(socket)))


@dataclass(slots=True)
class _Watched:
    """A worker whose end is waited for. ``outlived``: by whom, once that is known."""

    gone: Callable[[], None]
    issues: set[str] = field(default_factory=set)
    outlived: tuple[int, ...] = ()
    told: bool = False


class Kin:
    """``sockets``: of this fleet, and of those before it whose issues it may inherit."""

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
        """By the pid of a worker: pids and start times of what it has started."""
        self._watched: dict[int, _Watched] = {}
        self._later: list[tuple[int, Callable[[], None]]] = []
        """What could not be watched for lack of a descriptor."""

    def note(self, pid: int) -> None:
        """See what this worker has started that lives now."""
        before = self._noted.get(pid, {}).items()
        lives = {each: started for each, started in before if sessions.lives(each, started)}
        self._noted[pid] = lives | {p.pid: p.started for p in sessions.descendants(pid)}

    def watch(self, pid: int, started: int, issue_id: str, gone: Callable[[], None]) -> None:
        """Call ``gone`` once this process, and what it has started for the issue, have ended.

        ``started``: another one under its pid is not meant; 0: it lives, or has just ended."""
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
        """Every other second: see what these workers have started, say what outlives another, and
        watch what could not be watched."""
        for pid in self._noted.keys() - self._watched.keys() - {*busy}:
            del self._noted[pid]
        for pid in busy:
            self.note(pid)
        later, self._later = self._later, []
        for pid, ended in later:
            self._wait(pid, ended)
        for pid, watched in self._watched.items():
            if watched.outlived and not watched.told:
                watched.told = True
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
        """The worker, or one that it had started, has ended."""
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
