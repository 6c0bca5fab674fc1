"""One stream socket: lines in, bytes out, and never without bound."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.framing import Line
from beads_workers.runtime.kernel import system
from beads_workers.runtime.sockets import Stream

Pair = tuple[Stream, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Our end as a stream, and the peer's."""
    ours, theirs = socket.socketpair()
    yield Stream(ours, 1), theirs
    ours.close()
    theirs.close()


def test_lines_come_whole_however_they_are_cut(pair: Pair) -> None:
    stream, peer = pair
    peer.sendall(b"one\ntw")
    assert [f.text for f in stream.read() if isinstance(f, Line)] == [b"one"]
    peer.sendall(b"o\n")
    assert [f.text for f in stream.read() if isinstance(f, Line)] == [b"two"]


def test_nothing_there_is_no_end(pair: Pair) -> None:
    stream, _ = pair
    assert stream.read() == [] and not stream.closed


def test_the_end_of_the_stream_brings_the_torn_line_to_light(pair: Pair) -> None:
    stream, peer = pair
    peer.sendall(b"half")
    peer.shutdown(socket.SHUT_WR)
    assert stream.read() == []
    (torn,) = stream.read()
    assert not isinstance(torn, Line) and torn.head == b"half"
    assert stream.closed and stream.reason == "the other end closed it"


def test_what_does_not_fit_waits_and_arrives_in_order(pair: Pair) -> None:
    stream, peer = pair
    sent = bytes(range(256)) * 8192
    stream.queue(sent)
    assert stream.flush(), "a socket's buffer is smaller than two megabytes"
    received = b""
    while len(received) < len(sent):
        received += peer.recv(1 << 20)
        stream.flush()
    assert received == sent and not stream.flush()


def test_a_peer_that_does_not_read_is_closed_at_the_limit(pair: Pair) -> None:
    stream, _ = pair
    stream.queue(b"x" * limits.OUTBOX_BYTES_MAX)
    assert not stream.closed
    stream.queue(b"x")
    assert stream.closed and stream.reason == "it does not read"
    assert not stream.flush()


def test_writing_to_a_peer_that_is_gone_ends_it_without_a_signal(pair: Pair) -> None:
    stream, peer = pair
    peer.close()
    stream.queue(b"x\n")
    assert not stream.flush() and not stream.closed
    assert stream.read() == [] and stream.closed and "pipe" in stream.reason.lower()


def test_the_first_reason_of_an_end_is_kept(pair: Pair) -> None:
    stream, peer = pair
    stream.hang_up("did not leave in time")
    peer.close()
    stream.read()
    assert stream.reason == "did not leave in time"


def test_the_kernel_says_who_the_peer_is(pair: Pair) -> None:
    stream, _ = pair
    assert system.peer_of(stream.socket) == (os.getpid(), os.getuid())


class Short(socket.socket):
    """Meets an error once, whenever it is to send."""

    error = 0

    def send(self, data: Any, flags: int = 0) -> int:
        if error := self.error:
            self.error = 0
            raise OSError(error, os.strerror(error))
        return super().send(data, flags)


@pytest.mark.parametrize("error", [errno.ENOBUFS, errno.ENOMEM, errno.EINTR])
def test_a_kernel_that_is_short_of_memory_ends_no_connection(error: int) -> None:
    ours, peer = socket.socketpair()
    short = Short(fileno=ours.detach())
    stream = Stream(short, 1)
    short.error = error
    stream.queue(b"words\n")
    assert stream.flush() and not stream.closed
    assert not stream.flush() and peer.recv(100) == b"words\n"
    short.error = errno.ECONNRESET
    stream.queue(b"more\n")
    assert not stream.flush() and stream.read() == [] and stream.closed
    stream.release()
    peer.close()
