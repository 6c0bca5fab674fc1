"""The broker on a Unix socket: whatever comes over it, in whatever pieces."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from beads_workers.core.schedule.events import TaskFilter
from beads_workers.integrations.dispatcherd import brokers
from beads_workers.integrations.dispatcherd.configuration import Brokers
from beads_workers.integrations.dispatcherd.wire import SOCKET_BYTES_MAX
from beads_workers.integrations.dispatcherd.wire_chunks import ChunkAccumulator, split_message
from tests.integrations.dispatcherd.stepped_ingress import SteppedIngress, connected, control, task


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "d.sock"


@pytest.fixture
def stepped(tmp_path: Path, path: Path) -> Iterator[SteppedIngress]:
    made = SteppedIngress(tmp_path, Brokers(sockets=(str(path),)), bytes_max=100_000)
    yield made
    made.close()


def test_a_connection_may_bring_one_message_or_many_and_leave_at_once(
    stepped: SteppedIngress, path: Path
) -> None:
    with connected(path) as one:
        one.sendall(task("a") + b"\n")
    with connected(path) as many:
        many.sendall(task("b") + b"\r\n\n" + task("c") + b"\n")
    stepped.until(lambda: len(stepped.queued()) == 3)
    assert stepped.queued() == stepped.filed() == ["a", "b", "c"]


def test_a_message_may_come_in_pieces_and_without_its_end_of_line(
    stepped: SteppedIngress, path: Path
) -> None:
    with connected(path) as sock:
        message = task("é" * 3)
        for byte in message[:20]:
            sock.sendall(bytes([byte]))
            stepped.turn()
        sock.sendall(message[20:])
        stepped.turn()
        assert stepped.queued() == []
    assert stepped.until(stepped.queued) == ["ééé"]


def test_what_is_torn_is_told_and_costs_no_other(stepped: SteppedIngress, path: Path) -> None:
    with connected(path) as torn:
        torn.sendall(task("torn")[:-5])
    with connected(path) as good:
        good.sendall(task("good") + b"\n")
    assert stepped.until(stepped.queued) == ["good"]
    assert "dispatcherd message refused: not JSON" in stepped.until(stepped.warnings)[0]


def test_a_line_over_the_limit_is_skipped(stepped: SteppedIngress, path: Path) -> None:
    with connected(path) as sock:
        sock.setblocking(False)
        left = memoryview(b"x" * (1 << 20) + b"xx\n" + task("good") + b"\n")
        while left:
            try:
                left = left[sock.send(left) :]
            except BlockingIOError:
                stepped.turn()
        assert stepped.until(stepped.queued) == ["good"]
    assert "was skipped" in stepped.warnings()[0]


def test_a_request_keeps_its_connection_until_it_is_answered(
    stepped: SteppedIngress, path: Path
) -> None:
    with connected(path) as sock:
        sock.sendall(task("before") + b"\n" + control("running") + b"\n")
        asked, reply = stepped.until(lambda: stepped.asked)[0]
        assert stepped.queued() == ["before"], "whoever asks sees what was sent before"
        assert asked.control == "running"
        stepped.turn()
        reply({"late": True})
        stepped.turn()
        assert json.loads(sock.recv(1000)) == {"late": True}


def test_a_message_has_its_connection_for_a_channel(stepped: SteppedIngress, path: Path) -> None:
    for uuid in ("a", "b"):
        with connected(path) as sock:
            sock.sendall(task(uuid) + b"\n")
        stepped.until(lambda uuid=uuid: uuid in stepped.queued())
    found = stepped.ingress.find(TaskFilter())
    assert {each.key: each.message["channel"] for each in found} == {"a": "0", "b": "1"}


def test_a_long_reply_goes_in_chunks(stepped: SteppedIngress, path: Path) -> None:
    with connected(path) as sock:
        sock.sendall(control("status") + b"\n")
        _, reply = stepped.until(lambda: stepped.asked)[0]
        answer = {"text": "é" * 300_000}
        reply(answer)
        accumulator, received, whole = ChunkAccumulator(), b"", None
        sock.settimeout(0.01)
        while whole is None:
            stepped.turn()
            try:
                received += sock.recv(1 << 16)
            except TimeoutError:
                continue
            *lines, received = received.split(b"\n")
            for line in lines:
                assert len(line) <= SOCKET_BYTES_MAX
                _, whole, _ = accumulator.ingest_dict(json.loads(line))
        assert whole == answer


def test_an_answer_to_somebody_who_has_left_does_no_harm(
    stepped: SteppedIngress, path: Path
) -> None:
    with connected(path) as sock:
        sock.sendall(control("alive") + b"\n")
        _, reply = stepped.until(lambda: stepped.asked)[0]
    stepped.turn()
    reply({})
    stepped.turn()
    with connected(path) as again:
        again.sendall(task("good") + b"\n")
        assert stepped.until(stepped.queued) == ["good"]


def test_whoever_wants_no_reply_gets_none(stepped: SteppedIngress, path: Path) -> None:
    with connected(path) as sock:
        sock.sendall(b'{"control": "cancel"}\n')
        _, reply = stepped.until(lambda: stepped.asked)[0]
        reply({"a": 1})
        stepped.turn()
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(10)


def test_chunks_may_come_over_several_connections(stepped: SteppedIngress, path: Path) -> None:
    message = task("long", args=["x" * 3000]).decode()
    for chunk in reversed(split_message(message, max_bytes=1024, message_id="m")):
        with connected(path) as sock:
            sock.sendall(chunk.encode() + b"\n")
    assert stepped.until(stepped.queued) == ["long"]


def test_a_full_queue_lets_publishers_wait_and_loses_nothing(
    stepped: SteppedIngress, path: Path
) -> None:
    publishers = []
    for number in range(30):
        sock = connected(path)
        sock.sendall(task(f"n{number}", args=["x" * 9000]) + b"\n")
        publishers.append(sock)
    stepped.until(lambda: stepped.ingress.queue.is_full)
    for _ in range(5):
        stepped.turn()
    assert len(stepped.queued()) < 30
    done: list[str] = []
    while len(done) < 30:
        jobs = stepped.source.take(3, ()).jobs
        for job in jobs:
            stepped.ingress.queue.ended(job.issue_id)
            done.append(job.issue_id)
        stepped.turn()
    assert sorted(done) == sorted(f"n{number}" for number in range(30))
    for sock in publishers:
        sock.close()


def test_more_connections_than_there_are_places_for_wait_outside(
    stepped: SteppedIngress, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "VISITORS_MAX", 2)
    idle = [connected(path) for _ in range(2)]
    stepped.turn()
    with connected(path) as late:
        late.sendall(task("late") + b"\n")
        for _ in range(3):
            stepped.turn()
        assert stepped.queued() == []
        idle.pop().close()
        assert stepped.until(stepped.queued) == ["late"]
    idle.pop().close()


def test_a_connection_that_says_nothing_is_closed(
    stepped: SteppedIngress, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "SILENT_SECONDS", 0.05)
    with connected(path) as silent, connected(path) as waiting:
        waiting.sendall(control("alive") + b"\n")
        silent.sendall(b"{")
        stepped.until(stepped.warnings)
        assert silent.recv(10) == b""
        _, reply = stepped.asked[0]
        reply({"still": "here"})
        assert json.loads(waiting.recv(100)) == {"still": "here"}


def test_unfinished_messages_are_bounded_over_all_connections(
    stepped: SteppedIngress, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "UNREAD_BYTES_MAX", 50_000)
    greedy = [connected(path) for _ in range(3)]
    for sock in greedy:
        sock.sendall(b"x" * 30_000)
    stepped.until(stepped.warnings)
    assert "too many unfinished messages" in stepped.warnings()[0]
    for sock in greedy:
        sock.close()


def test_what_was_sent_before_the_end_is_kept_for_the_next_run(
    stepped: SteppedIngress, path: Path
) -> None:
    with connected(path) as sock:
        sock.sendall(task("last words") + b"\n")
        stepped.close()
    assert stepped.filed() == ["last words"]
    assert not path.exists()
    with pytest.raises(OSError):
        connected(path)


def test_somebody_elses_socket_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "theirs.sock"
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(path))
        theirs.listen()
        with pytest.raises(OSError, match="somebody listens there"):
            SteppedIngress(tmp_path, Brokers(sockets=(str(path),)))
