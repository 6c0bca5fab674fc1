"""Sources of a dashboard's snapshots: a running fleet, or a journal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Protocol

from beads_workers.cli.client import ControlClient, try_to_connect
from beads_workers.cli.decisions import decide
from beads_workers.cli.last_run import REFRESH_SECONDS, last_snapshot
from beads_workers.core.base.text import printable
from beads_workers.errors import CommandError
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


AGAIN_SECONDS = 0.25
"""Interval of looks for the next fleet while one is restarted."""


class FleetFeed:
    """Messages of a running fleet, and of the next one if it is restarted.

    ``directory``: the run directory; None: the feed ends with the fleet.
    """

    def __init__(self, client: ControlClient, directory: Path | None = None) -> None:
        self._client = client
        self._directory = directory
        self._run_id = ""
        self._again_at: float | None = None
        """When to look for the next fleet; None while there is one."""
        self._at = time.monotonic()
        self.ended = False
        client.send("bw.watch")

    def sockets(self) -> list[ControlClient]:
        """See ``Feed``."""
        return [] if self.ended or self._again_at is not None else [self._client]

    def deadline(self) -> float | None:
        """See ``Feed``: a fleet sends without being asked."""
        return None if self.ended else self._again_at

    def take(self) -> list[Message]:
        """See ``Feed``."""
        if self._again_at is not None:
            self._look_again()
            return []
        messages, over = self._client.receive()
        for message in messages:
            if "snapshot" in message:
                self._at = time.monotonic()
                self._run_id = message["snapshot"]["run_id"] or ""
        if over and self._is_restarted():
            self._again_at = time.monotonic() + AGAIN_SECONDS
            return [*messages, {"text": "the fleet is restarted; this view goes on with the next"}]
        self.ended = over
        return messages

    def _is_restarted(self) -> bool:
        from beads_workers.runtime.endings import is_restarted

        if self._directory is None or not self._run_id:
            return False
        return is_restarted(self._directory / "runs" / self._run_id)

    def _look_again(self) -> None:
        """Connect to the next fleet once it is there; end if nobody starts one any more."""
        assert self._directory is not None and self._again_at is not None, "it is restarted"
        if time.monotonic() < self._again_at:
            return
        # First this: a restart that ends just now has started its fleet before.
        goes_on = self._is_restarted()
        if (client := try_to_connect(self._directory)) is not None:
            self._client, self._again_at = client, None
            client.send("bw.watch")
        elif goes_on:
            self._again_at = time.monotonic() + AGAIN_SECONDS
        else:
            self._again_at, self.ended = None, True

    def ask(self, control: str, fields: Mapping[str, Any]) -> None:
        """See ``Feed``."""
        self._client.send(control, dict(fields))

    def change_speed(self, wish: Faster) -> str:
        """See ``Feed``."""
        return "a running fleet has one speed"

    def age(self) -> float:
        """See ``Feed``."""
        return time.monotonic() - self._at


LOOK_SECONDS = 0.1
"""Interval of looks whether a decision is carried out."""


class MorningFeed:
    """The last run at its end, and decisions about it, which are carried out beside the
    dashboard. ``directory``: the run directory; ``snapshot``: of that run, as it is now."""

    ended = False

    def __init__(self, directory: Path, snapshot: Message) -> None:
        self._directory = directory
        self._asked: Queue[tuple[str, Mapping[str, Any]]] = Queue()
        self._told: Queue[Message] = Queue()
        self._told.put({"snapshot": snapshot})
        threading.Thread(target=self._carry_out, daemon=True).start()

    def sockets(self) -> list[ControlClient]:
        """See ``Feed``."""
        return []

    def deadline(self) -> float | None:
        """See ``Feed``."""
        return time.monotonic() + LOOK_SECONDS

    def take(self) -> list[Message]:
        """See ``Feed``."""
        return [self._told.get() for _ in range(self._told.qsize())]

    def ask(self, control: str, fields: Mapping[str, Any]) -> None:
        """See ``Feed``."""
        self._asked.put((control, fields))

    def _carry_out(self) -> None:
        while True:
            with suppress(Empty):
                asked = self._asked.get(timeout=REFRESH_SECONDS)
                self._tell(decide, *asked)
            self._tell(_shown)

    def _tell(self, find: Callable[..., Message], *about: Any) -> None:
        try:
            told = find(self._directory, *about)
        except CommandError as error:
            told = {"error": error.message}
        except Exception as error:  # Whatever it is: it is said, and the dashboard goes on.
            told = {"error": printable(str(error), 300)}
        self._told.put(told)

    def change_speed(self, wish: Faster) -> str:
        """See ``Feed``."""
        return "it is over"

    def age(self) -> float:
        """See ``Feed``."""
        return 0.0


def _shown(directory: Path) -> Message:
    snapshot = last_snapshot(directory)
    return {} if snapshot is None else {"snapshot": snapshot}


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
