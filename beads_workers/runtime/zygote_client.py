"""Our worker processes, seen from the loop: a zygote forks them, and is replaced if it dies."""

from __future__ import annotations

import math
import os
import selectors
import signal
import time
from collections.abc import Callable
from typing import assert_never

from beads_workers.core.base.model import value
from beads_workers.core.base.settings import WorkerSettings
from beads_workers.core.schedule import events as ev
from beads_workers.runtime import sessions
from beads_workers.runtime.kernel import system
from beads_workers.runtime.zygote import ChildExited, WorkerRefused, Zygote, ZygoteEvent
from beads_workers.runtime.zygote import ChildSpawned as Spawned

ANSWER_SECONDS = 5.0
"""Seconds for an answer of the zygote, which takes milliseconds; later it is frozen, and is
replaced."""

FILL_AGAIN_SECONDS = 1.0

EARLY_SECONDS = 1.0
EARLY_ENDS_MAX = 10
EARLY_DELAY_SECONDS = 0.1
"""A zygote has failed if it ends within a second of its start, or with a request unanswered. The
first in a row is replaced at once (somebody killed it), the others after delays that double. The
tenth, after half a minute at least, ends the run."""

WHAT = "starting workers"
"""Name of this condition for people."""


@value
class _Member:
    """A living worker. ``started``: with the pid, this process and no other."""

    worker_id: str
    started: int


