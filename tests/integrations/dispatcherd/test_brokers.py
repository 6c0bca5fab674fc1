"""The broker on a Unix socket: whatever comes over it, in whatever pieces."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from beads_workers.integrations.dispatcherd import brokers
from beads_workers.integrations.dispatcherd.configuration import Brokers
from beads_workers.integrations.dispatcherd.wire import SOCKET_BYTES_MAX
from beads_workers.integrations.dispatcherd.wire_chunks import ChunkAccumulator, split_message
from tests.integrations.dispatcherd.desk import Desk, connected, control, task


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "d.sock"


@pytest.fixture
def desk(tmp_path: Path, path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path, Brokers(sockets=(str(path),)), bytes_max=100_000)
    yield made
    made.close()


def test_a_connection_may_bring_one_message_or_many_and_leave_at_once(
    desk: Desk, path: Path
) -> None:
    with connected(path) as one:
        one.sendall(task("a") + b"\n")
    with connected(path) as many:
        many.sendall(task("b") + b"\r\n\n" + task("c") + b"\n")
    desk.until(lambda: len(desk.queued()) == 3)
    assert desk.queued() == desk.filed() == ["a", "b", "c"]


def test_a_message_may_come_in_pieces_and_without_its_end_of_line(desk: Desk, path: Path) -> None:
    with connected(path) as sock:
        message = task("é" * 3)
        for byte in message[:20]:
            sock.sendall(bytes([byte]))
            desk.turn()
        sock.sendall(message[20:])
        desk.turn()
        assert desk.queued() == []
    assert desk.until(desk.queued) == ["ééé"]


def test_what_is_torn_is_told_and_costs_no_other(desk: Desk, path: Path) -> None:
    with connected(path) as torn:
        torn.sendall(task("torn")[:-5])
    with connected(path) as good:
        good.sendall(task("good") + b"\n")
    assert desk.until(desk.queued) == ["good"]
    assert "dispatcherd message refused: not JSON" in desk.until(desk.warnings)[0]


def test_a_line_over_the_limit_is_skipped(desk: Desk, path: Path) -> None:
    with connected(path) as sock:
        sock.setblocking(False)
        left = memoryview(b"x" * (1 << 20) + b"xx\n" + task("good") + b"\n")
        while left:
            try:
                left = left[sock.send(left) :]
            except BlockingIOError:
                desk.turn()
        assert desk.until(desk.queued) == ["good"]
    assert "was skipped" in desk.warnings()[0]


def test_a_request_keeps_its_connection_until_it_is_answered(desk: Desk, path: Path) -> None:
    with connected(path) as sock:
        sock.sendall(task("before") + b"\n" + control("running") + b"\n")
        asked, reply = desk.until(lambda: desk.asked)[0]
        assert desk.queued() == ["before"], "whoever asks sees what was sent before"
        assert asked.control == "running"
        desk.turn()
        reply({"late": True})
        desk.turn()
        assert json.loads(sock.recv(1000)) == {"late": True}


def test_a_long_reply_goes_in_chunks(desk: Desk, path: Path) -> None:
    with connected(path) as sock:
        sock.sendall(control("status") + b"\n")
        _, reply = desk.until(lambda: desk.asked)[0]
        answer = {"text": "é" * 300_000}
        reply(answer)
        accumulator, received, whole = ChunkAccumulator(), b"", None
        sock.settimeout(0.01)
        while whole is None:
            desk.turn()
            try:
                received += sock.recv(1 << 16)
            except TimeoutError:
                continue
            *lines, received = received.split(b"\n")
            for line in lines:
                assert len(line) <= SOCKET_BYTES_MAX
                _, whole, _ = accumulator.ingest_dict(json.loads(line))
        assert whole == answer


def test_an_answer_to_somebody_who_has_left_does_no_harm(desk: Desk, path: Path) -> None:
    with connected(path) as sock:
        sock.sendall(control("alive") + b"\n")
        _, reply = desk.until(lambda: desk.asked)[0]
    desk.turn()
    reply({})
    desk.turn()
    with connected(path) as again:
        again.sendall(task("good") + b"\n")
        assert desk.until(desk.queued) == ["good"]


def test_whoever_wants_no_reply_gets_none(desk: Desk, path: Path) -> None:
    with connected(path) as sock:
        sock.sendall(b'{"control": "cancel"}\n')
        _, reply = desk.until(lambda: desk.asked)[0]
        reply({"a": 1})
        desk.turn()
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(10)


def test_chunks_may_come_over_several_connections(desk: Desk, path: Path) -> None:
    message = task("long", args=["x" * 3000]).decode()
    for chunk in reversed(split_message(message, max_bytes=1024, message_id="m")):
        with connected(path) as sock:
            sock.sendall(chunk.encode() + b"\n")
    assert desk.until(desk.queued) == ["long"]


def test_a_full_queue_lets_publishers_wait_and_loses_nothing(desk: Desk, path: Path) -> None:
    publishers = []
    for number in range(30):
        sock = connected(path)
        sock.sendall(task(f"n{number}", args=["x" * 9000]) + b"\n")
        publishers.append(sock)
    desk.until(lambda: desk.ingress.queue.is_full)
    for _ in range(5):
        desk.turn()
    assert len(desk.queued()) < 30
    done: list[str] = []
    while len(done) < 30:
        jobs = desk.source.take(3, ()).jobs
        for job in jobs:
            desk.ingress.queue.ended(job.issue_id)
            done.append(job.issue_id)
        desk.turn()
    assert sorted(done) == sorted(f"n{number}" for number in range(30))
    for sock in publishers:
        sock.close()


def test_more_connections_than_there_are_places_for_wait_outside(
    desk: Desk, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "VISITORS_MAX", 2)
    idle = [connected(path) for _ in range(2)]
    desk.turn()
    with connected(path) as late:
        late.sendall(task("late") + b"\n")
        for _ in range(3):
            desk.turn()
        assert desk.queued() == []
        idle.pop().close()
        assert desk.until(desk.queued) == ["late"]
    idle.pop().close()


def test_a_connection_that_says_nothing_is_closed(
    desk: Desk, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "SILENT_SECONDS", 0.05)
    with connected(path) as silent, connected(path) as waiting:
        waiting.sendall(control("alive") + b"\n")
        silent.sendall(b"{")
        desk.until(desk.warnings)
        assert silent.recv(10) == b""
        _, reply = desk.asked[0]
        reply({"still": "here"})
        assert json.loads(waiting.recv(100)) == {"still": "here"}


def test_unfinished_messages_are_bounded_over_all_connections(
    desk: Desk, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "UNREAD_BYTES_MAX", 50_000)
    greedy = [connected(path) for _ in range(3)]
    for sock in greedy:
        sock.sendall(b"x" * 30_000)
    desk.until(desk.warnings)
    assert "too many unfinished messages" in desk.warnings()[0]
    for sock in greedy:
        sock.close()


def test_what_was_sent_before_the_end_is_kept_for_the_next_run(desk: Desk, path: Path) -> None:
    with connected(path) as sock:
        sock.sendall(task("last words") + b"\n")
        desk.close()
    assert desk.filed() == ["last words"]
    assert not path.exists()
    with pytest.raises(OSError):
        connected(path)


def test_somebody_elses_socket_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "theirs.sock"
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(path))
        theirs.listen()
        with pytest.raises(OSError, match="somebody listens there"):
            Desk(tmp_path, Brokers(sockets=(str(path),)))
