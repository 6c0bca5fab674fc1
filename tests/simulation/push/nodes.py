"""An orchestrator whose work comes by itself: ``Fleet`` with an ingress, and with a prompt tracker
thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from beads_workers.core.base.states import RunState
from beads_workers.core.schedule.commands import End, RoundTrip
from beads_workers.core.schedule.events import RoundTripEnded
from beads_workers.core.views.recovery import RecoveryState
from tests.simulation.agenda import Thread
from tests.simulation.nodes import Node
from tests.simulation.push.boxed import QueueSource, SpoolSource
from tests.simulation.push.ingresses import BoxIngress, RrqIngress, RrqPrompt
from tests.simulation.tracker_thread import TrackerThread

if TYPE_CHECKING:
    from tests.simulation.push.world import PushWorld


SYNC_SECONDS = 1.0
_OVER = (RunState.DRAINING, RunState.STOPPING, RunState.SETTLING, RunState.ENDED)


class PromptTrackerThread(TrackerThread):
    """Mirrors ``runtime/tracker_thread.PromptTrackerThread``: turns are carried out where they are
    begun."""

    _world: PushWorld

    def begin(self, round_trip: RoundTrip | None) -> None:
        """Carry it out; None ends the thread."""
        if round_trip is None:
            super().begin(None)
            return
        source: Any = self._source
        settled = tuple(source.settle_now(round_trip.settlements))
        ended = RoundTripEnded(0.0, settled=settled)
        self._world.point("between what is settled and what is taken")
        if round_trip.take is not None:
            ended = replace(ended, taken=source.take_now(round_trip.take, round_trip.skip))
        self._node.tell(ended)

    def sync(self) -> None:
        """It is synced anyway, soon."""

    def run(self) -> Thread:
        """``PromptTrackerThread._work``, behind the recovery."""
        self._node.post((yield from self._recover()))
        while not self._orders:
            yield SYNC_SECONDS
            yield from self._node.journal.sync()
            self._world.box.sync()
        yield from self._source.close()
        self._world.box.sync()
        self.ended.keep()


class PushNode(Node):
    """``ingress`` is there from the first turn of the loop to its last."""

    push = True
    world: PushWorld

    def make_source(self) -> Any:
        """By the kind of the world."""
        if self.world.kind == "rrq":
            prompt = RrqPrompt(self, self.actor)
            self.ingress: BoxIngress | RrqIngress = RrqIngress(self, prompt.serving)
            return prompt
        self.ingress = BoxIngress(self)
        kinds = {"spool": SpoolSource, "queue": QueueSource}
        return kinds[self.world.kind](self, self.actor)

    def make_tracker_thread(self, unsettled: Sequence[RecoveryState]) -> TrackerThread:
        """A queue elsewhere needs a thread."""
        tracker_thread = TrackerThread if self.world.kind == "queue" else PromptTrackerThread
        return tracker_thread(self, self.source, unsettled)

    def flush_ingress(self) -> None:
        """``Loop._turn``."""
        if self.core.state in _OVER:
            self.ingress.stop_accepting()
        self.ingress.flush()

    def loop_ended(self, end: End) -> None:
        """``Fleet._work``: the ingress says its last words first."""
        self.ingress.close()
        super().loop_ended(end)
