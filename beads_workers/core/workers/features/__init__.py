"""Abilities of workers beyond version 1: each is a file here, and a row of ``table``.

``Connections`` hands a feature the messages that belong to it, and tells it what happens to a
connection; no other module names a feature. A message that no row hears is noted, and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from beads_workers.core.schedule.claims import ClaimScheduler
from beads_workers.core.schedule.connection_registry import Connection
from beads_workers.core.schedule.inflight import InFlight
from beads_workers.core.schedule.parts import Parts
from beads_workers.core.workers.sender import Sender


class Feature:
    """One ability. A handler that a feature does not override does nothing."""

    messages: tuple[type, ...] = ()
    """Types of messages beside the conversation that the feature handles."""

    requests: tuple[type, ...] = ()
    """Types of control requests that the feature handles."""

    def __init__(
        self,
        parts: Parts,
        sender: Sender,
        scheduler: ClaimScheduler,
        serve: Callable[[Connection], None],
    ) -> None:
        """``serve``: answers a connection's READY, if it waits for that."""
        self._parts, self._sender, self._scheduler, self._serve = parts, sender, scheduler, serve
        self._effects, self._registry = parts.effects, parts.registry
        self._tasks, self._timers = parts.tasks, parts.effects.timers

    def handle(self, connection: Connection, message: Any) -> None:
        """Handle one of ``messages``."""

    def asked(self, event: Any) -> None:
        """Handle one of ``requests``."""

    def joined(self, connection: Connection) -> None:
        """Handle the first valid message of a connection."""

    def announced(self, connection: Connection) -> None:
        """Handle a READY that differs from the one before."""

    def left(self, connection: Connection) -> None:
        """Forget the connection: it is over."""

    def is_due(self, key: Hashable) -> bool:
        """Handle a timer that is due; return False if it belongs to another feature."""
        return False

    def fill(self, connection: Connection) -> None:
        """Send more tasks to a connection that prefetches and may have fewer than it could."""

    def behind(self, connection: Connection) -> Iterable[InFlight]:
        """Return the tasks to send along with the first one to a connection that takes batches."""
        return ()

    def stray(self, connection: Connection, message: object) -> bool:
        """Note a message that version 1 lacks; return whether the connection speaks only that."""
        if not connection.abilities.additions:
            kind = type(message).__name__.upper()
            self._sender.note_stray(connection, f"said {kind}, which version 1 has not")
        return not connection.abilities.additions
