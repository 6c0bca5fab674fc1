"""Our worker processes, seen from the loop: a zygote forks them, and is replaced if it dies."""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Callable

from beads_workers.core.events import Event, WorkerReaped, WorkerSpawned
from beads_workers.core.settings import WorkerSettings
from beads_workers.edge import sessions
from beads_workers.edge.zygote import WorkerExited, Zygote


class Nursery:
    """``settings_for`` says what a worker of that id is told. Made before any thread exists."""

    def __init__(self, start_zygote: Callable[[], Zygote]) -> None:
        self._start_zygote = start_zygote
        self._zygote = start_zygote()
        self._asked_for: list[str] = []
        self._living: dict[int, str] = {}
        self._orphans: dict[int, int] = {}
        self._selector: selectors.BaseSelector
        self._tell: Callable[[Event], None]
        self._settings_for: Callable[[str], WorkerSettings]

    def attach(
        self,
        selector: selectors.BaseSelector,
        tell: Callable[[Event], None],
        settings_for: Callable[[str], WorkerSettings],
    ) -> None:
        """Connect it with the loop."""
        self._selector, self._tell, self._settings_for = selector, tell, settings_for
        self._register()

    def spawn(self, worker_id: str) -> None:
        """Ask for a worker; ``WorkerSpawned`` follows."""
        if self._zygote.closed:
            self._replace()
        self._asked_for.append(worker_id)
        self._zygote.spawn(self._settings_for(worker_id))

    def kill(self, pid: int) -> None:
        """KILL a worker and its session; ``WorkerReaped`` follows."""
        if pid in self._orphans:
            signal.pidfd_send_signal(self._orphans[pid], signal.SIGKILL)
        else:
            self._zygote.kill(pid, signal.SIGKILL)

    def read(self) -> None:
        """Take in what the zygote reports; called before a connection is accepted, too."""
        for event in self._zygote.read_events():
            if isinstance(event, WorkerExited):
                self._living.pop(event.pid, None)
                self._tell(WorkerReaped(event.worker_id, event.pid, _shell_status(event.status)))
            else:
                self._living[event.pid] = event.worker_id
                self._asked_for.remove(event.worker_id)
                self._tell(WorkerSpawned(event.worker_id, event.pid))
        if self._zygote.closed:
            self._replace()

    def close(self) -> None:
        """The zygote exits when its workers have."""
        self._selector.unregister(self._zygote.socket)
        self._zygote.close()

    def _register(self) -> None:
        self._selector.register(self._zygote.socket, selectors.EVENT_READ, lambda mask: self.read())

    def _replace(self) -> None:
        """The zygote died: its workers live on, and are watched by their own descriptors."""
        self._selector.unregister(self._zygote.socket)
        self._zygote.socket.close()
        self._zygote.reap()
        for pid, worker_id in self._living.items():
            self._adopt(pid, worker_id)
        self._living.clear()
        self._zygote = self._start_zygote()
        self._register()
        # Whom the dead one had not reported, it never told of: the core still waits for them.
        for worker_id in self._asked_for:
            self._zygote.spawn(self._settings_for(worker_id))

    def _adopt(self, pid: int, worker_id: str) -> None:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._clear_up(pid, worker_id)
            self._tell(WorkerReaped(worker_id, pid, 1))
            return
        self._orphans[pid] = fd

        def ended(mask: int) -> None:
            self._selector.unregister(fd)
            os.close(self._orphans.pop(pid))
            self._clear_up(pid, worker_id)
            self._tell(WorkerReaped(worker_id, pid, 1))

        self._selector.register(fd, selectors.EVENT_READ, ended)

    def _clear_up(self, pid: int, worker_id: str) -> None:
        """What its zygote would have done: end what a dead worker left behind."""
        run_id = self._settings_for(worker_id).run_id
        sessions.kill_sessions({pid}, run_id, {worker_id})


def _shell_status(status: int) -> int:
    return status if status >= 0 else 128 - status
