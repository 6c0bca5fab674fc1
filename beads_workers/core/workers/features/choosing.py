"""PRIORITY: a worker says which tasks it accepts."""

from __future__ import annotations

from beads_workers.core.base.wire import Priority
from beads_workers.core.schedule.connection_registry import Connection
from beads_workers.core.workers.features import Feature


class Choosing(Feature):
    """Keeps which tasks each worker accepts."""

    messages = (Priority,)

    def handle(self, connection: Connection, message: Priority) -> None:
        """Note which tasks a worker accepts from now on."""
        if connection.ready and not connection.abilities.priority:
            self._sender.note_stray(connection, "said PRIORITY, which it has not announced")
            return
        connection.wants = None if message == Priority() else message
        self._scheduler.note_free(connection)
        self._serve(connection)
