"""The live page: access control and content. ``watch --web`` and ``start --web``.

A small server in its own process, for one person of this machine. It is the standard
``http.server``, with a thread for each of a few viewers: docs/internals/decisions/dashboard.md

Attackers, and the protection against them:

- **Another user of this machine** can connect, and can read command lines. Every path begins with a
  token of 128 bits that is compared in constant time. The token is written only to a pipe, to a
  terminal, and to a file for its owner alone. A connection without a token is cut off after
  ``HEAD_SECONDS``.
- **Another user who takes the port of a server that has ended** receives the token, which is
  worthless by then. An open page trusts only a server that has proved itself: ``web_resumption``.
- **A site in the browser whose name points at this machine** (DNS rebinding): the ``Host`` has to
  be this machine's own, or one that the user named. Such a site does not know the token either.
- **Such a site that sends requests here**: no request from another origin is answered. To control,
  a request also needs the token in a header, the ``Origin`` of the page, and ``--web-control``.
- **An agent of this fleet** that reads the token: its requests to control the fleet are refused if
  the kernel still knows whose they are (``runtime.within_attempt``; docs/TRUST.md).
- **A hostile title, error or log**: the page makes text nodes only. Its policy allows one style and
  one script by their hashes, no other source of anything, and no markup from strings.
- **A viewer that stalls** misses frames, and is dropped after ``WRITE_SECONDS``.
"""

from __future__ import annotations

import hmac
import json
import re
import socket
import socketserver
import sys
import threading
import time
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree.ElementTree import tostring

from beads_workers.core.base.text import is_local
from beads_workers.ui.report_html import ICON, policy_hash, read_own
from beads_workers.ui.report_html import patterns as report_patterns
from beads_workers.ui.web_resumption import Resumption
from beads_workers.ui.web_state import Message, PageState

HOST = "127.0.0.1"
NOT_OURS = """{0} is no name of this page. If it is your tunnel's, set in beads-workers.toml:
[web]
hosts = ["{0}"]
"""
"""What a refusal says about the name that was asked for."""
HEAD_SECONDS = 10.0
"""Time from the connection to the end of the request."""

WRITE_SECONDS = 10.0
"""Time to send one event; a viewer that has not read the earlier ones by then is dropped."""

SEND_BYTES = 1 << 16
"""Kernel buffer for a viewer that does not read: some seconds of a hundred workers. What lies there
is in the way of an answer, if the line is slow."""

COMPRESS_BYTES_MIN = 500
"""Minimum size of an answer that is compressed."""

GZIP = 31
"""``wbits`` of ``zlib`` for a whole window, and the frame of gzip."""

CONNECTIONS_MAX = 64
BODY_BYTES_MAX = 1 << 16
TOKEN_HEADER = "X-Beads-Workers-Token"
RESUME = "/resume"
"""Path of a resumption; never a token: tokens have 22 characters."""

CONTROLS = {
    "bw.pause": ("worker_ids",),
    "bw.resume": ("worker_ids",),
    "bw.scale": ("workers", "relative"),
    "bw.stop": ("drain",),
    "bw.retry": ("issue_ids",),
    "bw.release": ("issue_ids",),
    "bw.answer": ("issue_ids", "text"),
    "bw.approve": ("commits",),
    "bw.reject": ("issue_ids", "text", "comments"),
    "bw.close": ("issue_ids",),
    "bw.merge": (),
}
"""Requests that the page may send, and the fields of each. Whoever carries them out checks their
values: the fleet, or without one the server."""

ASKED = frozenset(
    {"attempt", "brief", "diff", "download", "issues", "log", "nights", "report", "why"}
)
"""Paths of the page that are answered by ``Ask``."""


@dataclass(frozen=True, slots=True)
class Body:
    """An answer that is no JSON. ``kind``: its content type; ``headers``: more headers."""

    kind: str
    data: bytes
    headers: dict[str, str]


Ask = Callable[[str, dict[str, str]], Message | Body | None]
"""(one of ``ASKED``, its query) -> the answer; None if there is no such thing."""

MayControl = Callable[[tuple[str, int], int], bool]
"""(address of the viewer, our port) -> whether requests from there are a person's."""

Control = Callable[[str, Message], Message]
"""(request, fields) -> ``{"text"}`` or ``{"error"}``."""

# --- page ----------------------------------------------------------------------------------------


def script() -> str:
    """Return the script of the page, which is kept in two files."""
    return read_own("web.js").replace("  // {web_attempt.js}\n", read_own("web_attempt.js"))


