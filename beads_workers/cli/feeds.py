"""Sources of a dashboard's snapshots: a running fleet, or a journal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from beads_workers.cli.client import ControlClient
from beads_workers.ui.viewer import Faster

Message = dict[str, Any]

PAUSE_SECONDS_MAX = 2.0
"""Longest pause of a replay: an idle hour is not replayed as three idle minutes."""


class Feed(Protocol):
    """Stream of messages as of ``bw.watch``: ``snapshot``, ``ended``, and answers in between."""

    ended: bool
    """Whether no more messages come."""

    def sockets(self) -> list[ControlClient]:
        """Return the connections to wait for, besides the deadline."""

    def deadline(self) -> float | None:
        """Return when to call ``take`` even if no socket is ready (monotonic seconds)."""

    def take(self) -> list[Message]:
        """Return the messages that have come; never wait."""

    def ask(self, control: str, fields: Mapping[str, Any]) -> None:
        """Send a control request; its answer comes as a message."""

    def change_speed(self, wish: Faster) -> str:
        """Change the speed of a replay; return the new speed as text for people."""

    def age(self) -> float:
        """Return the seconds of the run since the last snapshot."""


class FleetFeed:
    """Messages of a running fleet."""

    def __init__(self, client: ControlClient) -> None:
        self._client = client
        self._at = time.monotonic()
        self.ended = False
        client.send("bw.watch")

    def sockets(self) -> list[ControlClient]:
        """See ``Feed``."""
        return [] if self.ended else [self._client]

    def deadline(self) -> float | None:
        """See ``Feed``: a fleet sends without being asked."""
        return None

    def take(self) -> list[Message]:
        """See ``Feed``."""
        messages, self.ended = self._client.receive()
        if any("snapshot" in message for message in messages):
            self._at = time.monotonic()
        return messages

    def ask(self, control: str, fields: Mapping[str, Any]) -> None:
        """See ``Feed``."""
        self._client.send(control, dict(fields))

    def change_speed(self, wish: Faster) -> str:
        """See ``Feed``."""
        return "a running fleet has one speed"

    def age(self) -> float:
        """See ``Feed``."""
        return time.monotonic() - self._at


class ReplayFeed:
    """Snapshots of a journal, each at its time."""

    def __init__(self, snapshots: Iterator[Message], speed: float) -> None:
        self._snapshots = snapshots
        self._speed = speed
        self._held = False
        self._shown_at = time.monotonic()
        self._elapsed = 0.0
        self._next = next(snapshots, None)
        self.ended = self._next is None

    def sockets(self) -> list[ControlClient]:
        """See ``Feed``."""
        return []

    def deadline(self) -> float | None:
        """See ``Feed``."""
        if self._next is None or self._held:
            return None
        gap: float = self._next["uptime_seconds"] - self._elapsed
        return self._shown_at + min(max(0.0, gap) / self._speed, PAUSE_SECONDS_MAX)

    def take(self) -> list[Message]:
        """See ``Feed``: only the last snapshot that is due is returned."""
        last: Message | None = None
        while (due := self.deadline()) is not None and due <= time.monotonic():
            assert self._next is not None, "a deadline is that of the next one"
            last, self._next = self._next, next(self._snapshots, None)
            self._shown_at, self._elapsed = due, last["uptime_seconds"]
        self.ended = self._next is None
        return [] if last is None else [{"snapshot": last}]

    def ask(self, control: str, fields: Mapping[str, Any]) -> None:
        """See ``Feed``: a replay answers no requests, and its keys send none."""

    def change_speed(self, wish: Faster) -> str:
        """See ``Feed``."""
        self._elapsed += self.age()
        self._shown_at = time.monotonic()
        if wish.factor:
            self._speed = min(max(self._speed * wish.factor, 0.125), 4096.0)
        else:
            self._held = not self._held
        return "held" if self._held else f"{self._speed:g} times as fast"

    def age(self) -> float:
        """See ``Feed``."""
        if self._held or self._next is None:
            return 0.0
        passed = (time.monotonic() - self._shown_at) * self._speed
        gap: float = self._next["uptime_seconds"] - self._elapsed
        return min(passed, max(0.0, gap))
