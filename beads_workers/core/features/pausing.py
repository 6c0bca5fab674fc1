"""PAUSE and RESUME: a worker that is sent nothing new, because a person or it itself wants that."""

from __future__ import annotations

from beads_workers.core.features import Feature
from beads_workers.core.journal import WorkerPaused, WorkerResumed
from beads_workers.core.sender import Overdue
from beads_workers.core.sessions import Connection
from beads_workers.core.states import RunState
from beads_workers.core.wire import REVOKED, Pause, Resume

BY_HAND = "a person asked for it"
"""The reason of a pause that needs no explanation."""


class Pausing(Feature):
    """Who is sent nothing new, because a person or the worker itself wants that."""

    messages = (Pause, Resume)

    def heard(self, connection: Connection, message: Pause | Resume) -> None:
        """It pauses itself, or wants work again."""
        if self.stray(connection, message):
            return
        reason = message.reason or "it asks for nothing" if isinstance(message, Pause) else ""
        self._change(connection, reason, by_itself=isinstance(message, Pause))

    def joined(self, connection: Connection) -> None:
        """A new process under the id of one that a person has paused is paused, too."""
        names = {connection.worker_id, connection.worker_id.partition(".")[0]}
        if not self._registry.held.isdisjoint(names):
            self._change(connection, BY_HAND, by_person=True)

    def announced(self, connection: Connection) -> None:
        """It may understand PAUSE now."""
        if connection.pause.by_person:
            self._tell_pause(connection, BY_HAND)

    def left(self, connection: Connection) -> None:
        """Another one may be called so."""
        if not connection.own:
            self._registry.held.discard(connection.worker_id)

    def hold(self, worker_id: str) -> bool:
        """A person pauses this worker; False where there is none."""
        found = self._registry.of_worker(worker_id)
        if not found and worker_id not in self._parts.supervisor.members:
            return False
        self._registry.held.add(worker_id)
        for connection in found:
            self._change(connection, BY_HAND, by_person=True)
        return True

    def let_go(self, worker_id: str) -> bool:
        """A person resumes it; False where there is none."""
        found = self._registry.of_worker(worker_id)
        self._registry.held.discard(worker_id)
        for connection in found:
            self._change(connection, by_person=False)
        return bool(found) or worker_id in self._parts.supervisor.members

    def requeue_if_all_paused(self) -> None:
        """Where every worker is paused, what is claimed and unsent is left to others."""
        runs = self._parts.state is RunState.RUNNING
        if runs and self._registry.idle_paused() and not self._parts.slots():
            self._tasks.requeue_unsent()

    def _change(
        self,
        connection: Connection,
        reason: str = "",
        *,
        by_person: bool | None = None,
        by_itself: bool | None = None,
    ) -> None:
        before = connection.is_paused
        if by_person is not None:
            connection.pause.by_person = by_person
        if by_itself is not None:
            connection.pause.by_itself = by_itself
        self._registry.pause(connection)
        if connection.pause.by_person:
            self._tell_pause(connection, reason)
        else:
            self._tell_resume(connection)
        if connection.is_paused is before:
            return
        if connection.is_paused:
            self._sender.wait_no_more(connection)
            self._effects.write(WorkerPaused(connection.worker_id, reason))
            self.requeue_if_all_paused()
        else:
            self._effects.write(WorkerResumed(connection.worker_id))
            self._scheduler.is_free(connection)
        self._scheduler.reschedule()
        self._serve(connection)

    def _tell_pause(self, connection: Connection, reason: str) -> None:
        """PAUSE: what is queued on it goes to others."""
        if not connection.abilities.pause or connection.pause.told:
            return
        connection.pause.told = True
        self._timers.cancel(Overdue(connection.conn_id))
        self._sender.say(connection, Pause(reason))
        for issue_id in connection.prefetched:
            self._sender.end_attempt(self._tasks.in_flight[issue_id], REVOKED)

    def _tell_resume(self, connection: Connection) -> None:
        """RESUME: the time of its task begins anew, as it may have been stopped."""
        if connection.pause.told:
            connection.pause.told = False
            self._sender.say(connection, Resume())
            if (in_flight := self._sender.in_flight(connection)) is not None:
                self._sender.watch(connection, in_flight)