def page(key: str, port: int) -> tuple[bytes, str]:
    """Return the page in one file, and its policy.

    Patterns, and the style of what both show, are those of the report. With ``key``, the page can
    verify the next server at this ``port``.
    """
    style, code = read_own("page.css") + read_own("web.css"), script()
    parts = {
        "icon": ICON,
        "key": key,
        "port": str(port),
        "style": style,
        "script": code,
        "patterns": tostring(report_patterns(), encoding="unicode", method="html"),
    }
    text = re.sub(r"\{(\w+)\}", lambda match: parts[match[1]], read_own("web.html"))
    policy = (
        f"default-src 'none'; style-src {policy_hash(style)}; script-src {policy_hash(code)};"
        " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return text.encode(), policy


# --- who may -------------------------------------------------------------------------------------


def is_for_us(hosts: list[str], names: Collection[str] = ()) -> bool:
    """Return whether a request with these ``Host`` headers was meant for this machine."""
    return len(hosts) == 1 and is_local(hosts[0], names)


def within(token: str, path: str) -> str | None:
    """Return the path after ``/TOKEN/``; None without the right token."""
    empty, _, rest = path.partition("/")
    sent_token, slash, inside = rest.partition("/")
    right = hmac.compare_digest(sent_token.encode("utf-8", "replace"), token.encode("ascii"))
    return inside if right and slash and not empty else None


def read_control(body: bytes) -> tuple[str, Message] | None:
    """Return the request of the page; None if it is malformed or not allowed."""
    try:
        request = json.loads(body)
        name, fields = request["control"], request["fields"]
        return name, {key: fields[key] for key in CONTROLS[name] if key in fields}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


# --- server --------------------------------------------------------------------------------------


class WebServer(ThreadingHTTPServer):
    """Server of the page, until ``shutdown``; raises ``OSError`` if the port is taken.

    ``control``: None for a page that can only show.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        port: int,
        token: str,
        key: str,
        shown: PageState,
        *,
        ask: Ask,
        control: Control | None,
        may_control: MayControl = lambda viewer, port: True,
        head_seconds: float = HEAD_SECONDS,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        """Bind the port; 0: any free one. ``key``: see ``web_resumption``."""
        self.token, self.shown = token, shown
        self.hosts: Collection[str] = ()
        """Names under which the user's tunnels lead here."""
        self.head_seconds, self.write_seconds = head_seconds, write_seconds
        self.ask, self.control, self._may_control = ask, control, may_control
        self._due: dict[object, float | None] = {}
        """Connection -> deadline of its request; None once the request is there."""
        self._lock = threading.Lock()
        super().__init__((HOST, port), _Handler)
        self.page, self.policy = page(key, self.server_port)
        self.resumption = Resumption(key, self.server_port, token)
        shown.say("hello", {"control": control is not None})

    @property
    def url(self) -> str:
        """The address of the page, with the token."""
        return f"http://{HOST}:{self.server_address[1]}/{self.token}/"

    def may_control(self, viewer: tuple[str, int]) -> bool:
        """Return whether requests from this address may control the fleet."""
        return self.control is not None and self._may_control(viewer, self.server_port)

    def server_bind(self) -> None:
        """Bind without looking up the name of this machine, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """See ``socketserver``: if there are too many connections, one is refused.

        Connections that have shown no token are cut off first, the oldest first, so that strangers
        keep nobody out.
        """
        with self._lock:
            full = len(self._due) >= CONNECTIONS_MAX
            silent = next((each for each, due in self._due.items() if due is not None), None)
            if not full or silent is not None:
                self._due[request] = time.monotonic() + self.head_seconds
        if full and silent is None:
            self.shutdown_request(request)
            return
        if full:
            self._cut_off(silent)
        super().process_request(request, client_address)

    def note_request(self, request: object) -> None:
        """Record that the request has come, with the token."""
        with self._lock:
            self._due[request] = None

    def shutdown_request(self, request: Any) -> None:
        """See ``socketserver``."""
        with self._lock:
            self._due.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut off connections whose request takes too long; called twice a second."""
        now = time.monotonic()
        with self._lock:
            late = [each for each, due in self._due.items() if due is not None and now > due]
        for request in late:
            self._cut_off(request)

    def _cut_off(self, request: object) -> None:
        with self._lock:
            self._due.pop(request, None)
        try:
            if isinstance(request, socket.socket):
                request.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # The connection has ended by itself.

    def handle_error(self, request: Any, client_address: Any) -> None:
        """See ``socketserver``: a broken connection is no error of ours."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


SAME = ("same-origin",)
_OURS = {"report": ("same-origin", "none")}
"""Who may ask for a path, if not only the page: a report is a tab that a person can load again."""


class _Handler(BaseHTTPRequestHandler):
    """A connection with one request (HTTP/1.0)."""

    server: WebServer

    def setup(self) -> None:
        """See ``socketserver``."""
        self.request.settimeout(self.server.head_seconds)
        super().setup()

    def do_GET(self) -> None:
        """Answer with the page, its stream of events, or what it asks for."""
        where = self._judged()
        if where is None:
            return
        path, query = where
        if path is None:
            self._resume(query)
            return
        self.server.note_request(self.request)
        if path == "":
            security = {"Content-Security-Policy": self.server.policy}
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page, security)
        elif self.headers.get("Sec-Fetch-Site", "same-origin") not in _OURS.get(path, SAME):
            self._refuse(HTTPStatus.FORBIDDEN)
        elif path == "events":
            self._stream()
        elif path == "seen":
            self.server.shown.end_was_read = True
            self._json({})
        elif path in ASKED:
            self._give(self.server.ask(path, {name: each[0] for name, each in query.items()}))
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def _give(self, found: Message | Body | None) -> None:
        match found:
            case None:
                self._refuse(HTTPStatus.NOT_FOUND)
            case Body(kind, data, headers):
                self._answer(HTTPStatus.OK, kind, data, headers)
            case _:
                self._json(found)

    def do_POST(self) -> None:
        """Carry out a control request if the server allows control."""
        where = self._judged()
        if where is None:
            return
        if where[0] != "control":
            self._refuse(HTTPStatus.NOT_FOUND)
        elif self.server.control is None or not self._from_the_page():
            self._refuse(HTTPStatus.FORBIDDEN)
        elif (asked := self._asked()) is None:
            self._refuse(HTTPStatus.BAD_REQUEST)
        elif not self.server.may_control(self.client_address):
            self._refuse(HTTPStatus.FORBIDDEN)
        else:
            self.server.note_request(self.request)
            self._json(self.server.control(*asked))

    def _resume(self, query: dict[str, list[str]]) -> None:
        """Resume an open page that lost its server: the two steps of ``web_resumption``."""
        resumption = self.server.resumption
        if (nonce := query.get("nonce")) is not None:
            found = resumption.challenge(nonce[0])
        else:
            challenge, proof = query.get("challenge", [""]), query.get("proof", [""])
            found = resumption.answer(challenge[0], proof[0])
        if found is None or self.headers.get("Sec-Fetch-Site") != "same-origin":
            self._refuse(HTTPStatus.FORBIDDEN)
        else:
            self._json(found)

    def _judged(self) -> tuple[str | None, dict[str, list[str]]] | None:
        """Return the path within the page and the query; None if the request was refused.

        A path of None is ``/resume``, the only path outside the page.
        """
        parts = urlsplit(self.path)
        hosts = self.headers.get_all("Host", [])
        if not is_for_us(hosts, self.server.hosts):
            asked = re.match(r"[\w.-]+", "".join(hosts), re.ASCII)
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, NOT_OURS.format(asked[0]) if asked else "")
        elif not parts.netloc and parts.path == RESUME:
            return None, parse_qs(parts.query)
        elif parts.netloc or (inside := within(self.server.token, parts.path)) is None:
            self._refuse(HTTPStatus.NOT_FOUND)
        else:
            return inside, parse_qs(parts.query)
        return None

    def _from_the_page(self) -> bool:
        host = self.headers.get("Host", "").strip()
        sent_token = self.headers.get(TOKEN_HEADER, "").encode("utf-8", "replace")
        return (
            self.headers.get_all("Origin") in ([f"http://{host}"], [f"https://{host}"])
            and hmac.compare_digest(sent_token, self.server.token.encode("ascii"))
            and self.headers.get_content_type() == "application/json"
        )

    def _asked(self) -> tuple[str, Message] | None:
        """Return the request in the body; None if it is malformed."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
            return None
        return read_control(self.rfile.read(int(length)))

    def _stream(self) -> None:
        if not self.server.shown.enter():
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        try:
            self.connection.settimeout(self.server.write_seconds)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
            if not self._takes_gzip():
                self._head(HTTPStatus.OK, "text/event-stream", {})
                for events in self.server.shown.follow():
                    self.wfile.write(events)
                return
            self._head(HTTPStatus.OK, "text/event-stream", {"Content-Encoding": "gzip"})
            stream = zlib.compressobj(wbits=GZIP)
            for events in self.server.shown.follow():
                # Flushed, so that the viewer can read each event as it comes.
                self.wfile.write(stream.compress(events) + stream.flush(zlib.Z_SYNC_FLUSH))
        except OSError:
            pass  # The viewer has left, or does not read.
        finally:
            self.server.shown.leave()

    def _json(self, value: Message) -> None:
        self._answer(HTTPStatus.OK, "application/json", json.dumps(value).encode("ascii"), {})

    def _refuse(self, status: HTTPStatus, why: str = "") -> None:
        text = f"{status.value} {status.phrase}\n{why}".encode("ascii")
        self._answer(status, "text/plain; charset=utf-8", text, {})

    def _answer(self, status: HTTPStatus, kind: str, body: bytes, headers: dict[str, str]) -> None:
        headers = headers | {"Vary": "Accept-Encoding"}
        if len(body) >= COMPRESS_BYTES_MIN and self._takes_gzip():
            body = zlib.compress(body, wbits=GZIP)
            headers |= {"Content-Encoding": "gzip"}
        self._head(status, kind, headers | {"Content-Length": str(len(body))})
        self.wfile.write(body)

    def _takes_gzip(self) -> bool:
        accepted = self.headers.get("Accept-Encoding", "").replace(" ", "").lower().split(",")
        return "gzip" in accepted

    def _head(self, status: HTTPStatus, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (_HEADERS | {"Content-Type": kind} | headers).items():
            self.send_header(name, value)
        self.end_headers()

    def version_string(self) -> str:
        """Return a name without the version of Python."""
        return "beads-workers"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: paths have the token."""


_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
