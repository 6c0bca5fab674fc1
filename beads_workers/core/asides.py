"""Messages beside the conversation: at most one of a kind a second, and the newest wins."""

from __future__ import annotations

from beads_workers.core import limits
from beads_workers.core.wire import Aside, Status


class Asides:
    """Both halves have one for each connection: nobody may be flooded by what is only shown."""

    def __init__(self) -> None:
        self._newest: dict[type[Aside | Status], Aside | Status] = {}
        self._free_at: dict[type[Aside | Status], float] = {}

    def add(self, message: Aside | Status) -> None:
        """Keep it until it is taken, or there is a newer one."""
        self._newest[type(message)] = message

    def deadline(self) -> float | None:
        """When ``take`` has something; None while nothing is kept."""
        return min((self._free_at.get(kind, 0.0) for kind in self._newest), default=None)

    def take(self, now: float) -> list[Aside | Status]:
        """What may be said by now."""
        kinds = [kind for kind in self._newest if self._free_at.get(kind, 0.0) <= now]
        self._free_at |= dict.fromkeys(kinds, now + limits.ASIDE_SECONDS)
        return [self._newest.pop(kind) for kind in kinds]

    def forget(self) -> None:
        """The task that they were about is over."""
        self._newest.clear()
