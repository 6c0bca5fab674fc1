"""What workers can do beyond version 1: each ability is a file here, and a row of ``table``.

``Connections`` hands a feature the messages that belong to it, and tells it what befalls a
connection; nothing else names one. A message that no row hears is noted, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from beads_workers.core.claims import ClaimScheduler
from beads_workers.core.inflight import InFlight
from beads_workers.core.parts import Parts
from beads_workers.core.sender import Sender
from beads_workers.core.sessions import Connection


class Feature:
    """One ability. A method that is not its own does nothing."""

    messages: tuple[type, ...] = ()
    """Which it hears, of those that come beside the conversation."""

    requests: tuple[type, ...] = ()
    """What people ask that is for it."""

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

    def heard(self, connection: Connection, message: Any) -> None:
        """One of ``messages`` has come."""

    def asked(self, event: Any) -> None:
        """One of ``requests`` has come."""

    def joined(self, connection: Connection) -> None:
        """It has said its first valid word."""

    def announced(self, connection: Connection) -> None:
        """Its READY says something else than the one before."""

    def left(self, connection: Connection) -> None:
        """It is over."""

    def is_due(self, key: Hashable) -> bool:
        """The time of a timer has come; False for one that is not its own."""
        return False

    def fill(self, connection: Connection) -> None:
        """It prefetches, and what it has may be less than it could have."""

    def behind(self, connection: Connection) -> Iterable[InFlight]:
        """It takes batches, and is about to be sent a task: what goes with that."""
        return ()

    def stray(self, connection: Connection, message: object) -> bool:
        """Whether only version 1 is spoken there, which has no such message; that is noted."""
        if not connection.abilities.additions:
            kind = type(message).__name__.upper()
            self._sender.note_stray(connection, f"said {kind}, which version 1 has not")
        return not connection.abilities.additions
