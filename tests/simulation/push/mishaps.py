"""What befalls pushed work, beside what the senders do of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beads_workers.core.requests.scale import ScaleAsked
from beads_workers.core.requests.why import WhyAsked
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.events import Ticket
from tests.simulation.mishaps import Mishaps

if TYPE_CHECKING:
    from tests.simulation.push.world import PushWorld


WITHOUT = (
    "foreign worker: killed", "foreign worker: joins", "foreign worker: joins, of 1.1",
    "person: changes an issue", "stranger: claims", "call: caller's child killed",
)  # fmt: skip
"""There is no tracker, and workers of others are not what is looked at here."""


class PushMishaps(Mishaps):
    """The same, but for what needs a tracker."""

    _world: PushWorld

    def __init__(self, world: PushWorld) -> None:
        super().__init__(world)
        self._sorts = [each for each in self._sorts if each[1] not in WITHOUT]
        self._weights = [weight for weight, _, _ in self._sorts]

    def _add_issue(self) -> None:
        self._world.senders.another()

    def _command(self) -> bool:
        node = self._world.node
        if node is None or not node.process.alive or not node.run_id:
            return False
        choice, ticket = self._random.randrange(6), Ticket(1)
        asked: dict[int, ev.Event] = {
            0: ev.PauseAsked(ticket),
            1: ev.ResumeAsked(ticket),
            2: ScaleAsked(ticket, self._random.randint(1, 4)),
            3: ev.StopAsked(drain=True),
            4: ev.StopAsked(seconds=self._random.choice((0.0, 2.0, None))),
        }
        node.tell(asked.get(choice, WhyAsked(ticket)))
        if choice == 0:
            self._world.agenda.after(15.0, lambda: node.tell(ev.ResumeAsked(ticket)))
        return True
