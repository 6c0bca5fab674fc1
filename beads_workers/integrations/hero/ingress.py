"""The ingress of a Hero queue: one thread that maintains the queue, and its events for the loop."""

from __future__ import annotations

import selectors
import threading
import time
from collections.abc import Callable
from typing import Any

from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.base.source import Source, SourceError
from beads_workers.core.schedule.events import Arrived, Event, FatalError, Unreachable
from beads_workers.integrations.hero.connection import RedisLink
from beads_workers.integrations.hero.maintenance import Maintenance, ServedElsewhere
from beads_workers.integrations.hero.source import HeroSource
from beads_workers.integrations.hero.store import JobStore, Runs
from beads_workers.runtime.loop import Mailbox

RETRY_SECONDS, RETRY_SECONDS_MAX = 0.25, 5.0
"""Delay between attempts to reach Redis: doubled each time, up to the second. Asking harms
nobody."""

LEAVE_SECONDS = 2.0
"""Longest wait for the round that is under way; it ends by itself, unless Redis is silent."""


class HeroIngress:
    """See ``runtime.sources.Ingress``.

    The thread begins at once, and fetches as soon as the fleet asks for work.
    """

    def __init__(
        self, source: HeroSource, selector: selectors.BaseSelector, tell: Callable[[Event], None]
    ) -> None:
        self._holding = source.holding
        self._tell = tell
        self._box = Mailbox(selector, of_signals=False)
        self._ended = threading.Event()
        self._link = RedisLink(source.queue.address)
        store = JobStore(source.queue, source.run, link=self._link)
        runs = Runs(source.queue, source.run, link=self._link)
        self._maintenance = Maintenance(store, runs, source.holding, source.who, self._box.post)
        self._thread = threading.Thread(target=self._run, name="hero", daemon=True)
        self._thread.start()

    def deadline(self) -> float:
        """Return when ``tick`` is due (monotonic seconds)."""
        with self._holding.lock:
            due = self._holding.buffer.deadline()
        return float("inf") if due is None else due

    def tick(self, now: float) -> None:
        """Deliver the thread's events, and report jobs whose delay is over."""
        for event in self._box.collect():
            self._tell(event)
        with self._holding.lock:
            warm = self._holding.buffer.warm_up(now)
        if warm:
            self._tell(Arrived())

    def open(self) -> None:
        """Do nothing: jobs that arrive before wait, and lose nothing."""

    def flush(self) -> None:
        """Do nothing: the tracker thread writes to Redis."""

    def stop_accepting(self) -> None:
        """Fetch no more jobs: the run is ending. Jobs that we hold are kept."""
        self._maintenance.stopped_accepting = True

    def close(self) -> None:
        """End the thread: the run is over. The source requeues what is left."""
        self.stop_accepting()
        self._ended.set()
        self._holding.wake.set()
        self._thread.join(LEAVE_SECONDS)
        if self._thread.is_alive():
            self._holding.stuck.set()

    def _run(self) -> None:
        delay = 0.0
        try:
            while not self._ended.is_set():
                delay = self._round(delay)
                if delay:
                    self._ended.wait(delay)
            self._link.close()
        except ServedElsewhere as error:
            self._box.post(FatalError(str(error)))
        except BaseException as error:  # A bug must end the process, not only this thread.
            self._box.post(error)

    def _round(self, before: float) -> float:
        """Do one round; return how long to leave Redis alone. ``before``: the last such delay."""
        began = time.monotonic()
        try:
            self._maintenance.round()
        except SourceError as error:
            self._maintenance.failed()
            delay = min(max(RETRY_SECONDS, before * 2), RETRY_SECONDS_MAX)
            self._box.post(Unreachable(str(error), error.hint, delay))
            # The time that Redis took to fail counts as a part of the delay.
            return max(0.01, delay - (time.monotonic() - began))
        if before:
            self._box.post(Arrived())  # What was held up can be asked again.
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
