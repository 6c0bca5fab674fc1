"""An ingress with brokers in a loop that is stepped by hand."""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from beads_workers.core.schedule.events import Event, Warned
from beads_workers.integrations.dispatcherd.configuration import Brokers
from beads_workers.integrations.dispatcherd.ingress import (
    DispatcherdIngress,
    Reply,
    open_dispatcherd,
)
from beads_workers.integrations.dispatcherd.queue import TaskQueue
from beads_workers.integrations.dispatcherd.source import DispatcherdSource
from beads_workers.integrations.dispatcherd.spool import read_spool
from beads_workers.integrations.dispatcherd.wire import ControlRequest

T = TypeVar("T")
PATIENCE_SECONDS = 30.0


class SteppedIngress:
    """``asked``: control requests, each with its reply."""

    def __init__(self, folder: Path, brokers: Brokers, **queue: Any) -> None:
        self.selector = selectors.DefaultSelector()
        self.events: list[Event] = []
        self.asked: list[tuple[ControlRequest, Reply]] = []
        self.path = folder / "spool.jsonl"
        self.source = DispatcherdSource(
            TaskQueue(**queue), self.path, actor="us", place="here", calls_functions=True
        )
        self.ingress: DispatcherdIngress = open_dispatcherd(
            brokers, self.source, self.selector, self.events.append
        )
        self.ingress.answerer = lambda control, reply: self.asked.append((control, reply))
        self.source.take(0, ())
        self.is_closed = False

    def turn(self) -> None:
        """A turn of the loop, which waits a little where nothing happens."""
        for key, mask in self.selector.select(0.01):
            key.data(mask)
        self.ingress.tick(time.monotonic())
        self.ingress.flush()

    def until(self, holds: Callable[[], T]) -> T:
        """Turn until it holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (value := holds()):
            assert time.monotonic() < deadline
            self.turn()
        return value

    def queued(self) -> list[str]:
        """The ids of what waits."""
        return [entry.issue_id for entry in self.ingress.queue.untaken()]

    def filed(self) -> list[str]:
        """The ids of what is on file."""
        entries = read_spool(self.path.read_bytes()).entries.values()
        return [entry.issue_id for entry in entries]

    def warnings(self) -> list[str]:
        """What people were told."""
        return [event.text for event in self.events if isinstance(event, Warned)]

    def told_refused(self) -> int:
        """How many messages were refused, as far as it was told."""
        return sum(event.refused for event in self.events if isinstance(event, Warned))

    def close(self) -> None:
        """The end of the run; a second one changes nothing."""
        if not self.is_closed:
            self.is_closed = True
            self.ingress.close()
            self.selector.close()


def task(uuid: str, **fields: Any) -> bytes:
    """A publisher's message."""
    return json.dumps({"task": "a.b", "uuid": uuid, **fields}).encode()


def control(command: str, reply_to: str = "r") -> bytes:
    """A request."""
    return json.dumps({"control": command, "reply_to": reply_to}).encode()


def connected(path: Path) -> socket.socket:
    """A publisher."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(PATIENCE_SECONDS)
    sock.connect(str(path))
    return sock
