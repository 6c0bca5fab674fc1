"""PRIORITY: a worker says which tasks it takes."""

from __future__ import annotations

from beads_workers.core.features import Feature
from beads_workers.core.sessions import Connection
from beads_workers.core.wire import Priority


class Choosing(Feature):
    """Which tasks each worker takes."""

    messages = (Priority,)

    def heard(self, connection: Connection, message: Priority) -> None:
        """It says which tasks it takes from now on."""
        if connection.ready and not connection.abilities.priority:
            self._sender.note_stray(connection, "said PRIORITY, which it has not announced")
            return
        connection.wants = None if message == Priority() else message
        self._scheduler.is_free(connection)
        self._serve(connection)
