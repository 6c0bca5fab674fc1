"""Our frames and envelopes on a connection to the real executors of both versions."""

from __future__ import annotations

import select
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beads_workers.integrations.rrq import executor, wire
from beads_workers.integrations.rrq.executor import send_once
from beads_workers.integrations.rrq.executor_process import to_outcome
from beads_workers.integrations.rrq.wire import FrameReader, frame, parse
from tests.support.fleet import until
from tests.support.peers import NEW, OLD, rrq_of

pytestmark = pytest.mark.peers
PATIENCE_SECONDS = 30.0


class Served:
    """One executor, which many connections share."""

    def __init__(self, protocol: str, folder: Path) -> None:
        rrq = rrq_of(NEW if protocol == "rrq2" else OLD)
        self.version = wire.V2 if protocol == "rrq2" else wire.V1
        self.address: executor.Address = str(folder / "s") if protocol == "rrq" else executor.tcp()
        environment, command = rrq.environment, rrq.serve()
        if isinstance(self.address, str):
            environment["RRQ_EXECUTOR_SOCKET"] = self.address
        elif self.version == wire.V1:
            environment["RRQ_EXECUTOR_TCP_SOCKET"] = f"{self.address[0]}:{self.address[1]}"
        else:
            command += ["--tcp-socket", f"{self.address[0]}:{self.address[1]}"]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def reach(self) -> socket.socket | None:
        try:
            return executor.reach(self.address)
        except OSError:
            assert self.process.poll() is None, self.log.read_text()
            return None

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Real:
    """One connection to an executor."""

    def __init__(self, served: Served) -> None:
        self.version, self.address = served.version, served.address
        self._reader = FrameReader()
        self._connection = until(served.reach)

    def request(self, number: int, function: str, **kwargs: Any) -> wire.Request:
        """One that has plenty of time."""
        context = wire.RequestContext(
            f"j{number}", 1, time.time(), "q", deadline=time.time() + 3600
        )
        return wire.Request(
            f"r{number}", f"j{number}", function, context, (), kwargs, self.version
        )  # fmt: skip

    def ask(self, number: int, function: str, **kwargs: Any) -> None:
        self.send(self.request(number, function, **kwargs))

    def send(self, envelope: wire.Envelope) -> None:
        self._connection.sendall(frame(wire.encode(envelope)))

    def cancel(self, number: int, *, by_request: bool) -> None:
        """On a connection of its own."""
        request_id = f"r{number}" if by_request else None
        cancel = wire.CancelRequest(f"j{number}", request_id, protocol_version=self.version)
        send_once(self.address, wire.encode(cancel))

    def answers(self, count: int) -> list[wire.RequestOutcome]:
        """The next ones, in the order in which they come."""
        found: list[wire.RequestOutcome] = []
        while len(found) < count:
            assert select.select([self._connection], [], [], PATIENCE_SECONDS)[0], "no answer"
            received = self._connection.recv(1 << 16)
            assert received, "it hung up"
            for payload in self._reader.feed(received):
                answer = parse(payload)
                assert isinstance(answer, wire.RequestOutcome)
                found.append(answer)
        return found

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module", params=["rrq", "rrq-tcp", "rrq2"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    made = Served(request.param, tmp_path_factory.mktemp(request.param))
    yield made
    made.close()


@pytest.fixture
def real(served: Served) -> Iterator[Real]:
    made = Real(served)
    yield made
    made.close()


def test_three_answers_on_one_connection_come_in_any_order(real: Real) -> None:
    for number, seconds in enumerate([0.6, 0.3, 0.0]):
        real.ask(number, "rest", seconds=seconds)
    answers = real.answers(3)
    assert [answer.request_id for answer in answers] == ["r2", "r1", "r0"]
    assert {answer.status for answer in answers} == {wire.RequestStatus.SUCCESS}


@pytest.mark.parametrize("by_request", [True, False])
def test_a_cancel_ends_what_it_names_and_nothing_else(
    real: Real, tmp_path: Path, *, by_request: bool
) -> None:
    markers = [tmp_path / "m0", tmp_path / "m1"]
    real.ask(0, "rest", marker=str(markers[0]))
    real.ask(1, "rest", seconds=1.0, marker=str(markers[1]))
    until(lambda: all(marker.exists() for marker in markers))
    real.cancel(0, by_request=by_request)
    first, second = real.answers(2)
    assert (first.request_id, first.status) == ("r0", wire.RequestStatus.ERROR)
    assert first.error is not None and first.error.type == wire.CANCELLED
    assert (second.request_id, second.result) == ("r1", "rested 1")


def test_a_version_that_it_does_not_speak_is_no_use_to_try_again(real: Real) -> None:
    other = wire.V1 if real.version == wire.V2 else wire.V2
    real.send(replace(real.request(1, "echo"), protocol_version=other))
    (answer,) = real.answers(1)
    assert to_outcome(answer).kind.value == "not_found"


def test_a_deadline_that_has_passed_is_a_timeout(real: Real) -> None:
    request = real.request(1, "rest")
    real.send(replace(request, context=replace(request.context, deadline=time.time() - 1)))
    (answer,) = real.answers(1)
    assert answer.status is wire.RequestStatus.TIMEOUT


def test_the_context_arrives_as_it_was_sent(real: Real) -> None:
    request = real.request(1, "trace")
    headers = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}
    real.send(replace(request, context=replace(request.context, trace_context=headers)))
    real.send(replace(real.request(2, "attempt"), context=replace(request.context, attempt=7)))
    results = {answer.request_id: answer.result for answer in real.answers(2)}
    assert results == {"r1": headers, "r2": 7}


def test_a_result_that_is_no_json_is_never_answered_but_others_are(real: Real) -> None:
    real.ask(1, "unwritable")
    real.ask(2, "echo", fine=True)
    (answer,) = real.answers(1)
    assert (answer.request_id, answer.result) == ("r2", {"fine": True})
