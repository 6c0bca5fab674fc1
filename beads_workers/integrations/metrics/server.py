"""``http://127.0.0.1:PORT/metrics``, in the orchestrator's loop. Source: docs/METRICS.md."""

from __future__ import annotations

import re
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from beads_workers.core.base.model import value
from beads_workers.core.base.text import is_local
from beads_workers.core.schedule.events import Event
from beads_workers.core.views.snapshot import Board
from beads_workers.integrations.metrics import figures
from beads_workers.integrations.metrics.figures import CONTENT_TYPE, ProcessUse, to_text
from beads_workers.runtime.kernel import system
from beads_workers.runtime.sockets import Acceptor, Peers, TcpListener

# --- http get ------------------------------------------------------------------------------------
# The part of HTTP/1.1 that a scrape needs: one GET on a connection, one answer, closed.
#
# Source: RFC 9112. No I/O: bytes in, bytes out.


HEAD_BYTES_MAX = 8192
"""Longest head of a request: a scraper sends some hundred bytes; browsers send cookies."""

_LINE = re.compile(rb"([A-Z]{1,16}) (\S{1,2000}) HTTP/1\.[01]", re.ASCII)


_HOST = re.compile(rb"(?im)^host[ \t]*:[ \t]*([^\r\n]*?)[ \t]*\r?$", re.ASCII)


class HttpStatus(Enum):
    """Status of an answer."""

    OK = "200 OK"
    BAD_REQUEST = "400 Bad Request"
    NOT_FOUND = "404 Not Found"
    NOT_ALLOWED = "405 Method Not Allowed"
    MISDIRECTED = "421 Misdirected Request"
    TOO_LARGE = "431 Request Header Fields Too Large"


@value
class HttpRequest:
    """A whole request, judged. ``head_only``: the answer is sent without its body (HEAD)."""

    status: HttpStatus
    head_only: bool = False


def judge(received: bytes, path: str) -> HttpRequest | None:
    """Return the answer to the bytes received so far; None while the head is not complete.

    ``path``: the only valid path; a query behind a question mark is ignored.
    """
    end = re.search(rb"\r?\n\r?\n", received[:HEAD_BYTES_MAX])
    if end is None:
        return HttpRequest(HttpStatus.TOO_LARGE) if len(received) >= HEAD_BYTES_MAX else None
    line = _LINE.fullmatch(received[: end.start()].split(b"\n", 1)[0].rstrip(b"\r"))
    if line is None:
        return HttpRequest(HttpStatus.BAD_REQUEST)
    if not _is_for_us(received[: end.start()]):
        return HttpRequest(HttpStatus.MISDIRECTED)
    head_only = line[1] == b"HEAD"
    if line[1] not in (b"GET", b"HEAD"):
        return HttpRequest(HttpStatus.NOT_ALLOWED)
    found = line[2].split(b"?", 1)[0] == path.encode("ascii")
    return HttpRequest(HttpStatus.OK if found else HttpStatus.NOT_FOUND, head_only)


def _is_for_us(head: bytes) -> bool:
    """Return whether a request names this machine as its host.

    A page elsewhere may give its own name our address. A request without a host is not from a
    browser.
    """
    return all(is_local(found[1].decode("latin-1")) for found in _HOST.finditer(head))


def response(asked: HttpRequest, content_type: str, body: bytes) -> bytes:
    """Return the whole answer; close the connection after it."""
    allow = "Allow: GET, HEAD\r\n" if asked.status is HttpStatus.NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {asked.status.value}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"{allow}Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + (b"" if asked.head_only else body)


# --- processes -----------------------------------------------------------------------------------
# The use of every process of this machine, read from /proc, one process at a time. Linux.


def read_all() -> Iterator[ProcessUse]:
    """Yield every process that exists now; those that come or go meanwhile may be missed.

    Takes some 15 microseconds for each: callers that must not block stop in between.
    """
    for pid in system.pids():
        if (process := read(pid)) is not None:
            yield process


def read(pid: int) -> ProcessUse | None:
    """Return one process; None if there is none with that pid (any more)."""
    stat = system.stat_of(pid)
    if stat is None:
        return None
    return ProcessUse(
        pid,
        parent=stat.parent,
        session=stat.session,
        cpu_seconds=stat.cpu_seconds,
        reaped_seconds=stat.reaped_seconds,
        resident_bytes=stat.resident_bytes,
    )


