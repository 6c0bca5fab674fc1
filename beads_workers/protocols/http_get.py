"""The little of HTTP/1.1 that a scrape needs: one GET on a connection, one answer, closed.

Source: RFC 9112. Pure: bytes in, bytes out.
"""

from __future__ import annotations

import re
from enum import Enum

from beads_workers.core.values import value

HEAD_BYTES_MAX = 8192
"""A scraper's request is some hundred bytes; browsers send cookies."""

_LINE = re.compile(rb"([A-Z]{1,16}) (\S{1,2000}) HTTP/1\.[01]", re.ASCII)


class Status(Enum):
    """What can be answered."""

    OK = "200 OK"
    BAD_REQUEST = "400 Bad Request"
    NOT_FOUND = "404 Not Found"
    NOT_ALLOWED = "405 Method Not Allowed"
    TOO_LARGE = "431 Request Header Fields Too Large"


@value
class Asked:
    """A whole request, judged. ``head_only``: the answer goes without its body (HEAD)."""

    status: Status
    head_only: bool = False


def judge(received: bytes, path: str) -> Asked | None:
    """What to answer to all that was received so far; None while the head is not complete.

    ``path``: the one that there is; what stands behind a question mark is ignored.
    """
    end = re.search(rb"\r?\n\r?\n", received[:HEAD_BYTES_MAX])
    if end is None:
        return Asked(Status.TOO_LARGE) if len(received) >= HEAD_BYTES_MAX else None
    line = _LINE.fullmatch(received[: end.start()].split(b"\n", 1)[0].rstrip(b"\r"))
    if line is None:
        return Asked(Status.BAD_REQUEST)
    head_only = line[1] == b"HEAD"
    if line[1] not in (b"GET", b"HEAD"):
        return Asked(Status.NOT_ALLOWED)
    found = line[2].split(b"?", 1)[0] == path.encode("ascii")
    return Asked(Status.OK if found else Status.NOT_FOUND, head_only)


def response(asked: Asked, content_type: str, body: bytes) -> bytes:
    """The whole answer, after which the connection is to be closed."""
    allow = "Allow: GET, HEAD\r\n" if asked.status is Status.NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {asked.status.value}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"{allow}Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + (b"" if asked.head_only else body)
