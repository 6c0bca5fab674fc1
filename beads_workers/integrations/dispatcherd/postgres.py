"""The broker on PostgreSQL: LISTEN on its channels, NOTIFY for replies."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from beads_workers.core.base.model import value
from beads_workers.core.schedule.events import ConditionRecovered, Degraded, Event
from beads_workers.integrations.dispatcherd.brokers import Answer, Receiver, in_chunks
from beads_workers.integrations.dispatcherd.configuration import Postgres
from beads_workers.integrations.dispatcherd.wire import CHANNEL_BYTES_MAX, POSTGRES_BYTES_MAX
from beads_workers.runtime.kernel import system

if TYPE_CHECKING:
    from psycopg import Connection


# --- connections ---------------------------------------------------------------------------------
# A thread makes connections to PostgreSQL, and tells the loop by a pipe.


CONNECT_SECONDS = 10.0

Made = Callable[["Connection | str"], None]
"""Receives a connection that listens, or the reason why there is none."""


class Connector:
    """Makes connections: call ``begin`` for each one; ``made`` is called in the loop."""

    def __init__(self, settings: Postgres, selector: selectors.BaseSelector, made: Made) -> None:
        self._settings = settings
        self._selector = selector
        self._made = made
        self._results: deque[Connection | str] = deque()
        self._read, self._write = system.pipe(blocks=False)
        self._thread: threading.Thread | None = None
        selector.register(self._read, selectors.EVENT_READ, self._ready)

    def begin(self) -> None:
        """Start one attempt; no other may be under way."""
        self._thread = threading.Thread(target=self._connect, name="postgres", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for the attempt, before the loop runs: the process that starts us may publish at
        once."""
        if self._thread is not None:
            self._thread.join(seconds)
        self._hand_over()

    def close(self) -> None:
        """Close the pipe; a connection that is made from now on is closed at once."""
        self._selector.unregister(self._read)
        read, self._read = self._read, -1
        os.close(read)

    def _connect(self) -> None:
        result: Connection | str
        try:
            result = connect(self._settings)
        except Exception as error:  # Any error is reported, and the attempt repeated.
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
    """Return a connection that listens on its channels, and does not block from now on.

    Blocks for ``seconds`` at most, unless the settings give another time. Raises ``psycopg.Error``.
    """
    import psycopg
    from psycopg import sql

    conninfo = f"{settings.config.get('conninfo', '')} {' '.join(settings.config)}"
    timeout = {} if "connect_timeout" in conninfo else {"connect_timeout": int(seconds)}
    connection = psycopg.connect(**{**timeout, **settings.config, "autocommit": True})
    with contextlib.ExitStack() as closing:
        closing.callback(connection.close)
        for channel in settings.channels:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        connection.pgconn.nonblocking = 1
        closing.pop_all()
    return connection


# --- postgres broker -----------------------------------------------------------------------------
# The broker on PostgreSQL: LISTEN on its channels, NOTIFY for replies, reconnected when it is lost.
#
# A thread makes the connection, because that may block in many ways. From then on the loop watches
# its socket, and no call of libpq blocks. Notifications that are sent while there is no connection
# are lost: PostgreSQL does not keep them. Source: docs/DISPATCHERD.md.


AGAIN_SECONDS = 0.5
AGAIN_SECONDS_MAX = 30.0
ANSWER_SECONDS = 10.0
"""Time for the answer to a statement, after which the connection counts as lost."""
UNSENT_MAX = 10_000
"""Most chunks of replies that wait to be sent: further ones are dropped silently."""
FAREWELL_SECONDS = 1.0

_NOTIFY = b"SELECT pg_notify($1, $2)"
_LOOK = b"SELECT 1"


@value
class Statement:
    """One statement to the server; they are sent one at a time."""

    text: bytes
    values: tuple[bytes, ...] = ()


