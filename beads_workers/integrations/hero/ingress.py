"""The ingress of a Hero queue: one thread that maintains it, and what it has to say to the loop."""

from __future__ import annotations

import selectors
import threading
import time
from collections.abc import Callable
from typing import Any

from beads_workers.core.events import Arrived, Event, FatalError, Unreachable
from beads_workers.core.settings import FleetSettings
from beads_workers.core.source import Source, SourceError
from beads_workers.integrations.hero.connection import RedisLink
from beads_workers.integrations.hero.maintenance import Maintenance, ServedElsewhere
from beads_workers.integrations.hero.source import HeroSource
from beads_workers.integrations.hero.store import JobStore, Runs
from beads_workers.runtime.loop import Mailbox

RETRY_SECONDS, RETRY_SECONDS_MAX = 0.25, 5.0
"""Between two tries to reach Redis: twice as long each time. It does nobody harm to be asked."""

LEAVE_SECONDS = 2.0
"""For the round that is under way; it ends by itself, unless Redis is silent."""


class HeroIngress:
    """See ``runtime.sources.Ingress``. The thread begins at once, and fetches when the fleet
    asks."""

    def __init__(
        self, source: HeroSource, selector: selectors.BaseSelector, tell: Callable[[Event], None]
    ) -> None:
        self._holding = source.holding
        self._tell = tell
        self._box = Mailbox(selector, of_signals=False)
        self._over = threading.Event()
        self._link = RedisLink(source.queue.address)
        store = JobStore(source.queue, source.run, link=self._link)
        runs = Runs(source.queue, source.run, link=self._link)
        self._maintenance = Maintenance(store, runs, source.holding, source.who, self._box.post)
        self._thread = threading.Thread(target=self._run, name="hero", daemon=True)
        self._thread.start()

    def deadline(self) -> float:
        """When ``tick`` is due (monotonic seconds)."""
        with self._holding.lock:
            due = self._holding.buffer.deadline()
        return float("inf") if due is None else due

    def tick(self, now: float) -> None:
        """Tell what the thread has found, and what has waited long enough."""
        for event in self._box.collect():
            self._tell(event)
        with self._holding.lock:
            warm = self._holding.buffer.warm_up(now)
        if warm:
            self._tell(Arrived())

    def open(self) -> None:
        """What comes before waits, and loses nothing."""

    def flush(self) -> None:
        """What is to be written to Redis goes through the tracker thread."""

    def stop_accepting(self) -> None:
        """The run is ending: what we hold is kept, and nothing more is fetched."""
        self._maintenance.stopped_accepting = True

    def close(self) -> None:
        """The run is over; what is left is requeued by the source."""
        self.stop_accepting()
        self._over.set()
        self._holding.wake.set()
        self._thread.join(LEAVE_SECONDS)
        if self._thread.is_alive():
            self._holding.stuck.set()

    def _run(self) -> None:
        delay = 0.0
        try:
            while not self._over.is_set():
                delay = self._round(delay)
                if delay:
                    self._over.wait(delay)
            self._link.close()
        except ServedElsewhere as error:
            self._box.post(FatalError(str(error)))
        except BaseException as error:  # A bug must end the process, not only this thread.
            self._box.post(error)

    def _round(self, before: float) -> float:
        """How long to leave Redis alone; ``before``: how long it was."""
        began = time.monotonic()
        try:
            self._maintenance.round()
        except SourceError as error:
            self._maintenance.failed()
            delay = min(max(RETRY_SECONDS, before * 2), RETRY_SECONDS_MAX)
            self._box.post(Unreachable(str(error), error.hint, delay))
            # A Redis that takes half a minute to say nothing has had its rest.
            return max(0.01, delay - (time.monotonic() - began))
        if before:
            self._box.post(Arrived())  # Whatever was held up can be asked again.
        return 0.0


def open_ingress(
    settings: FleetSettings,
    source: Source,
    selector: selectors.BaseSelector,
    tell: Callable[[Event], None],
    control: Callable[[], Any],
) -> HeroIngress:
    """See ``kinds.SourceKind.ingress``."""
    assert isinstance(source, HeroSource)
    return HeroIngress(source, selector, tell)
