"""The little of HTTP that a scrape needs."""

from __future__ import annotations

import pytest

from beads_workers.integrations.metrics.server import (
    HEAD_BYTES_MAX,
    HttpRequest,
    HttpStatus,
    judge,
    response,
)

REST = b"\r\nHost: localhost:9464\r\n\r\n"


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        (b"GET /metrics HTTP/1.1", HttpRequest(HttpStatus.OK)),
        (b"GET /metrics?name=a HTTP/1.0", HttpRequest(HttpStatus.OK)),
        (b"HEAD /metrics HTTP/1.1", HttpRequest(HttpStatus.OK, head_only=True)),
        (b"GET / HTTP/1.1", HttpRequest(HttpStatus.NOT_FOUND)),
        (b"GET /metrics/ HTTP/1.1", HttpRequest(HttpStatus.NOT_FOUND)),
        (b"POST /metrics HTTP/1.1", HttpRequest(HttpStatus.NOT_ALLOWED)),
        (b"get /metrics HTTP/1.1", HttpRequest(HttpStatus.BAD_REQUEST)),
        (b"GET /metrics", HttpRequest(HttpStatus.BAD_REQUEST)),
        (b"\x16\x03\x01\x02", HttpRequest(HttpStatus.BAD_REQUEST)),
        (b"", HttpRequest(HttpStatus.BAD_REQUEST)),
    ],
)
def test_a_request_is_judged_by_its_first_line(line: bytes, asked: HttpRequest) -> None:
    assert judge(line + REST, "/metrics") == asked


def test_nothing_is_answered_before_the_head_is_whole() -> None:
    whole = b"GET /metrics HTTP/1.1" + REST
    assert [judge(whole[:n], "/metrics") for n in range(len(whole))] == [None] * len(whole)
    assert judge(whole.replace(b"\r", b""), "/metrics") == HttpRequest(HttpStatus.OK)


def test_a_head_without_end_is_too_large() -> None:
    line = b"GET /metrics HTTP/1.1\r\nX: "
    assert judge(line + b"x" * HEAD_BYTES_MAX, "/metrics") == HttpRequest(HttpStatus.TOO_LARGE)
    assert judge(line.ljust(HEAD_BYTES_MAX - 1, b"x"), "/metrics") is None
    last = line.ljust(HEAD_BYTES_MAX - 4, b"x") + b"\r\n\r\n"
    assert judge(last, "/metrics") == HttpRequest(HttpStatus.OK)


def test_an_answer_says_its_length_and_that_it_is_the_last() -> None:
    answer = response(HttpRequest(HttpStatus.OK), "text/plain", b"abc")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nContent-Length: 3\r\n" in head and b"\r\nConnection: close" in head
    assert body == b"abc"
    assert (
        response(HttpRequest(HttpStatus.OK, head_only=True), "text/plain", b"abc")
        == head + b"\r\n\r\n"
    )
    assert b"\r\nAllow: GET, HEAD\r\n" in response(
        HttpRequest(HttpStatus.NOT_ALLOWED), "text/plain", b""
    )


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"Host: 127.0.0.1:9464", HttpStatus.OK),
        (b"host:LOCALHOST", HttpStatus.OK),
        (b"Host: [::1]:9", HttpStatus.OK),
        (b"Accept: */*", HttpStatus.OK),
        (b"Host: rebound.example:9464", HttpStatus.MISDIRECTED),
        (b"Host: localhost\r\nHost: rebound.example", HttpStatus.MISDIRECTED),
        (b"Host: localhost.example", HttpStatus.MISDIRECTED),
        (b"Host : rebound.example", HttpStatus.MISDIRECTED),
        (b"Host:", HttpStatus.MISDIRECTED),
    ],
)
def test_a_page_that_gave_its_name_our_address_reads_nothing(
    host: bytes, status: HttpStatus
) -> None:
    head = b"GET /metrics HTTP/1.1\r\nA: b\r\n" + host + b"\r\n\r\n"
    assert judge(head, "/metrics") == HttpRequest(status)
