"""The little of HTTP that a scrape needs."""

from __future__ import annotations

import pytest

from beads_workers.integrations.metrics import server

REST = b"\r\nHost: localhost:9464\r\n\r\n"


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        (b"GET /metrics HTTP/1.1", server.HttpRequest(server.HttpStatus.OK)),
        (b"GET /metrics?name=a HTTP/1.0", server.HttpRequest(server.HttpStatus.OK)),
        (b"HEAD /metrics HTTP/1.1", server.HttpRequest(server.HttpStatus.OK, head_only=True)),
        (b"GET / HTTP/1.1", server.HttpRequest(server.HttpStatus.NOT_FOUND)),
        (b"GET /metrics/ HTTP/1.1", server.HttpRequest(server.HttpStatus.NOT_FOUND)),
        (b"POST /metrics HTTP/1.1", server.HttpRequest(server.HttpStatus.NOT_ALLOWED)),
        (b"get /metrics HTTP/1.1", server.HttpRequest(server.HttpStatus.BAD_REQUEST)),
        (b"GET /metrics", server.HttpRequest(server.HttpStatus.BAD_REQUEST)),
        (b"\x16\x03\x01\x02", server.HttpRequest(server.HttpStatus.BAD_REQUEST)),
        (b"", server.HttpRequest(server.HttpStatus.BAD_REQUEST)),
    ],
)
def test_a_request_is_judged_by_its_first_line(line: bytes, asked: server.HttpRequest) -> None:
    assert server.judge(line + REST, "/metrics") == asked


def test_nothing_is_answered_before_the_head_is_whole() -> None:
    whole = b"GET /metrics HTTP/1.1" + REST
    assert [server.judge(whole[:n], "/metrics") for n in range(len(whole))] == [None] * len(whole)
    assert server.judge(whole.replace(b"\r", b""), "/metrics") == server.HttpRequest(
        server.HttpStatus.OK
    )


def test_a_head_without_end_is_too_large() -> None:
    line = b"GET /metrics HTTP/1.1\r\nX: "
    assert server.judge(line + b"x" * server.HEAD_BYTES_MAX, "/metrics") == server.HttpRequest(
        server.HttpStatus.TOO_LARGE
    )
    assert server.judge(line.ljust(server.HEAD_BYTES_MAX - 1, b"x"), "/metrics") is None
    last = line.ljust(server.HEAD_BYTES_MAX - 4, b"x") + b"\r\n\r\n"
    assert server.judge(last, "/metrics") == server.HttpRequest(server.HttpStatus.OK)


def test_an_answer_says_its_length_and_that_it_is_the_last() -> None:
    answer = server.response(server.HttpRequest(server.HttpStatus.OK), "text/plain", b"abc")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nContent-Length: 3\r\n" in head and b"\r\nConnection: close" in head
    assert body == b"abc"
    assert (
        server.response(
            server.HttpRequest(server.HttpStatus.OK, head_only=True), "text/plain", b"abc"
        )
        == head + b"\r\n\r\n"
    )
    assert b"\r\nAllow: GET, HEAD\r\n" in server.response(
        server.HttpRequest(server.HttpStatus.NOT_ALLOWED), "text/plain", b""
    )


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"Host: 127.0.0.1:9464", server.HttpStatus.OK),
        (b"host:LOCALHOST", server.HttpStatus.OK),
        (b"Host: [::1]:9", server.HttpStatus.OK),
        (b"Accept: */*", server.HttpStatus.OK),
        (b"Host: rebound.example:9464", server.HttpStatus.MISDIRECTED),
        (b"Host: localhost\r\nHost: rebound.example", server.HttpStatus.MISDIRECTED),
        (b"Host: localhost.example", server.HttpStatus.MISDIRECTED),
        (b"Host : rebound.example", server.HttpStatus.MISDIRECTED),
        (b"Host:", server.HttpStatus.MISDIRECTED),
    ],
)
def test_a_page_that_gave_its_name_our_address_reads_nothing(
    host: bytes, status: server.HttpStatus
) -> None:
    head = b"GET /metrics HTTP/1.1\r\nA: b\r\n" + host + b"\r\n\r\n"
    assert server.judge(head, "/metrics") == server.HttpRequest(status)
