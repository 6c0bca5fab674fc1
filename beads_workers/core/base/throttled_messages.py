"""Messages beside the conversation: at most one of a kind a second, and the newest wins."""

from __future__ import annotations

from beads_workers.core.base import limits
from beads_workers.core.base.wire import Aside, Status


class Asides:
    """Rate limit of one connection, used at both ends: what is only shown may flood nobody."""

    def __init__(self) -> None:
        self._newest: dict[type[Aside | Status], Aside | Status] = {}
        self._free_at: dict[type[Aside | Status], float] = {}

    def add(self, message: Aside | Status) -> None:
        """Keep a message until it is taken or a newer one replaces it."""
        self._newest[type(message)] = message

    def deadline(self) -> float | None:
        """Return when ``take`` has a message; None while none is kept."""
        return min((self._free_at.get(kind, 0.0) for kind in self._newest), default=None)

    def take(self, now: float) -> list[Aside | Status]:
        """Remove and return the messages that may be sent by now."""
        kinds = [kind for kind in self._newest if self._free_at.get(kind, 0.0) <= now]
        self._free_at |= dict.fromkeys(kinds, now + limits.ASIDE_SECONDS)
        return [self._newest.pop(kind) for kind in kinds]

    def forget(self) -> None:
        """Drop all messages: the task that they were about is over."""
        self._newest.clear()
