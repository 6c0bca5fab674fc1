"""What a visitor of the metrics port, and of the live page, says."""

from __future__ import annotations

import json

from beads_workers.integrations.metrics.server import HEAD_BYTES_MAX, HttpRequest, HttpStatus, judge
from beads_workers.ui.web import CONTROLS, read_control
from tests.fuzz.inputs import cuts, objects, texts
from tests.fuzz.parser import Parser, require


def judge_holds(judged: object, data: bytes) -> None:
    """However it comes in pieces: one answer, at the end of the head or at the limit."""
    assert callable(judged)
    wanted = judged(data, "/metrics")
    ended = b"\n\n" in data or b"\n\r\n" in data
    require(wanted is not None or len(data) < HEAD_BYTES_MAX, "it listens without end")
    require(wanted is not None or not ended, "a whole head is not answered")
    if wanted is not None and wanted.status is HttpStatus.OK:
        require(data.startswith((b"GET /metrics", b"HEAD /metrics")), "what was not asked for")
    for pieces in cuts(data):
        received = b""
        for piece in pieces:
            received += piece
            if (early := judged(received, "/metrics")) is not None:
                require(early == wanted, f"{early} in pieces, {wanted} as a whole")
                break


def _by_its_first_word(data: bytes, path: str) -> HttpRequest | None:
    """Planted bug: does not wait for the end of the head."""
    return HttpRequest(HttpStatus.OK) if data.startswith(b"GET ") else judge(data, path)


def control_holds(read: object, data: bytes) -> None:
    """What the page may ask for, with no field but its own; anything else is None."""
    assert callable(read)
    if (found := read(data)) is not None:
        name, fields = found
        require(name in CONTROLS, f"{name!r} is passed on")
        require(set(fields) <= set(CONTROLS[name]), f"{name} with {sorted(fields)}")


def _obliging(body: bytes) -> object:
    """Planted bug: passes on whatever fields there are."""
    found = read_control(body)
    return found and (found[0], json.loads(body)["fields"])


PIECES = [
    b"GET ",
    b"HEAD ",
    b"/metrics",
    b"/metrics?a=b",
    b" HTTP/1.1",
    b"\r\n",
    b"\n",
    b"Host: localhost",
]

PARSERS = [
    Parser("scrapes", ("integrations/metrics/server.py",), judge,
           texts([*PIECES, b"\r\n\r\n", b"\0", b"x" * HEAD_BYTES_MAX]), judge_holds,
           {"answers too early": _by_its_first_word}),
    Parser(
        "requests of the page",
        ("ui/web.py",),
        read_control,
        objects(
            [
                {"control": "bw.pause", "fields": {"worker_ids": ["W1"]}},
                {"control": "bw.scale", "fields": {"workers": 3}},
                {"control": "bw.stop", "fields": {"drain": True, "reason": "no field of it"}},
            ]
        ),
        control_holds,
        {"any field": _obliging},
    ),
]  # fmt: skip
