"""The metrics port, turned by hand: who is answered, who is cut off, and when nothing is read."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families as read

from beads_workers.core.schedule.events import Event
from beads_workers.core.views.snapshot import Board
from beads_workers.integrations.metrics import server
from beads_workers.integrations.metrics.listener import LOOPBACK, listen, serve, url_of
from beads_workers.runtime import fleet
from beads_workers.runtime.handshake import StartRefused
from tests.support.fleet import until

GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Hall:
    """A server on a free port, and its loop. Looks at the board are counted."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.events: list[Event] = []
        listener = listen(0)
        assert listener is not None
        self.port = listener.port
        self.looks = 0
        self.server = serve(listener, self.selector, self.events.append, self.look)
        self.clients: list[socket.socket] = []

    def look(self) -> tuple[Board, float]:
        self.looks += 1
        return Board(), 1.0

    def visit(self, data: bytes = b"") -> socket.socket:
        client = socket.create_connection((LOOPBACK, self.port), 20)
        self.clients.append(client)
        client.sendall(data)
        return client

    def turn(self, now: float | None = None) -> None:
        """One turn of the loop; ``now``: later than it is."""
        for key, mask in self.selector.select(0):
            key.data(mask)
        self.server.flush(time.monotonic() if now is None else now)

    def until_over(self, client: socket.socket, now: float | None = None) -> bytes:
        """Turn until the server has ended what it says, which is returned."""
        client.setblocking(False)
        received = b""

        def ended() -> bool:
            nonlocal received
            self.turn(now)
            try:
                data = client.recv(1 << 16)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True
            received += data
            return not data

        until(ended)
        return received


@pytest.fixture
def hall() -> Iterator[Hall]:
    made = Hall()
    yield made
    made.server.close()
    for client in made.clients:
        client.close()


def test_a_scrape_is_answered_with_what_prometheus_reads(hall: Hall) -> None:
    head, _, body = hall.until_over(hall.visit(GET)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"text/plain; version=0.0.4" in head
    names = {family.name for family in read(body.decode())}
    assert {"beads_workers_workers", "beads_workers_orchestrator_cpu_seconds"} <= names


def test_a_request_in_single_bytes_is_answered_all_the_same(hall: Hall) -> None:
    client = hall.visit()
    for index in range(len(GET)):
        client.sendall(GET[index : index + 1])
        hall.turn()
    assert hall.until_over(client).startswith(b"HTTP/1.1 200 OK")


def test_who_ends_its_side_first_is_answered_all_the_same(hall: Hall) -> None:
    client = hall.visit(GET)
    client.shutdown(socket.SHUT_WR)
    until(lambda: (_turn(hall), any(v.silent for v in hall.server._visitors))[1])
    assert hall.until_over(client).startswith(b"HTTP/1.1 200 OK")
    assert hall.server._visitors == []


def test_who_leaves_before_its_answer_costs_nothing_more(hall: Hall) -> None:
    hall.visit(GET).close()
    until(lambda: (_turn(hall), hall.server.pending)[1])
    until(lambda: (hall.turn(), hall.server._visitors == [])[1])


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405"),
        (b"GET /etc/passwd HTTP/1.1\r\n\r\n", b"404"),
        (b"\x16\x03\x01 tls \r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 10_000, b"431"),
    ],
)
def test_anything_else_is_refused_and_nothing_is_worked_out(
    hall: Hall, request_: bytes, status: bytes
) -> None:
    assert hall.until_over(hall.visit(request_)).startswith(b"HTTP/1.1 " + status)
    assert hall.looks == 0


def test_who_says_nothing_or_does_not_read_is_cut_off_in_time(hall: Hall) -> None:
    silent = hall.visit()
    until(lambda: (hall.turn(), hall.server._visitors)[1])
    assert hall.server.deadline() < float("inf")
    until_at = hall.server._visitors[0].until
    hall.server.tick(until_at - 0.001)
    assert hall.server._visitors
    hall.server.tick(until_at)
    assert hall.server._visitors == []
    assert silent.recv(1) == b""


def test_a_crowd_is_turned_away_and_comes_in_again_later(hall: Hall) -> None:
    first = [hall.visit() for _ in range(server.VISITORS_MAX)]
    until(lambda: (hall.turn(), len(hall.server._visitors) == server.VISITORS_MAX)[1])
    assert hall.until_over(hall.visit(GET)) == b""
    first.pop().close()
    until(lambda: (hall.turn(), len(hall.server._visitors) < server.VISITORS_MAX)[1])
    assert hall.until_over(hall.visit(GET)).startswith(b"HTTP/1.1 200")


def test_who_talks_on_is_heard_only_so_far(hall: Hall) -> None:
    client = hall.visit(GET)
    client.setblocking(False)

    def cut_off() -> bool:
        try:
            client.send(b"x" * server.LINGER_BYTES_MAX)
        except BlockingIOError:
            pass
        except OSError:
            return True
        hall.turn()
        return False

    until(cut_off)
    assert hall.server._visitors == []


def test_scrapes_that_come_together_share_one_look_and_later_ones_get_a_new_one(hall: Hall) -> None:
    first = hall.until_over(hall.visit(GET))
    at_once = hall.server._scrape.made_at
    assert {hall.until_over(hall.visit(GET), at_once) for _ in range(2)} == {first}
    assert hall.looks == 1
    later = hall.server._scrape.made_at + server.FRESH_SECONDS
    hall.until_over(hall.visit(GET), later)
    assert hall.looks == 2


def test_the_work_is_done_in_slices_and_none_while_nobody_asks(hall: Hall) -> None:
    hall.turn()
    assert not hall.server.pending
    client = hall.visit(GET)
    until(lambda: (hall.selector.select(0.1), _turn(hall), hall.server.pending)[2])
    # A slice whose time is over already does one process, and leaves the rest.
    hall.server.flush(-server.SLICE_SECONDS)
    assert hall.server.pending and hall.looks == 0
    assert hall.until_over(client).startswith(b"HTTP/1.1 200")
    assert hall.looks == 1


def _turn(hall: Hall) -> None:
    for key, mask in hall.selector.select(0):
        key.data(mask)


def test_a_port_that_somebody_has_is_refused_in_words() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartRefused, match=f"127.0.0.1:{port}: Address already in use$"):
            listen(port)


def test_without_a_port_nothing_listens() -> None:
    assert fleet._listen(None) is None
    assert fleet._url_of(None) is None


def test_only_this_machine_can_connect(hall: Hall) -> None:
    assert url_of(hall.server._acceptor._listener) == f"http://127.0.0.1:{hall.port}/metrics"  # type: ignore[arg-type]
    assert server.VISIT_SECONDS < 10  # What one silent visitor can hold a place for.


def test_it_tells_how_visits_went_with_the_keys_of_dispatcherd(hall: Hall) -> None:
    hall.until_over(hall.visit(GET))
    hall.until_over(hall.visit(b"GET /else HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    hall.until_over(hall.visit(b"nonsense\r\n\r\n"))
    hall.visit(b"GET").close()
    disconnected = "client_disconnects"
    until(lambda: (hall.turn(), hall.server.describe()["http_server"][disconnected])[1])
    told = hall.server.describe()
    assert (told["host"], told["port"], told["ready"]) == (LOOPBACK, hall.port, True)
    assert told["http_server"] == {
        "connections_total": 4,
        "metrics_requests_served": 1,
        "bad_requests": 1,
        "internal_errors": 0,
        "not_found_responses": 1,
        "client_disconnects": 1,
        "request_timeouts": 0,
        "is_running": True,
    }