# --- server --------------------------------------------------------------------------------------
# Source: docs/METRICS.md.
#
# A scrape is computed in slices after a turn's replies have been sent, so that no worker waits for
# it. Clients that are slow, ask for something else or are too many are disconnected.


PATH = "/metrics"
VISITORS_MAX = 16
"""Most connections at a time; a monitoring system has one or two."""

VISIT_SECONDS = 5.0
"""Longest time from the first byte to the last; slower clients are disconnected."""

FRESH_SECONDS = 1.0
"""Time for which an answer is reused: nobody can make us work without end."""

SLICE_SECONDS = 0.0005
"""Work on a scrape in each turn of the loop: less time than handing out a task takes."""

LINGER_BYTES_MAX = 1 << 16
"""Most bytes that a client may send after its request. They are read, or the kernel would
discard our answer."""

Look = Callable[[], tuple[Board, float]]
"""Returns the board as it is now, and the elapsed seconds of the run."""


@dataclass(slots=True, eq=False)
class HttpClient:
    """One connection."""

    socket: socket.socket
    until: float
    received: bytes = b""
    # Its request, once complete.
    asked: HttpRequest | None = None
    # What is left to send: None until it is known, and empty once all was sent.
    answer: memoryview | None = None
    lingered: int = 0
    # The client sends no more, but may still read.
    silent: bool = False
    # Events that the selector watches, 0 for none.
    mask: int = 0


@dataclass(slots=True)
class Visits:
    """Counts of connections and answers, with dispatcherd's names."""

    connections_total: int = 0
    metrics_requests_served: int = 0
    bad_requests: int = 0
    internal_errors: int = 0
    not_found_responses: int = 0
    client_disconnects: int = 0
    request_timeouts: int = 0

    def answered(self, status: HttpStatus) -> None:
        """Count an answer."""
        if status is HttpStatus.OK:
            self.metrics_requests_served += 1
        elif status is HttpStatus.NOT_FOUND:
            self.not_found_responses += 1
        else:
            self.bad_requests += 1


@dataclass(slots=True)
class Scrape:
    """The last answer, and the next one in the making."""

    look: Look
    body: bytes = b""
    made_at: float = field(default=float("-inf"))
    _making: Iterator[bytes] | None = None

    def is_fresh(self, now: float) -> bool:
        """Return whether ``body`` is recent enough."""
        return now - self.made_at < FRESH_SECONDS

    def go_on(self, until: float) -> bool:
        """Work on the next answer until that time (monotonic); return True once ``body`` is new."""
        if self._making is None:
            self._making = self._make()
        for body in self._making:
            if body:
                self.body, self.made_at, self._making = body, time.monotonic(), None
                return True
            if time.monotonic() >= until:
                return False
        raise AssertionError("the last thing that is made is the body")

    def _make(self) -> Iterator[bytes]:
        found = []
        for process in read_all():
            found.append(process)
            yield b""
        board, elapsed = self.look()
        text = []
        for family in figures.families(board, elapsed):
            text.append(to_text([family]))
            yield b""
        for family in figures.usage_families(figures.watched(board), found):
            text.append(to_text([family]))
            yield b""
        yield "".join(text).encode()


