"""PAUSE and RESUME: a worker is sent nothing new, because a person or the worker wants that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.states import ConnState
from beads_workers.core.base.wire import REVOKED, Pause, Resume
from beads_workers.core.records.journal import PlaceHeard, WorkerPaused, WorkerResumed
from beads_workers.core.schedule.commands import Answer
from beads_workers.core.schedule.connection_registry import Connection, Pausing
from beads_workers.core.schedule.events import (
    BY_HAND,
    ConnId,
    PauseAsked,
    PlaceSeen,
    ResumeAsked,
    Ticket,
)
from beads_workers.core.workers.features import Feature
from beads_workers.core.workers.sender import Overdue


@dataclass(slots=True)
class Wishes:
    """The parties that want a worker paused."""

    by_person: bool = False
    by_itself: bool = False
    # Its place is not reached.
    by_place: bool = False
    # PAUSE was sent, and no RESUME since.
    pause_sent: bool = False


class PausingWorkers(Feature):
    """Pauses single workers: a person, or the worker itself, wants that."""

    messages = (Pause, Resume)
    requests = (PauseAsked, ResumeAsked, PlaceSeen)

    def __init__(self, *around: Any) -> None:
        super().__init__(*around)
        self._wishes: dict[ConnId, Wishes] = {}
        self._paused_ids: set[str] = set()
        """Ids of workers that a person has paused; a new process under such an id is paused too."""
        self._unreached: dict[str, str] = {}
        """Places that are not reached, and why."""

    def handle(self, connection: Connection, message: Pause | Resume) -> None:
        """Pause or resume a worker that asks for it."""
        if self.stray(connection, message):
            return
        reason = message.reason or "it asks for nothing" if isinstance(message, Pause) else ""
        self._change(connection, reason, by_itself=isinstance(message, Pause))

    def joined(self, connection: Connection) -> None:
        """Pause a new worker if a person has paused the worker id before."""
        names = {connection.worker_id, connection.worker_id.partition(".")[0]}
        if not self._paused_ids.isdisjoint(names):
            self._change(connection, BY_HAND, by_person=True)
        if why := self._unreached.get(self._place(connection), ""):
            self._change(connection, why, by_place=True)

    def announced(self, connection: Connection) -> None:
        """Send PAUSE to a paused worker that understands it now; restart the deadline of one that
        no longer does."""
        wishes = self._wishes.get(connection.conn_id)
        if wishes is not None:
            lost_ability = wishes.pause_sent and not connection.abilities.pause
            wishes.pause_sent = wishes.pause_sent and not lost_ability
            self._set_pause(connection, wishes)
            if wishes.by_person:
                self._tell_pause(connection, wishes, BY_HAND)
            if lost_ability:
                self._restart_deadline(connection)

    def left(self, connection: Connection) -> None:
        """Forget the connection: another worker may get its id."""
        self._wishes.pop(connection.conn_id, None)
        if not connection.own:
            self._paused_ids.discard(connection.worker_id)

    def _place(self, connection: Connection) -> str:
        return self._parts.supervisor.place_of(connection.pid)

    def _seen(self, event: PlaceSeen) -> None:
        """Give nothing new to the workers of a place that is not reached."""
        self._unreached[event.place] = event.why
        self._effects.write(PlaceHeard(event.place, event.seen))
        for connection in self._registry:
            if connection.worker_id and self._place(connection) == event.place:
                self._change(connection, event.why, by_place=bool(event.why))

    def asked(self, event: PauseAsked | ResumeAsked | PlaceSeen) -> None:
        """Pause some workers for a person, or resume these, or all; or hear of a place."""
        if isinstance(event, PlaceSeen):
            self._seen(event)
            return
        of_place = self._parts.supervisor.of_place
        named = [[m.worker_id for m in of_place(each)] or [each] for each in event.worker_ids]
        ids = tuple(worker_id for each in named for worker_id in each)
        if isinstance(event, PauseAsked):
            unknown = [each for each in dict.fromkeys(ids) if not self._pause_for_person(each)]
            self._answer(event.ticket, ids, "paused", unknown)
            return
        ids = ids or tuple(sorted(self._paused_ids))
        unknown = [each for each in dict.fromkeys(ids) if not self._let_go(each)]
        if event.worker_ids:
            self._answer(event.ticket, ids, "resumed", unknown)

    def _answer(
        self, ticket: Ticket, asked: tuple[str, ...], done: str, unknown: list[str]
    ) -> None:
        known = ", ".join(each for each in dict.fromkeys(asked) if each not in unknown)
        error = f"no such worker: {', '.join(unknown)}"[: limits.ERROR_CHARS_MAX]
        text, error = f"{done}: {known}" if known else "", error if unknown else ""
        self._effects.ask(Answer(ticket, text, error, not_found=bool(unknown)))

    def _pause_for_person(self, worker_id: str) -> bool:
        """Pause this worker for a person; return False if there is none."""
        found = self._registry.of_worker(worker_id)
        if not found and worker_id not in self._parts.supervisor.members:
            return False
        self._paused_ids.add(worker_id)
        for connection in found:
            self._change(connection, BY_HAND, by_person=True)
        return True

    def _let_go(self, worker_id: str) -> bool:
        """Resume this worker for a person; return False if there is none."""
        found = self._registry.of_worker(worker_id)
        self._paused_ids.discard(worker_id)
        for connection in found:
            self._change(connection, by_person=False)
        return bool(found) or worker_id in self._parts.supervisor.members

    def _change(
        self,
        connection: Connection,
        reason: str = "",
        *,
        by_person: bool | None = None,
        by_itself: bool | None = None,
        by_place: bool | None = None,
    ) -> None:
        was_paused = connection.pause is not None
        wishes = self._wishes.setdefault(connection.conn_id, Wishes())
        if by_person is not None:
            wishes.by_person = by_person
        if by_itself is not None:
            wishes.by_itself = by_itself
        if by_place is not None:
            wishes.by_place = by_place
        self._set_pause(connection, wishes)
        if wishes.by_person:
            self._tell_pause(connection, wishes, reason)
        else:
            self._tell_resume(connection, wishes)
        is_paused = connection.pause is not None
        if is_paused is was_paused:
            return
        if is_paused:
            self._sender.wait_no_more(connection)
            reserved = self._sender.in_flight(connection)
            if connection.state is ConnState.RESERVED and reserved is not None:
                self._sender.unreserve(reserved)
            self._effects.write(WorkerPaused(connection.worker_id, reason))
            self._scheduler.leave_to_others()
        else:
            self._effects.write(WorkerResumed(connection.worker_id))
            self._scheduler.note_free(connection)
        self._scheduler.reschedule()
        self._serve(connection)

    def _set_pause(self, connection: Connection, wishes: Wishes) -> None:
        paused = wishes.by_person or wishes.by_itself or wishes.by_place
        holds_ready = connection.abilities.pause or wishes.by_itself
        self._registry.pause(
            connection, Pausing(holds_ready, wishes.pause_sent) if paused else None
        )

    def _tell_pause(self, connection: Connection, wishes: Wishes, reason: str) -> None:
        """Send PAUSE; tasks that are queued on the worker go to others."""
        if not connection.abilities.pause or wishes.pause_sent:
            return
        wishes.pause_sent = True
        self._set_pause(connection, wishes)
        in_flight = self._sender.in_flight(connection)
        if in_flight is None or not in_flight.cancelled:
            self._timers.cancel(Overdue(connection.conn_id))
        self._sender.say(connection, Pause(reason))
        for issue_id in connection.prefetched:
            self._sender.end_attempt(self._tasks.in_flight[issue_id], REVOKED)

    def _tell_resume(self, connection: Connection, wishes: Wishes) -> None:
        """Send RESUME; the time of its task begins anew, because the task may have been stopped."""
        if wishes.pause_sent:
            wishes.pause_sent = False
            self._set_pause(connection, wishes)
            self._sender.say(connection, Resume())
            self._restart_deadline(connection)

    def _restart_deadline(self, connection: Connection) -> None:
        if (in_flight := self._sender.in_flight(connection)) is not None:
            self._sender.watch(connection, in_flight)
