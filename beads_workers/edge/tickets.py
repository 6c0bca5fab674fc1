"""Who waits for which answer of the core."""

from __future__ import annotations

from collections.abc import Callable

from beads_workers.core.commands import Answer
from beads_workers.core.events import Ticket

Answered = Callable[[Answer], None]


class Tickets:
    """A ticket goes to the core with a question, and comes back with its answer."""

    def __init__(self) -> None:
        self._last = 0
        self._waiting: dict[Ticket, Answered] = {}

    def issue(self) -> Ticket:
        """A new one."""
        self._last += 1
        return Ticket(self._last)

    def wait(self, ticket: Ticket, answered: Answered) -> None:
        """Have ``answered`` called once, within the turn of the loop that tells the question."""
        self._waiting[ticket] = answered

    def answer(self, answer: Answer) -> None:
        """The core's answer goes to whoever waits for it."""
        if (answered := self._waiting.pop(answer.ticket, None)) is not None:
            answered(answer)
