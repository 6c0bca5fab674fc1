"""PROGRESS, LOG and STATUS: reports of a worker on its task and itself, shown as they come."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.model import value
from beads_workers.core.base.throttled_messages import Asides
from beads_workers.core.base.wire import Aside, Progress, Status, StatusAsked
from beads_workers.core.records.journal import AsideHeard, StatusHeard
from beads_workers.core.schedule.connection_registry import HAS_TASK, Connection
from beads_workers.core.schedule.events import ConnId, StatusWanted
from beads_workers.core.workers.features import Feature


@value
class AsideDue:
    """Timer key: time at which a worker's next report may be shown."""

    conn_id: ConnId


class Telling(Feature):
    """Shows the reports of workers on their tasks and themselves."""

    messages = (Aside, Status)
    requests = (StatusWanted,)

    def __init__(self, *around: Any) -> None:
        super().__init__(*around)
        self._asked_status = -math.inf
        self._asides: defaultdict[ConnId, Asides] = defaultdict(Asides)

    def left(self, connection: Connection) -> None:
        """Forget the connection: there is nothing more to show."""
        self._timers.cancel(AsideDue(connection.conn_id))
        self._asides.pop(connection.conn_id, None)

    def is_due(self, key: Hashable) -> bool:
        """Show the reports that have gathered."""
        if isinstance(key, AsideDue):
            self._tell(key.conn_id)
        return isinstance(key, AsideDue)

    def asked(self, event: StatusWanted) -> None:
        """Ask the workers that answer STATUS, unless they were asked just now."""
        if self._effects.now - self._asked_status < limits.STATUS_SECONDS:
            return
        self._asked_status = self._effects.now
        for connection in self._registry:
            if connection.abilities.status and connection.worker_id:
                self._sender.say(connection, StatusAsked())

    def handle(self, connection: Connection, message: Aside | Status) -> None:
        """Take in a report of a worker on its task or itself."""
        if isinstance(message, Aside):
            self._heard_of_task(connection, message)
        elif not self.stray(connection, message):
            self._keep(connection, message)

    def _heard_of_task(self, connection: Connection, message: Aside) -> None:
        has_it = message.issue_id == connection.issue_id and connection.state in HAS_TASK
        if not connection.abilities.additions or not has_it:
            kind, issue_id = type(message).__name__.upper(), message.issue_id[:80]
            self._sender.note_stray(connection, f"said {kind} of {issue_id!r}, which it has not")
            return
        in_flight = self._sender.in_flight(connection)
        if in_flight is not None and isinstance(message, Progress) and message.reached:
            in_flight.reached = message.reached
        if isinstance(message, Progress) and message.tokens is not None:
            self._parts.preparation.works()
        self._keep(connection, message)

    def _keep(self, connection: Connection, message: Aside | Status) -> None:
        self._asides[connection.conn_id].add(message)
        self._tell(connection.conn_id)

    def _tell(self, conn_id: ConnId) -> None:
        """Show what a worker says of its task, no more often than allowed."""
        connection = self._registry.get(conn_id)
        assert connection is not None, "its timer goes with it"
        asides = self._asides[conn_id]
        for message in asides.take(self._effects.now):
            if isinstance(message, Status):
                self._effects.write(StatusHeard(connection.worker_id, message))
            elif message.issue_id == connection.issue_id:
                self._effects.write(AsideHeard(connection.worker_id, message))
                if isinstance(message, Progress):
                    self._parts.agents.add_progress(message.issue_id, message)
        if (due := asides.deadline()) is not None:
            self._timers.set(AsideDue(conn_id), due)
