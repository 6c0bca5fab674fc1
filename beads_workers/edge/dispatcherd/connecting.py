"""Connections to PostgreSQL are made in a thread, which tells the loop by a pipe."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from beads_workers.sources.dispatcherd.brokers import Postgres

if TYPE_CHECKING:
    from psycopg import Connection

CONNECT_SECONDS = 10.0

Made = Callable[["Connection | str"], None]
"""Takes a connection that listens, or says why there is none."""


class Connector:
    """``begin`` it for each connection; ``made`` is called in the loop."""

    def __init__(self, settings: Postgres, selector: selectors.BaseSelector, made: Made) -> None:
        self._settings = settings
        self._selector = selector
        self._made = made
        self._results: deque[Connection | str] = deque()
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread: threading.Thread | None = None
        selector.register(self._read, selectors.EVENT_READ, self._ready)

    def begin(self) -> None:
        """One attempt; there is none under way."""
        self._thread = threading.Thread(target=self._connect, name="postgres", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """For the attempt, before the loop runs: whoever starts us may publish at once."""
        if self._thread is not None:
            self._thread.join(seconds)
        self._hand_over()

    def close(self) -> None:
        """What is made from now on is closed at once."""
        self._selector.unregister(self._read)
        read, self._read = self._read, -1
        os.close(read)

    def _connect(self) -> None:
        result: Connection | str
        try:
            result = connect(self._settings)
        except Exception as error:  # Whatever is wrong there is said, and tried again.
            result = " ".join(str(error).split()) or type(error).__name__
        if self._read < 0:
            if not isinstance(result, str):
                result.close()
            return
        self._results.append(result)
        try:
            os.write(self._write, b".")
        except OSError:
            pass  # The run has ended meanwhile.

    def _ready(self, mask: int) -> None:
        os.read(self._read, 64)
        self._hand_over()

    def _hand_over(self) -> None:
        while self._results:
            self._made(self._results.popleft())


def connect(settings: Postgres, seconds: float = CONNECT_SECONDS) -> Connection:
    """A connection that listens on its channels, and is never waited for from now on. Blocks, at
    most for so many ``seconds`` unless the settings say another time. Raises ``psycopg.Error``."""
    import psycopg
    from psycopg import sql

    said = f"{settings.config.get('conninfo', '')} {' '.join(settings.config)}"
    timeout = {} if "connect_timeout" in said else {"connect_timeout": int(seconds)}
    connection = psycopg.connect(**{**timeout, **settings.config, "autocommit": True})
    with contextlib.ExitStack() as closing:
        closing.callback(connection.close)
        for channel in settings.channels:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        connection.pgconn.nonblocking = 1
        closing.pop_all()
    return connection