class MetricsServer:
    """The server of figures, ticked by the loop; see the section text."""

    def __init__(
        self,
        listener: TcpListener,
        selector: selectors.BaseSelector,
        tell: Callable[[Event], None],
        look: Look,
    ) -> None:
        self._selector = selector
        self._visitors: list[HttpClient] = []
        self._scrape = Scrape(look)
        self._visits = Visits()
        self._place = listener.socket.getsockname()[:2]
        self._acceptor = Acceptor("the metrics port", listener, selector, tell, self._enter)

    @property
    def pending(self) -> bool:
        """Whether ``flush`` has work left."""
        return any(v.asked is not None and v.answer is None for v in self._visitors)

    def deadline(self) -> float:
        """Return when ``tick`` is due (monotonic seconds)."""
        return min([self._acceptor.deadline(), *(v.until for v in self._visitors)])

    def tick(self, now: float) -> None:
        """Disconnect clients that take too long."""
        self._acceptor.tick(now)
        for visitor in [v for v in self._visitors if now >= v.until]:
            self._visits.request_timeouts += visitor.answer is None
            self._drop(visitor)

    def flush(self, now: float) -> None:
        """Do another slice of work, once in each turn of the loop; answer clients if it is
        complete."""
        if not self.pending:
            return
        if self._scrape.is_fresh(now) or self._scrape.go_on(now + SLICE_SECONDS):
            for visitor in [v for v in self._visitors if v.asked and v.answer is None]:
                self._answer(visitor, self._scrape.body)

    def describe(self) -> dict[str, Any]:
        """Return address and counts of the server, with dispatcherd's keys."""
        host, port = self._place
        served = asdict(self._visits) | {"is_running": True}
        return {"host": host, "port": port, "ready": True, "http_server": served}

    def close(self) -> None:
        """Close the port and all connections: the run is over."""
        self._acceptor.close()
        for visitor in list(self._visitors):
            self._drop(visitor)

    # --- inside -------------------------------------------------------------------------------

    def _enter(self, peers: Peers) -> None:
        for sock, _ in peers:
            if len(self._visitors) >= VISITORS_MAX:
                sock.close()
                continue
            sock.setblocking(False)
            self._visits.connections_total += 1
            visitor = HttpClient(sock, time.monotonic() + VISIT_SECONDS)
            self._visitors.append(visitor)
            self._watch(visitor)

    def _watch(self, visitor: HttpClient) -> None:
        mask = 0 if visitor.silent else selectors.EVENT_READ
        mask |= selectors.EVENT_WRITE if visitor.answer else 0
        if visitor.mask and mask != visitor.mask:
            self._selector.unregister(visitor.socket)
        if mask and mask != visitor.mask:
            self._selector.register(visitor.socket, mask, lambda ready: self._ready(visitor, ready))
        visitor.mask = mask

    def _ready(self, visitor: HttpClient, mask: int) -> None:
        if mask & selectors.EVENT_READ:
            self._read(visitor)
        if mask & selectors.EVENT_WRITE and visitor in self._visitors:
            self._send(visitor)

    def _read(self, visitor: HttpClient) -> None:
        try:
            data = visitor.socket.recv(HEAD_BYTES_MAX)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data and visitor.asked is not None and (visitor.answer is None or visitor.answer):
            visitor.silent = True  # ``nc -N`` closes its side first, and waits for the answer.
            self._watch(visitor)
        elif not data:
            self._visits.client_disconnects += visitor.asked is None
            self._drop(visitor)
        elif visitor.asked is not None:
            visitor.lingered += len(data)
            if visitor.lingered > LINGER_BYTES_MAX:
                self._drop(visitor)
        else:
            visitor.received += data
            visitor.asked = judge(visitor.received, PATH)
            if visitor.asked is not None and visitor.asked.status is not HttpStatus.OK:
                self._answer(visitor, f"{visitor.asked.status.value}: GET {PATH}\n".encode())

    def _answer(self, visitor: HttpClient, body: bytes) -> None:
        assert visitor.asked is not None
        self._visits.answered(visitor.asked.status)
        ok = visitor.asked.status is HttpStatus.OK
        content_type = CONTENT_TYPE if ok else "text/plain; charset=utf-8"
        visitor.answer = memoryview(response(visitor.asked, content_type, body))
        self._send(visitor)

    def _send(self, visitor: HttpClient) -> None:
        assert visitor.answer is not None
        try:
            sent = visitor.socket.send(visitor.answer) if visitor.answer else 0
            visitor.answer = visitor.answer[sent:]
            if not visitor.answer:
                visitor.socket.shutdown(socket.SHUT_WR)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._drop(visitor)
            return
        if visitor.silent and not visitor.answer:
            self._drop(visitor)
        else:
            self._watch(visitor)

    def _drop(self, visitor: HttpClient) -> None:
        self._visitors.remove(visitor)
        if visitor.mask:
            self._selector.unregister(visitor.socket)
        visitor.socket.close()
        self._acceptor.room()
