"""The server of the live page: who is let in, what is told, and who is cut off."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import zlib
from collections.abc import Iterator
from itertools import islice

import pytest

from beads_workers.cli.web_requests import WHAT
from beads_workers.ui.web import ASKED, CONNECTIONS_MAX, is_for_us, page, within
from beads_workers.ui.web_state import VIEWERS_MAX
from tests.support.fleet import until
from tests.support.web import KEY, TOKEN, Served, Viewer, busy_night


@pytest.fixture
def served() -> Iterator[Served]:
    """A page that can only be looked at."""
    opened = Served()
    yield opened
    opened.close()


@pytest.fixture
def controlled() -> Iterator[Served]:
    """A page that can control."""
    opened = Served(controls=True)
    yield opened
    opened.close()


def status_of(answer: bytes) -> int:
    """The code of an answer."""
    return int(answer.split(b" ", 2)[1])


# --- the page ---------------------------------------------------------------------------------


def test_the_policy_names_just_what_is_inside() -> None:
    body, policy = page("k", 1)
    text = body.decode()
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    for tag in ("style", "script"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.findall(r'\s(?:style|on\w+)="', text), "the policy would forbid these"
    assert not re.findall(r'(?:src|href|action|data|poster)="(?!#|data:image/svg)', text)
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", text)


def test_the_page_comes_with_its_policy_and_is_kept_by_nobody(served: Served) -> None:
    head, _, body = served.get("").partition(b"\r\n\r\n")
    assert status_of(head) == 200 and body == page(KEY, served.port)[0]
    told = dict(line.split(": ", 1) for line in head.decode().splitlines()[1:])
    assert told["Content-Security-Policy"] == page(KEY, served.port)[1]
    assert told["Cache-Control"] == "no-store" and told["Referrer-Policy"] == "no-referrer"
    assert told["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in told and "Python" not in head.decode()


# --- who may ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        (f"/{TOKEN}/", ""),
        (f"/{TOKEN}/events", "events"),
        (f"/{TOKEN}", None),
        (f"/{TOKEN}x/events", None),
        (f"/{TOKEN[:-1]}/events", None),
        ("/events", None),
        ("//", None),
        (f"x/{TOKEN}/", None),
        ("/\udc80/", None),
    ],
)
def test_only_the_token_leads_inside(path: str, inside: str | None) -> None:
    assert within(TOKEN, path) == inside


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1", "LOCALHOST:8080", "[::1]:80"])
def test_this_machine_is_local(host: str) -> None:
    assert is_for_us([host])


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [""],
        ["evil.example"],
        ["evil.example:8080"],
        ["127.0.0.1.evil.example"],
        ["localhost.evil.example:80"],
        ["evil.example:localhost"],
        ["127.0.0.1:80", "evil.example"],
        ["0.0.0.0:80"],
        ["localhost:"],
    ],
)
def test_no_other_host_is_local(hosts: list[str]) -> None:
    assert not is_for_us(hosts)


@pytest.mark.parametrize("path", ["", "events", "log?worker=W1", "control"])
def test_a_name_that_was_pointed_at_this_machine_is_refused(served: Served, path: str) -> None:
    for host in ("|Host: evil.example", "", f"|Host: localhost|Host: localhost:{served.port}"):
        assert status_of(served.call(f"GET /{TOKEN}/{path} HTTP/1.1{host}")) == 421


def test_a_refused_name_is_told_with_its_setting(served: Served) -> None:
    answer = served.call(f"GET /{TOKEN}/ HTTP/1.1|Host: box.tail.ts.net:80").decode()
    assert status_of(answer.encode()) == 421
    assert '[web]\nhosts = ["box.tail.ts.net"]\n' in answer and TOKEN not in answer
    assert b"hosts" not in served.call(f"GET /{TOKEN}/ HTTP/1.1|Host: <b>")


def test_a_name_that_the_user_gave_leads_to_the_page_and_no_other_does(controlled: Served) -> None:
    controlled.web.hosts = ("Box.tail.ts.net",)
    host = "box.tail.ts.net"
    assert status_of(controlled.call(f"GET /{TOKEN}/ HTTP/1.1|Host: {host}")) == 200
    assert status_of(controlled.call(f"GET / HTTP/1.1|Host: {host}")) == 404
    for origin in (f"https://{host}", f"http://{host}"):
        assert asked(controlled, PAUSE, Host=host, Origin=origin) == 200
    assert asked(controlled, PAUSE, Host=host, Origin="https://evil.example") == 403
    for other in ("evil.example", f"{host}.evil.example", f"x.{host}"):
        assert status_of(controlled.call(f"GET /{TOKEN}/ HTTP/1.1|Host: {other}")) == 421


def test_whoever_has_no_token_learns_nothing(served: Served) -> None:
    for path in ("/", "/events", "/x/", f"/{TOKEN.upper()}/", f"http://localhost/{TOKEN}/"):
        answer = served.call(f"GET {path} HTTP/1.1|Host: localhost")
        assert status_of(answer) == 404 and TOKEN.encode() not in answer


def test_another_site_may_link_to_the_page_and_read_nothing(served: Served) -> None:
    other = "Sec-Fetch-Site: cross-site"
    assert status_of(served.get("", other)) == 200
    for path in ("events", "log?worker=W1", "attempt", "diff", "download", "report", "seen"):
        assert status_of(served.get(path, other)) == 403
        assert status_of(served.get(path, "Sec-Fetch-Site: same-site")) == 403


# --- logs and control -------------------------------------------------------------------------


def test_what_is_asked_for_is_passed_on_and_nothing_else(served: Served) -> None:
    told = json.loads(served.get("log?worker=W1").partition(b"\r\n\r\n")[2])
    assert "all is well" in told["lines"]
    assert b"not here" in served.get("log?worker=W2")
    for path in ("nights", "logs", "log/", "../log", "attempts?issue=x", "web.json"):
        assert status_of(served.get(path)) == 404, "nobody has an answer"
    assert WHAT.keys() == ASKED


def asked(
    served: Served, request: object, *, path: str = "control", leave: str = "", **other: str
) -> int:
    """The status of a request to control, as the page makes it but for ``other`` and ``leave``."""
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    headers = {
        "Host": f"127.0.0.1:{served.port}",
        "Origin": f"http://127.0.0.1:{served.port}",
        "X-Beads-Workers-Token": TOKEN,
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }
    headers |= {name.replace("_", "-"): value for name, value in other.items()}
    lines = [f"{name}: {value}" for name, value in headers.items() if name != leave]
    answer = served.call("|".join([f"POST /{TOKEN}/{path} HTTP/1.1", *lines]), body)
    return status_of(answer)


PAUSE = {"control": "bw.pause", "fields": {}}


def test_a_page_that_may_control_asks_the_fleet(controlled: Served) -> None:
    assert asked(controlled, PAUSE) == 200
    scale = {"control": "bw.scale", "fields": {"workers": 3, "argv": ["rm"]}}
    assert asked(controlled, scale) == 200
    answer = {"issue_ids": ["a"], "text": "FOO"}
    forged = {"control": "bw.answer", "fields": answer | {"author": "somebody else"}}
    assert asked(controlled, forged) == 200
    # What the page has no business to say is not passed on.
    sent = [("bw.pause", {}), ("bw.scale", {"workers": 3}), ("bw.answer", answer)]
    assert controlled.asked == sent


def test_without_being_asked_for_there_is_no_control(served: Served) -> None:
    assert asked(served, PAUSE) == 403


@pytest.mark.parametrize(
    "other",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"leave": "Origin"},
        {"X_Beads_Workers_Token": TOKEN[:-1]},
        {"leave": "X-Beads-Workers-Token"},
        {"Content_Type": "text/plain"},
        {"leave": "Content-Type"},
    ],
)
def test_another_site_controls_nothing(controlled: Served, other: dict[str, str]) -> None:
    assert asked(controlled, PAUSE, **other) == 403
    assert asked(controlled, PAUSE, Host="evil.example", Origin="http://evil.example") == 421
    assert controlled.asked == []


@pytest.mark.parametrize(
    "told",
    [
        {"control": "bw.detach", "fields": {}},
        {"control": ["bw.pause"], "fields": {}},
        {"control": "bw.pause"},
        {"control": "bw.retry", "fields": None},
        [],
        b"{",
        b"[" * 60_000,
        b'{"control": "bw.pause", "fields": {}}' + b" " * 70_000,
    ],
)
def test_what_is_no_request_of_the_page_is_refused(controlled: Served, told: object) -> None:
    assert asked(controlled, told) == 400
    assert controlled.asked == []


def test_nothing_but_control_is_posted_to(controlled: Served) -> None:
    assert asked(controlled, PAUSE, path="events") == 404
    assert status_of(controlled.call(f"PUT /{TOKEN}/control HTTP/1.1|Host: localhost")) == 501


# --- viewers ----------------------------------------------------------------------------------


def test_a_viewer_is_told_all_that_is_known_and_then_what_is_new(served: Served) -> None:
    served.tell({"title": "two\nlines, and \u2028 one"})
    viewer = Viewer(served)
    head = viewer.head()
    assert status_of(head) == 200 and b"text/event-stream" in head
    known = dict(viewer.event() for _ in range(4))
    assert known["hello"] == {"control": False} and known["fleet"] == {"state": "live"}
    assert known["snapshot"] == {"title": "two\nlines, and \u2028 one"}
    assert known["attempts"] == {"anew": True, "dropped": 0, "rows": []}
    served.shown.add([("W1", "a", "A", 1, 0.0, 1.5, "success")])
    rows = [["W1", "a", "A", 1, 0.0, 1.5, "success"]]
    assert viewer.event() == ("attempts", {"anew": False, "dropped": 0, "rows": rows})
    served.tell({"title": "next"})
    assert viewer.event() == ("snapshot", {"title": "next"})
    viewer.close()


def test_a_phone_is_sent_little_of_a_hundred_workers() -> None:
    served = Served()
    nights = busy_night(100, 500)
    served.tell(next(nights))
    viewer = Viewer(served, zipped=True)
    assert b"Content-Encoding: gzip" in viewer.head()
    while viewer.event()[0] != "snapshot":
        pass
    assert viewer.received < 24_000, "the first frame"
    before, seconds = viewer.received, 60
    for snapshot in islice(nights, 4 * seconds):
        served.tell(snapshot)
        while (event := viewer.event())[0] != "snapshot":
            pass
        assert event[1]["totals"] == snapshot["totals"]
    assert viewer.received - before < 6000 * seconds
    viewer.close()
    served.close()


@pytest.mark.parametrize("path", ["", "log?worker=W1"])
def test_an_answer_is_compressed_for_whoever_takes_it(served: Served, path: str) -> None:
    plain = served.get(path).partition(b"\r\n\r\n")[2]
    for asks, is_zipped in (("gzip, br", True), ("br", False), ("identity", False)):
        head, _, body = served.get(path, f"Accept-Encoding: {asks}").partition(b"\r\n\r\n")
        assert (b"Content-Encoding: gzip" in head) is is_zipped
        assert f"Content-Length: {len(body)}".encode() in head
        assert (zlib.decompress(body, wbits=31) if is_zipped else body) == plain
        assert len(body) < len(plain) or not is_zipped


def test_eight_viewers_see_the_same(served: Served) -> None:
    viewers = [Viewer(served) for _ in range(8)]
    until(lambda: served.shown.viewers == 8)
    served.tell({"n": 1})
    for viewer in viewers:
        viewer.head()
        while viewer.event() != ("snapshot", {"n": 1}):
            pass
        viewer.close()
    for n in range(3):  # The first write after the end of a connection may still succeed.
        served.tell({"n": 2 + n})
    until(lambda: [served.tell({"n": 9, "of": k}) for k in range(2)] and not served.shown.viewers)


def test_a_viewer_that_does_not_read_is_dropped_and_holds_nobody_up() -> None:
    served = Served(write_seconds=0.3)
    slow = Viewer(served, receive_bytes=4096)
    quick = Viewer(served)
    quick.head()
    until(lambda: served.shown.viewers == 2)
    much = "x" * 200_000

    def told_until_dropped() -> bool:
        served.tell({"much": much, "n": len(sent)})
        sent.append(len(sent))
        while quick.event() != ("snapshot", {"much": much, "n": sent[-1]}):
            pass
        return served.shown.viewers == 1

    sent: list[int] = []
    until(told_until_dropped)
    slow.close()
    quick.close()
    served.close()


def test_too_many_viewers_are_refused(served: Served) -> None:
    viewers = [Viewer(served) for _ in range(VIEWERS_MAX)]
    until(lambda: served.shown.viewers == VIEWERS_MAX)
    assert status_of(served.get("events")) == 503
    assert status_of(served.get("")) == 200
    for viewer in viewers:
        viewer.close()


def test_whoever_does_not_ask_is_cut_off_and_then_there_is_room() -> None:
    served = Served(head_seconds=0.5)
    silent = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(CONNECTIONS_MAX)]
    silent[0].sendall(b"GET /")
    for each in silent:
        each.settimeout(20)
        assert each.recv(1 << 12) == b""
        each.close()
    assert status_of(served.get("")) == 200
    served.close()


def test_silent_connections_keep_nobody_out() -> None:
    served = Served()
    silent = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(CONNECTIONS_MAX)]
    until(lambda: len(served.web._due) == CONNECTIONS_MAX)
    assert status_of(served.get("")) == 200
    silent[0].settimeout(20)
    assert silent[0].recv(1) == b"", "the oldest has made room"
    for each in silent:
        each.close()
    served.close()
