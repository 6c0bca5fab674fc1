"""The server: requests in threads, one lock for what is decided, and a door for tests.

In a test's own process::

    with ModelApi() as api:
        api.account("sk-ant-oat01-a").close("five_hour", 7200)
        ... run claude with ANTHROPIC_BASE_URL=api.url ...
        assert api.accounts.total().tokens.output == 40

For other processes there is ``python -m tests.agents_api``, and HTTP:

- ``GET /stub/state``: accounts, charges, totals, requests
- ``POST /stub/accounts/NAME`` with any of ``{"open": true}``, ``{"login": false}``,
  ``{"credit": false}``, ``{"utilization": 0.92}``,
  ``{"close": {"window": "five_hour", "seconds": 7200, "late": 60, "unknown": false}}``
- ``POST /stub/script`` with ``{"script": "write a.txt x; commit"}``: for prompts without one
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.agents_api.accounts import FOREVER, Account, Accounts
from tests.agents_api.anthropic import Anthropic
from tests.agents_api.gemini import Gemini
from tests.agents_api.openai import OpenAI
from tests.agents_api.script import Fault, Script, ScriptError, Tokens, Turn, choose, seconds
from tests.agents_api.wire import Asked, Failure, Wire

SIDE = Turn(text="stub", tokens=Tokens(10, 1))
"""The answer to what a program asks for itself."""
WARNED = ("warn", "limit", "login", "credit")
"""Faults that change an account, and are then answered as its state demands."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request that came, and what became of it.

    ``outcome``: ``answered``, the verb of a fault, ``limit``, ``login``, ``credit``, ``unknown
    path``, ``stranger`` (another server was meant), ``script: ...`` (one that has a mistake)."""

    at: float
    account: str
    session: str
    path: str
    outcome: str


class ModelApi:
    """A stub of the model APIs on loopback. ``url`` is its base; close it, or use ``with``.

    ``scale``: how long a second of a script is; ``1 / 3600`` makes of ``2h`` two seconds.
    ``script``: for prompts that have none.
    """

    def __init__(self, *, port: int = 0, scale: float = 1.0, script: str = "") -> None:
        self.accounts = Accounts()
        self.requests: list[Request] = []
        self.script = script
        self.scale = scale
        self.closing = threading.Event()
        self._served: dict[tuple[str, int, int], int] = {}
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.api = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> ModelApi:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it, also where an answer is kept waiting."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def account(self, name: str) -> Account:
        """The account of a credential, to be changed."""
        return self.accounts.get(name)

    def note(self, account: str, session: str, path: str, outcome: str) -> None:
        """Write a request down."""
        with self.accounts.lock:
            self.requests.append(Request(time.time(), account, session, path, outcome))

    def decide(self, account: Account, asked: Asked) -> tuple[Turn, list[Fault]]:
        """The next turn of a conversation, and the faults that are due before it, in their order.

        Those that change the account have been applied. A fault that ends a response is the last
        of the list. Raises ``ScriptError``."""
        if asked.side:
            return SIDE, []
        script, turn = choose(asked.prompts, self.script)
        due: list[Fault] = []
        with self.accounts.lock:
            for place, fault in enumerate(turn.faults):
                key = (script.text, _position(script, turn), place)
                if self._served.get(key, 0) >= fault.times:
                    continue
                self._served[key] = self._served.get(key, 0) + 1
                if fault.verb in WARNED:
                    self._apply(account, fault)
                else:
                    due.append(fault)
                if fault.verb not in ("wait", "warn", "stall"):
                    break
        return turn, due

    def _apply(self, account: Account, fault: Fault) -> None:
        words = fault.words
        if fault.verb == "warn":
            account.utilization = float(words[0])
        elif fault.verb == "credit":
            account.credit = False
        elif fault.verb == "login":
            account.lose_login(seconds(words[0]) * self.scale if words else FOREVER)
        else:
            window = words[0] if words else "five_hour"
            span = words[1] if len(words) > 1 else "2h"
            unknown = span == "unknown"
            account.plan = words[2] if len(words) > 2 else account.plan
            length = seconds("2h" if unknown else span) * self.scale
            account.close(window, length, unknown=unknown)

    def change(self, name: str, body: dict[str, Any]) -> None:
        """What the door for other processes does to an account."""
        with self.accounts.lock:
            account = self.account(name)
            if body.get("open"):
                account.open()
            if "login" in body:
                account.lose_login(0 if body["login"] else FOREVER)
            account.credit = body.get("credit", account.credit)
            account.utilization = body.get("utilization", account.utilization)
            if "close" in body:
                account.close(**body["close"])

    def state(self) -> dict[str, Any]:
        """Everything, as JSON."""
        with self.accounts.lock:
            return self.accounts.state() | {"requests": [asdict(r) for r in self.requests]}


def _position(script: Script, turn: Turn) -> int:
    return next(i for i, other in enumerate(script.turns) if other is turn)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    api: ModelApi

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A program that was killed closes its connection in the middle: no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what came is in ``ModelApi.requests``."""

    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_GET(self) -> None:
        if self.path == "/stub/state":
            self._json(200, self.server.api.state())
        else:
            self.server.api.note("", "", self.path, "unknown path")
            self._json(404, {"error": {"type": "not_found_error", "message": "not in the stub"}})

    def do_CONNECT(self) -> None:
        """It is also the proxy of its agents: they wanted to talk to somebody else."""
        self.server.api.note("", "", self.path, "stranger")
        self._json(403, {"error": {"message": "the stub lets nobody out"}})

    def do_POST(self) -> None:
        api, path = self.server.api, urlsplit(self.path).path
        body = json.loads(self._body() or b"{}")
        if path == "/stub/script":
            api.script = body["script"]
            self._json(200, {})
        elif path.startswith("/stub/accounts/"):
            api.change(unquote(path.removeprefix("/stub/accounts/")), body)
            self._json(200, {})
        elif path.endswith("/count_tokens"):
            self._json(200, {"input_tokens": 1000})
        elif (wire := _wire(path)) is not None:
            try:
                self._model(wire, path, body)
            except ScriptError as error:
                api.note("", "", path, f"script: {error}")
                self._json(400, {"type": "error", "error": {"message": str(error)}})
        else:
            self.do_GET()

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        whole = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def _model(self, wire: Wire, path: str, body: dict[str, Any]) -> None:
        api = self.server.api
        headers = {name.lower(): text for name, text in self.headers.items()}
        asked = wire.asked(self.path, headers, body)
        with api.accounts.lock:
            account = api.account(wire.credential(headers))
            refusal, turn, faults = account.refusal(asked.model), SIDE, list[Fault]()
            if refusal is None:
                turn, faults = api.decide(account, asked)
                refusal = account.refusal(asked.model)
        last = faults[-1].verb if faults else "answered"
        api.note(account.name, asked.session, path, refusal.why if refusal else last)
        if refusal is not None:
            self._fail(wire.refusal(account, refusal))
            return
        for fault in faults:
            if fault.verb == "wait":
                self._wait(seconds(fault.words[0]) * api.scale)
            elif fault.verb in ("overload", "error", "busy"):
                self._fail(wire.failure(fault))
                return
            elif fault.verb in ("drop", "silence"):
                self._wait(FOREVER if fault.verb == "silence" else 0)
                self._break()
                return
        pieces = wire.answer(asked, turn)
        # Before it is sent: whoever has the answer finds it on the meter.
        complete = all(fault.verb != "cut" for fault in faults)
        api.accounts.charge(account, asked.session, asked.model, turn.tokens, complete)
        self._answer(asked, pieces, wire.headers(account), faults)

    def _answer(
        self, asked: Asked, pieces: list[bytes], headers: dict[str, str], faults: list[Fault]
    ) -> None:
        cut = any(fault.verb == "cut" for fault in faults)
        self.send_response(200)
        for name, text in headers.items():
            self.send_header(name, text)
        if not asked.stream:
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(pieces[0])))
            self.end_headers()
            self.wfile.write(pieces[0][: 20 if cut else None])
            if cut:
                self._break()
            return
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        stall = sum(seconds(f.words[0]) for f in faults if f.verb == "stall")
        # A stream that is cut has begun its answer, and lacks the end.
        for number, piece in enumerate(pieces[:-2] if cut else pieces):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            if number == 0 and stall:
                self._wait(stall * self.server.api.scale)
        if cut:
            self._break()
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _fail(self, failure: Failure) -> None:
        self.send_response(failure.status)
        for name, text in failure.headers.items():
            self.send_header(name, text)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(failure.body)))
        self.end_headers()
        self.wfile.write(failure.body)

    def _json(self, status: int, body: Any) -> None:
        self._fail(Failure(status, {}, json.dumps(body).encode()))

    def _wait(self, duration: float) -> None:
        """Until the time is over, the server ends, or the program closes its connection."""
        end = time.monotonic() + duration
        while (left := end - time.monotonic()) > 0 and not self.server.api.closing.is_set():
            readable, _, _ = select.select([self.connection], [], [], min(left, 0.1))
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                return

    def _break(self) -> None:
        """End the connection without the end of a response."""
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


_ANTHROPIC, _OPENAI, _GEMINI = Anthropic(), OpenAI(), Gemini()


def _wire(path: str) -> Wire | None:
    if path.endswith("/messages"):
        return _ANTHROPIC
    if path.endswith("/responses"):
        return _OPENAI
    if ":" in path and path.rpartition(":")[2].lower().endswith("generatecontent"):
        return _GEMINI
    return None
