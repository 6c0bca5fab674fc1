"""A forge that misbehaves costs nothing but time, and a token goes nowhere else."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from beads_workers.integrations.forge import web
from beads_workers.integrations.forge.api import ForgeDown, ForgeError, ForgeRepository, Gone
from beads_workers.integrations.forge.gitea import Gitea
from beads_workers.integrations.forge.web import Http

TOKEN = "secret-token"


class Server(http.server.ThreadingHTTPServer):
    """Answers as it is told, and keeps who has asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.asked: list[tuple[str, str | None]] = []
        self.stalls = False
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        status, headers, body = (
            self.server.answers.pop(0) if self.server.answers else (200, {}, b"")
        )
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if self.server.stalls:
            time.sleep(3)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def http_(server: Server) -> Iterator[Http]:
    made = Http(server.url, TOKEN)
    yield made
    made.close()


def test_an_answer_is_read_with_our_token(server: Server, http_: Http) -> None:
    server.answers.append((200, {"X-Total": "3"}, b'[{"a": 1}]'))
    reply = http_.ask("GET", "/x?y=1")
    assert (reply.status, reply.data, reply.headers["x-total"]) == (200, [{"a": 1}], "3")
    assert server.asked == [("/x?y=1", f"token {TOKEN}")]
    assert http_.said_at[:2] == "20" and http_.calls.count == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [(500, ForgeDown), (502, ForgeDown), (401, ForgeError), (403, ForgeError), (404, Gone)],
)
def test_an_error_is_one(server: Server, http_: Http, status: int, error: type[Exception]) -> None:
    server.answers.append((status, {}, b'{"message": "no such thing"}'))
    with pytest.raises(error):
        http_.ask("GET", "/x")
    assert http_.ask("GET", "/x").status == 200, "it is asked again"


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (429, {"Retry-After": "1"}, b"{}"),
        (403, {"Retry-After": "1"}, b"{}"),
        (503, {"Retry-After": "1"}, b"<html>"),
        (403, {}, b'{"message": "You have exceeded a secondary rate limit"}'),
        (403, {"X-RateLimit-Remaining": "0"}, b"{}"),
    ],
)
def test_a_forge_that_wants_to_be_left_alone_is(
    server: Server,
    http_: Http,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    headers: dict[str, str],
    body: bytes,
) -> None:
    monkeypatch.setattr(web, "RETRY_SECONDS", 1.0)
    server.answers.append((status, headers, body))
    with pytest.raises(ForgeDown, match="asked again in"):
        http_.ask("GET", "/x")
    for _ in range(3):
        with pytest.raises(ForgeDown):
            http_.ask("GET", "/x")
    assert len(server.asked) == 1
    time.sleep(1.1)
    assert http_.ask("GET", "/x").status == 200


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(server: Server, http_: Http, status: int) -> None:
    with Server() as other:
        threading.Thread(target=other.serve_forever, args=(0.05,), daemon=True).start()
        server.answers.append((status, {"Location": f"{other.url}/y"}, b""))
        with pytest.raises(ForgeError, match="leads elsewhere"):
            http_.ask("GET", "/x")
        assert other.asked == []
        other.shutdown()


@pytest.mark.parametrize("body", [b"<html>", b'{"a": ', b"[" * 100_000, b"\xff\xfe"])
def test_half_an_answer_is_none(server: Server, http_: Http, body: bytes) -> None:
    server.answers.append((200, {}, body))
    with pytest.raises(ForgeError, match="no JSON"):
        http_.ask("GET", "/x")


def test_an_answer_that_breaks_off_is_none(server: Server, http_: Http) -> None:
    server.answers.append((200, {"Content-Length": "100", "Connection": "close"}, b'{"a": 1}'))
    with pytest.raises(ForgeError):
        http_.ask("GET", "/x")


def test_an_answer_that_never_ends_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "CALL_SECONDS", 0.5)
    server.stalls = True
    server.answers.append((200, {"Content-Length": "100"}, b'{"a": 1}'))
    began = time.monotonic()
    with pytest.raises(ForgeDown):
        Http(server.url, TOKEN).ask("GET", "/x")
    assert time.monotonic() - began < 3.0


def test_a_server_that_is_gone_is_down(server: Server) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(ForgeDown, match="does not answer"):
        Http(server.url, TOKEN).ask("GET", "/x")


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'"text"',
        b"[1]",
        b"[[]]",
        b'[{"number": "1", "state": "open"}]',
        b'[{"number": true, "state": "open"}]',
        b'[{"number": 1}]',
        b'[{"number": 1, "state": "open", "labels": 3}]',
        b'[{"number": 1, "state": "open", "labels": [3]}]',
        b"null",
    ],
)
def test_what_is_no_list_of_issues_is_an_error(server: Server, body: bytes) -> None:
    server.answers.append((200, {}, body))
    forge = Gitea(ForgeRepository("gitea", server.url, "o", "r"), {"GITEA_TOKEN": TOKEN})
    with pytest.raises(ForgeError):
        forge.issues("")


def test_without_a_token_nothing_is_asked(server: Server) -> None:
    with pytest.raises(ForgeError, match="no token"):
        Gitea(ForgeRepository("gitea", server.url, "o", "r"), {})
    assert server.asked == []


def test_a_list_without_pages_is_asked_for_once(server: Server) -> None:
    people = json.dumps([{"login": f"person-{number}"} for number in range(80)]).encode()
    server.answers += [(200, {}, people)] * 3
    forge = Gitea(ForgeRepository("gitea", server.url, "o", "r"), {"GITEA_TOKEN": TOKEN})
    assert forge.can_write("person-79") and not forge.can_write("eve")
    assert len(server.asked) == 1
