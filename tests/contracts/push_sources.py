"""The sources that ``test_push_sources`` runs against: one class and one entry in ``PUSH_SOURCES``
each.

A queue is a push source. To add one, write a class of the shape ``Queue``
whose constructor takes an empty folder, and name it in ``PUSH_SOURCES``.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from beads_workers.core.base.source import Source
from beads_workers.core.schedule.events import Event
from beads_workers.integrations.dispatcherd.configuration import Brokers, Postgres
from beads_workers.integrations.dispatcherd.ingress import open_dispatcherd
from beads_workers.integrations.dispatcherd.queue import TaskQueue as Tasks
from beads_workers.integrations.dispatcherd.source import DispatcherdSource
from beads_workers.integrations.rrq.request_table import RequestTable
from beads_workers.integrations.rrq.source import RrqSource, Unix
from beads_workers.integrations.rrq.wire import Request, RequestContext, encode, frame
from tests.support.postgres import Postgres as Database

PATIENCE_SECONDS = 30.0


class Ingress(Protocol):
    """What an ingress needs of the loop; see ``runtime.sources``."""

    def tick(self, now: float) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Queue(Protocol):
    """A source, what brings work to it, and a sender."""

    source: Source
    again: bool
    """Whether what was requeued comes again from here, and not from its sender."""

    def send(self, *paths: str) -> None:
        """Ask for these functions, in this order, each with its own path for an argument."""

    def turn(self) -> None:
        """A turn of the loop, which waits a little where nothing happens."""

    def close(self) -> None:
        """End everything."""


class Looped:
    """The loop's part."""

    ingress: Ingress

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.events: list[Event] = []

    def turn(self) -> None:
        for key, mask in self.selector.select(0.01):
            key.data(mask)
        self.ingress.tick(time.monotonic())
        self.ingress.flush()

    def close(self) -> None:
        self.ingress.close()
        self.selector.close()


class OverDispatcherd(Looped):
    """The real ingress of dispatcherd, with one broker."""

    again = True

    def __init__(self, folder: Path, brokers: Brokers) -> None:
        super().__init__()
        path = folder / "spool.jsonl"
        self.source = DispatcherdSource(
            Tasks(), path, actor="us", place="here", calls_functions=True
        )
        self.ingress = open_dispatcherd(brokers, self.source, self.selector, self.events.append)

    def messages(self, paths: tuple[str, ...]) -> Iterator[bytes]:
        """As a publisher writes them."""
        for path in paths:
            yield json.dumps({"task": path, "args": [path], "uuid": f"id of {path}"}).encode()


class OverSocket(OverDispatcherd):
    """Its broker on a Unix socket: a connection for each message."""

    def __init__(self, folder: Path, database: Callable[[], Database]) -> None:
        self._path = folder / "d.sock"
        super().__init__(folder, Brokers(sockets=(str(self._path),)))

    def send(self, *paths: str) -> None:
        for message in self.messages(paths):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(str(self._path))
                sock.sendall(message + b"\n")


class OverPostgres(OverDispatcherd):
    """Its broker on PostgreSQL."""

    def __init__(self, folder: Path, database: Callable[[], Database]) -> None:
        import psycopg

        self._database = database()
        config = {"conninfo": self._database.conninfo}
        super().__init__(folder, Brokers(postgres=(Postgres(config, ("a channel",)),)))
        self._connection = psycopg.connect(self._database.conninfo, autocommit=True)

    def send(self, *paths: str) -> None:
        for message in self.messages(paths):
            self._connection.execute("SELECT pg_notify('a channel', %s)", (message.decode(),))

    def close(self) -> None:
        self._connection.close()
        super().close()


class OverRrq(Looped):
    """Requests of RRQ's version 2, on one connection."""

    again = False

    def __init__(self, folder: Path, database: Callable[[], Database]) -> None:
        super().__init__()
        from beads_workers.integrations.rrq.ingress import RrqIngress

        serving = RequestTable()
        self.source = RrqSource(serving, actor="us", place="here", calls_functions=True)
        path = folder / "rrq.sock"
        self.ingress = RrqIngress(Unix(str(path)), serving, self.selector, self.events.append)
        self._client = socket.socket(socket.AF_UNIX)
        self._client.connect(str(path))

    def send(self, *paths: str) -> None:
        for path in paths:
            job_id = f"id of {path}"
            context = RequestContext(job_id, 1, 1_700_000_000.0, "default")
            asked: dict[str, Any] = {"kwargs": {"path": path}, "protocol_version": "2"}
            request = Request(f"request {path}", job_id, path, context, **asked)
            self._client.sendall(frame(encode(request)))

    def close(self) -> None:
        self._client.close()
        super().close()


PUSH_SOURCES: dict[str, Callable[[Path, Callable[[], Database]], Queue]] = {
    "rrq": OverRrq,
    "dispatcherd-socket": OverSocket,
    "dispatcherd-postgres": OverPostgres,
}