class PostgresBroker:
    """See ``brokers.Broker``."""

    producer = "pg_notify-producer"

    def __init__(
        self,
        settings: Postgres,
        selector: selectors.BaseSelector,
        tell: Callable[[Event], None],
        receiver: Receiver,
    ) -> None:
        """Connect; if that fails, report it and keep trying."""
        self._settings = settings
        self._selector = selector
        self._tell = tell
        self._receiver = receiver
        self._name = f"PostgreSQL ({', '.join(settings.channels)})"
        self._connection: Connection | None = None
        self._fd = -1
        self._mask = 0
        self._paused = False
        self._stopped_accepting = False
        self._unsent: deque[Statement] = deque()
        self._asked_at: float | None = None
        self._claim_delegated = False
        self._heard_at = 0.0
        self._failures = 0
        self._notifications = self._losses = self._looks = 0
        self._degraded = False
        self._connect_at = 0.0
        self._connector = Connector(settings, selector, self._connected)
        self._connect()
        self._connector.wait(CONNECT_SECONDS)

    def deadline(self) -> float:
        """Return when ``tick`` is due (monotonic seconds)."""
        if self._connection is None:
            return self._connect_at
        if self._asked_at is not None:
            return self._asked_at + ANSWER_SECONDS
        idle = self._settings.idle_seconds
        return self._heard_at + idle if idle else float("inf")

    def tick(self, now: float) -> None:
        """Connect again, or probe the connection."""
        if self._stopped_accepting or now < self.deadline():
            return
        if self._connection is None:
            self._connect()
        elif self._asked_at is not None:
            self._lost("it does not answer")
        elif not self._paused:
            self._heard_at = now
            self._looks += 1
            self._say(Statement(_LOOK))

    def status(self) -> dict[str, Any]:
        """Return the entry in dispatcherd's ``producers``, without its uptime."""
        return {
            "produced_count": self._notifications,
            "recycle_count": self._losses,
            "broker_self_check": {
                "enabled": self._settings.idle_seconds > 0,
                "success_count": self._looks,
                "average_time_seconds": None,
                "max_time_seconds": None,
            },
        }

    def pause(self, paused: bool) -> None:
        """Stop reading, or go on: PostgreSQL keeps what it cannot send."""
        self._paused = paused
        if self._connection is not None:
            # The selector does not report what libpq has read already.
            self._hand_over()
        self._watch()

    def stop_accepting(self) -> None:
        """Deliver everything that has arrived, and listen no more."""
        if self._stopped_accepting:
            return
        self._stopped_accepting = True
        self._paused = False
        if self._connection is not None:
            self._take_in()

    def close(self) -> None:
        """Send what is still to be sent, and disconnect."""
        self.stop_accepting()
        self._paused = True
        until = time.monotonic() + FAREWELL_SECONDS
        while (self._unsent or self._asked_at is not None) and time.monotonic() < until:
            if self._connection is None:
                break
            time.sleep(0.005)
            self._take_in()
            self._go_on()
        self._let_go()
        self._connector.close()

    # --- connecting -------------------------------------------------------------------------------

    def _connect(self) -> None:
        self._connect_at = float("inf")
        self._connector.begin()

    def _connected(self, made: Connection | str) -> None:
        if isinstance(made, str):
            self._failed(made)
        elif self._stopped_accepting:
            made.close()
        else:
            self._begin(made)

    def _begin(self, connection: Connection) -> None:
        self._connection, self._fd = connection, connection.pgconn.socket
        self._asked_at, self._mask = None, 0
        self._heard_at = time.monotonic()
        self._failures = 0
        if self._degraded:
            self._degraded = False
            self._tell(ConditionRecovered(self._name))
        # Notifications that arrived during LISTEN are in libpq, and not in the socket.
        self._hand_over()
        self._go_on()

    def _lost(self, why: str) -> None:
        self._losses += 1
        self._let_go()
        self._failed(why)

    def _failed(self, why: str) -> None:
        delay = min(AGAIN_SECONDS * 2.0 ** min(self._failures, 10), AGAIN_SECONDS_MAX)
        self._failures += 1
        self._connect_at = time.monotonic() + delay
        if self._stopped_accepting or self._degraded:
            return
        self._degraded = True
        text = f"{self._name}: no connection, tasks sent meanwhile are lost: {why[:300]}"
        todo = "it is tried again and again; see that the server runs and lets us in"
        self._tell(Degraded(self._name, text, todo, stops=False))

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._mask:
            self._selector.unregister(self._fd)
            self._mask = 0
        self._asked_at = None
        self._unsent.clear()
        connection.close()

    # --- talking ----------------------------------------------------------------------------------

    def _answer(self, reply_to: str) -> Answer:
        def send(text: str) -> None:
            name = reply_to.encode()
            if len(name) > CHANNEL_BYTES_MAX or "\0" in reply_to:
                self._receiver.warn(f"dispatcherd: {reply_to[:80]!r} is no channel to reply to")
                return
            for chunk in in_chunks(text, POSTGRES_BYTES_MAX):
                self._say(Statement(_NOTIFY, (name, chunk.encode())))

        return send

    def _say(self, statement: Statement) -> None:
        if self._connection is not None and len(self._unsent) < UNSENT_MAX:
            self._unsent.append(statement)
            self._go_on()

    def _ready(self, mask: int) -> None:
        if mask & selectors.EVENT_READ:
            self._take_in()
        self._go_on()

    def _take_in(self) -> None:
        from psycopg import OperationalError

        assert self._connection is not None
        try:
            self._connection.pgconn.consume_input()
        except OperationalError as error:
            self._hand_over()
            self._lost(" ".join(str(error).split()))
            return
        self._heard_at = time.monotonic()
        self._hand_over()

    def _hand_over(self) -> None:
        if self._claim_delegated:
            return  # The outer call goes on after the answer to one of its messages has been sent.
        self._claim_delegated = True
        try:
            while not self._paused and self._connection is not None:
                if (notification := self._connection.pgconn.notifies()) is None:
                    break
                self._notifications += 1
                channel = notification.relname.decode("utf-8", "replace")
                self._receiver.receive(notification.extra, channel, self._answer)
        finally:
            self._claim_delegated = False

    def _go_on(self) -> None:
        """Read answers and send the next statement, without blocking."""
        from psycopg import OperationalError

        try:
            self._converse()
        except OperationalError as error:
            self._lost(" ".join(str(error).split()))
        # libpq looks at data behind the end of a statement only after that end.
        self._hand_over()
        self._watch()

    def _converse(self) -> None:
        if self._connection is None:
            return
        libpq = self._connection.pgconn
        while True:
            libpq.flush()
            if self._asked_at is not None:
                if libpq.is_busy():
                    return
                result = libpq.get_result()
                if result is not None:
                    if result.error_message:
                        self._receiver.warn(f"{self._name}: {result.get_error_message()[:200]}")
                    continue
                self._asked_at = None
            if not self._unsent:
                return
            statement = self._unsent.popleft()
            self._asked_at = time.monotonic()
            libpq.send_query_params(statement.text, list(statement.values))

    def _watch(self) -> None:
        if self._connection is None:
            return
        wanted = 0 if self._paused else selectors.EVENT_READ
        if self._asked_at is not None and self._connection.pgconn.flush():
            wanted |= selectors.EVENT_WRITE
        before, self._mask = self._mask, wanted
        if wanted == before:
            return
        if not wanted:
            self._selector.unregister(self._fd)
        elif not before:
            self._selector.register(self._fd, wanted, self._ready)
        else:
            self._selector.modify(self._fd, wanted, self._ready)
