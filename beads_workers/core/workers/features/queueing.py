"""Tasks that a worker has before it begins them: prefetched, or sent with the first in a BATCH."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from beads_workers.core.base import limits
from beads_workers.core.base.states import ConnState, IssueState, RunState
from beads_workers.core.base.wire import REVOKED
from beads_workers.core.schedule.connection_registry import Connection
from beads_workers.core.schedule.inflight import InFlight
from beads_workers.core.workers.features import Feature
from beads_workers.core.workers.sender import REVOKE


class Queueing(Feature):
    """Decides which tasks are queued on a worker behind its current one, and for how long."""

    def behind(self, connection: Connection) -> Iterator[InFlight]:
        """Yield the tasks that go with the first one in a BATCH.
        They are the worker's share of the claimed jobs; none if agents work, because a waiting
        attempt would keep its account from others."""
        if self._parts.settings.work.agents:
            return
        waiting = self._registry.count(ConnState.READY)
        left = self._effects.issues.count(IssueState.CLAIMED)
        share = min(-(-left // (waiting + 1)), left - waiting, connection.abilities.batch_size - 1)
        characters = 0
        for _ in range(share):
            if (in_flight := self._tasks.next_to_begin(connection.wants)) is None:
                return
            yield in_flight
            characters += len(in_flight.job.title) + sum(map(len, in_flight.job.labels))
            if characters > limits.BATCH_CHARS_MAX:
                return

    def fill(self, connection: Connection) -> None:
        """Send more tasks to a worker that has one, while no other worker waits for work."""
        if connection.state is not ConnState.BUSY:
            return
        off = connection.retiring or connection.pause is not None
        if off or self._parts.state is not RunState.RUNNING:
            return
        queued = len(connection.prefetched)
        for _ in range(self._scheduler.to_prefetch(connection.abilities.prefetch_count, queued)):
            if self._somebody_waits() or not (
                in_flight := self._tasks.next_to_begin(connection.wants)
            ):
                return
            self._sender.say(connection, self._sender.queue(connection, in_flight))

    def _somebody_waits(self) -> bool:
        """Return whether any unpaused worker waits that accepts every task."""
        if not self._registry.count(ConnState.READY):
            return False
        waiting = self._registry.in_state(ConnState.READY)
        return any(c.wants is None and c.pause is None for c in waiting)

    def is_due(self, key: Hashable) -> bool:
        """Revoke the tasks queued behind a long one: another worker may be free."""
        if key == REVOKE:
            self._revoke()
        return key == REVOKE

    def _revoke(self) -> None:
        waits = [c for c in self._registry.in_state(ConnState.BUSY) if c.prefetched]
        for connection in waits:
            in_flight = self._sender.in_flight(connection)
            assert in_flight is not None, "a busy connection has a job"
            if connection.abilities.batch_size and not self._somebody_idles():
                continue  # The worker has asked for them, and no other worker lacks work.
            if self._effects.now - in_flight.started_at >= limits.REVOKE_SECONDS:
                for issue_id in connection.prefetched:
                    self._sender.end_attempt(self._tasks.in_flight[issue_id], REVOKED)
        if waits:
            self._timers.set(REVOKE, self._effects.now + limits.REVOKE_SECONDS)

    def _somebody_idles(self) -> bool:
        idle = self._registry.count(ConnState.READY, ConnState.IDLE)
        idle -= self._registry.idle_paused()
        return idle > self._effects.issues.count(IssueState.CLAIMED)
