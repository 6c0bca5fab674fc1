"""HEARTBEAT: a worker promises to speak at an interval, or counts as lost."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.model import value
from beads_workers.core.base.states import ConnState
from beads_workers.core.base.wire import Heartbeat
from beads_workers.core.schedule.commands import HangUp
from beads_workers.core.schedule.connection_registry import Connection
from beads_workers.core.schedule.events import ConnId
from beads_workers.core.workers.features import Feature


@value
class SilenceTimeout:
    """Timer key: deadline of the next message of a worker that has announced heartbeats."""

    conn_id: ConnId


class Heartbeats(Feature):
    """Closes the connection of a worker that has been silent for longer than it promised."""

    messages = (Heartbeat,)

    def __init__(self, *around: Any) -> None:
        super().__init__(*around)
        self._excused: dict[ConnId, float] = {}
        """Silences that may have been ours, by the time of the last message before them."""

    def left(self, connection: Connection) -> None:
        """Forget the connection: no message is expected any more."""
        self._timers.cancel(SilenceTimeout(connection.conn_id))
        self._excused.pop(connection.conn_id, None)

    def is_due(self, key: Hashable) -> bool:
        """Handle the timer of a worker that was silent for three of its intervals."""
        if isinstance(key, SilenceTimeout):
            self._silent(key.conn_id)
        return isinstance(key, SilenceTimeout)

    def _silent(self, conn_id: ConnId) -> None:
        """Close a connection that said nothing in three of its intervals.
        The worker is frozen, or gone without a word."""
        connection = self._registry.get(conn_id)
        assert connection is not None, "its timer goes with it"
        now, key = self._effects.now, SilenceTimeout(conn_id)
        silent_from = _silent_from(connection)
        if now < silent_from:
            self.announced(connection)
        elif now - silent_from >= limits.SLEEP_SECONDS_MIN and (
            self._excused.get(conn_id) != connection.heard_at
        ):
            # We come late: what the worker has said meanwhile may be still unread.
            self._excused[conn_id] = connection.heard_at
            self._timers.set(key, now + limits.SLEEP_SECONDS_MIN)
        else:
            silence = f"silent for {now - connection.heard_at:.0f} s"
            self._effects.note("warning", f"{connection.worker_id}: connection closed: {silence}")
            # Nobody knows what the worker does: told to leave, it has not left.
            connection.overstayed = connection.state is ConnState.ENDING
            self._effects.ask(HangUp(conn_id, silence))

    def announced(self, connection: Connection) -> None:
        """Watch for the interval that a worker promises, or stop watching if it promises none."""
        # The timer is moved when it is due, not with every message.
        key = SilenceTimeout(connection.conn_id)
        if connection.abilities.heartbeat_seconds is None:
            self._timers.cancel(key)
        else:
            self._timers.set_earlier(key, _silent_from(connection))


def _silent_from(connection: Connection) -> float:
    """Return when a silent worker counts as lost; infinite if it promised nothing."""
    seconds = connection.abilities.heartbeat_seconds or math.inf
    return connection.heard_at + seconds * limits.HEARTBEATS_MISSED