class ZygoteClient:
    """Client of the zygote. ``zygote`` is the first one; ``start_zygote`` makes another if it has
    died.

    While there is no zygote, no worker waits for one: each request is answered
    ``WorkerNotStarted``.
    """

    def __init__(self, zygote: Zygote, start_zygote: Callable[[], Zygote]) -> None:
        self._zygote = zygote
        self._start_zygote = start_zygote
        self._began = time.monotonic()
        self._early_ends = 0
        self._not_before = 0.0
        self._unburied: list[Zygote] = []
        self._asked_for: list[str] = []
        self._living: dict[int, _Member] = {}
        self._orphans: dict[int, int] = {}
        self._to_kill: set[int] = set()
        self._unanswered_since: float | None = None
        self._vacant_until: float | None = None
        """When to try a new zygote (monotonic seconds); None: there is a zygote."""
        self._why_vacant = ""
        self._selector: selectors.BaseSelector
        self._tell: Callable[[ev.Event], None]
        self._settings_for: Callable[[str], WorkerSettings]

    def attach(
        self,
        selector: selectors.BaseSelector,
        tell: Callable[[ev.Event], None],
        settings_for: Callable[[str], WorkerSettings],
    ) -> None:
        """Connect the client with the loop; ``settings_for`` returns the settings of a worker
        id."""
        self._selector, self._tell, self._settings_for = selector, tell, settings_for
        self._register()

    def spawn(self, worker_id: str) -> None:
        """Ask for a worker; ``WorkerSpawned`` or ``WorkerNotStarted`` follows."""
        if self._vacant_until is not None:
            self._tell(ev.WorkerNotStarted(worker_id, self._why_vacant))
            return
        self._asked_for.append(worker_id)
        if self._zygote.closed:
            self._replace()  # The new zygote is asked for every worker that was not answered.
            return
        self._zygote.spawn(self._settings_for(worker_id))
        self._expect()

    def is_ours(self, pid: int) -> bool:
        """Return whether this is the pid of a worker that was started here."""
        return pid in self._living or pid in self._orphans

    def kill(self, pid: int) -> None:
        """KILL a worker and its session; ``WorkerReaped`` follows."""
        if pid in self._orphans:
            _kill(self._orphans[pid])
        else:
            self._to_kill.add(pid)
            if self._vacant_until is None:
                self._zygote.kill(pid, signal.SIGKILL)
                self._expect()

    def deadline(self) -> float | None:
        """Return when ``tick`` is due (monotonic seconds); None: never."""
        if self._vacant_until is not None:
            return self._vacant_until
        since = self._unanswered_since
        return None if since is None else since + ANSWER_SECONDS

    def tick(self, now: float) -> None:
        """Replace a zygote that does not answer (somebody froze it); its workers live on."""
        if self._unburied:
            self._bury()
        deadline = self.deadline()
        if deadline is None or now < deadline:
            return
        if self._vacant_until is not None:
            self._fill(now)
            return
        self.read()
        if self._unanswered_since is not None and now >= self._unanswered_since + ANSWER_SECONDS:
            self._unanswered_since = None
            self._zygote.put_down()

    # --- inside -------------------------------------------------------------------------------

    def _expect(self) -> None:
        if self._unanswered_since is None:
            self._unanswered_since = time.monotonic()

    def read(self) -> None:
        """Handle the zygote's reports; also called before a connection is accepted."""
        if self._vacant_until is not None:
            return
        events = self._zygote.read_events()
        for event in events:
            self._take_in(event)
        if events:
            awaiting = self._asked_for or self._to_kill
            self._unanswered_since = time.monotonic() if awaiting else None
        if self._zygote.closed:
            self._replace()

    def _take_in(self, event: ZygoteEvent) -> None:
        match event:
            case ChildExited(worker_id, pid, status):
                self._living.pop(pid, None)
                self._to_kill.discard(pid)
                self._tell(ev.WorkerReaped(worker_id, pid, status if status >= 0 else 128 - status))
            case Spawned(worker_id, pid, started):
                self._living[pid] = _Member(worker_id, started)
                self._asked_for.remove(worker_id)
                self._tell(ev.WorkerSpawned(worker_id, pid))
                self._works()
            case WorkerRefused(worker_id, error):
                self._asked_for.remove(worker_id)
                self._tell(ev.WorkerNotStarted(worker_id, error))
                self._works()
            case _:
                assert_never(event)

    def close(self) -> None:
        """Close the connection; the zygote exits when its workers have."""
        if self._vacant_until is None:
            self._selector.unregister(self._zygote.socket)
            self._zygote.close()

    def _register(self) -> None:
        self._selector.register(self._zygote.socket, selectors.EVENT_READ, lambda mask: self.read())

    def _replace(self) -> None:
        """Replace a dead zygote: its workers live on, and are watched by their own descriptors."""
        if self._vacant_until is not None:
            return
        now = time.monotonic()
        self._selector.unregister(self._zygote.socket)
        self._zygote.socket.close()
        # A zygote that only stopped reading would kill workers that are no longer its own.
        self._zygote.put_down()
        self._unburied.append(self._zygote)
        self._bury()
        self._unanswered_since = None
        if self._asked_for or now < self._began + EARLY_SECONDS:
            self._failed(now)
        else:
            self._works()
        self._fill(now)

    def _bury(self) -> None:
        """Reap dead zygotes; a zygote's socket closes a moment before its process ends."""
        self._unburied = [zygote for zygote in self._unburied if not zygote.reap()]

    def _works(self) -> None:
        if self._early_ends > 1:
            self._tell(ev.ConditionRecovered(WHAT))
        self._early_ends, self._not_before = 0, 0.0

    def _failed(self, now: float) -> None:
        self._early_ends += 1
        if self._early_ends == 1:
            return
        ended = f"the process that forks them ended {self._early_ends} times in a row at its start"
        text = f"workers cannot be started: {ended}"
        log = f"{self._settings_for('W1').run_directory}/orchestrator.log"
        if self._early_ends < EARLY_ENDS_MAX:
            self._not_before = now + EARLY_DELAY_SECONDS * 2.0 ** (self._early_ends - 2)
            self._tell(ev.Degraded(WHAT, text, f"tail {log}", stops=False))
        else:
            self._not_before = math.inf
            self._tell(ev.FatalError(f"{text}; see {log}"))

    def _fill(self, now: float) -> None:
        try:
            for pid in list(self._living):
                self._adopt(pid, self._living[pid])
                del self._living[pid]
            zygote = self._start_zygote() if now >= self._not_before else None
        except OSError as error:
            # Adopted workers stay adopted; the others follow when there is room.
            self._vacate(now + FILL_AGAIN_SECONDS, error.strerror or str(error))
            return
        if zygote is None:
            self._vacate(self._not_before, "the process that forks workers ended at its start")
            return
        self._zygote, self._vacant_until, self._began = zygote, None, now
        self._register()
        # The dead zygote never reported these: the core still waits for them.
        for worker_id in self._asked_for:
            self._zygote.spawn(self._settings_for(worker_id))
            self._expect()

    def _vacate(self, until: float, why: str) -> None:
        self._vacant_until, self._why_vacant = until, why
        # The core asks again, at its own pace; and a stop need not wait for these workers.
        refused, self._asked_for = self._asked_for, []
        for worker_id in refused:
            self._tell(ev.WorkerNotStarted(worker_id, why))

    def _adopt(self, pid: int, member: _Member) -> None:
        fd = _opened(pid, member.started)
        if fd is None:
            self._gone(pid, member)
            return
        self._orphans[pid] = fd

        def ended(mask: int) -> None:
            self._selector.unregister(fd)
            os.close(self._orphans.pop(pid))
            self._gone(pid, member)

        self._selector.register(fd, selectors.EVENT_READ, ended)
        if pid in self._to_kill:
            _kill(fd)

    def _gone(self, pid: int, member: _Member) -> None:
        """Do what the zygote would have done: kill what a dead worker left behind, and report its
        end."""
        self._to_kill.discard(pid)
        run_id = self._settings_for(member.worker_id).run_id
        now = sessions.read_process(pid)
        # A session's number is not given out again, but only while the session has members.
        reused = now is not None and now.started != member.started
        sessions.kill_sessions(() if reused else {pid}, run_id, {member.worker_id})
        self._tell(ev.WorkerReaped(member.worker_id, pid, 1))


def _kill(pidfd: int) -> None:
    try:
        system.send(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        pass  # It has ended; its descriptor reports that in this turn or the next.


def _opened(pid: int, started: int) -> int | None:
    """Return a descriptor of exactly this process; None if it has ended."""
    try:
        fd = system.exit_descriptor(pid)
    except ProcessLookupError:
        return None
    if not sessions.lives(pid, started):
        os.close(fd)
        return None
    return fd
