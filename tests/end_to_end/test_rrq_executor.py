"""``rrq-executor`` as its orchestrator sees it: over both versions, whatever happens."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from beads_workers.integrations.rrq.wire import V1, V2, RequestOutcome, RequestStatus
from tests.end_to_end.conftest import StartFleet
from tests.support.fleet import Fleet, call, until
from tests.support.rrq_client import Client, request

pytestmark = pytest.mark.daily(3)

HANDLERS = Path(__file__).parents[1] / "support" / "handlers"
FUNCTIONS = ("--allow-module", "work", "--prefix", "work")


class Folder:
    """A project without a tracker, and the address of its executor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        shutil.copy(HANDLERS / "work.py", self.folder)
        self.socket = folder / "rrq.sock"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RRQ_", "BW_"))}
        self.environment = kept | {"RRQ_EXECUTOR_SOCKET": str(self.socket)}

    def read_all(self) -> dict[str, tuple[str, str]]:
        """There is no tracker."""
        return {}


@pytest.fixture
def place(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


Serve = Callable[..., Fleet]


@pytest.fixture
def serve(place: Folder, start: StartFleet) -> Serve:
    """Starts the executor: ``serve(*arguments)``, with the functions of ``work``."""

    def begin(*arguments: str, work: tuple[str, ...] = FUNCTIONS) -> Fleet:
        state = ("--state-dir", str(place.folder / ".beads-workers" / "rrq" / "1"))
        return start(place, *state, *arguments, *work, verb="rrq-executor").started()

    return begin


def kind(answer: RequestOutcome | None) -> str:
    """Status and kind of an answer."""
    assert answer is not None, "no answer"
    error = answer.error and (answer.error.type or answer.error.code)
    return f"{answer.status.value} {error}" if error else answer.status.value


@pytest.mark.parametrize("version", [V1, V2])
def test_every_kind_of_answer(place: Folder, serve: Serve, version: str) -> None:
    fleet = serve("-n", "2")
    Client(place.socket).close()  # A probe.
    with Client(place.socket) as client:
        added = client.ask(request("add", version=version, a=1, b=2))
        assert (added.status, added.result) == (RequestStatus.SUCCESS, 3)
        again = replace(request("again", version=version), kwargs={"seconds": 2.5})
        later = client.ask(again)
        assert (later.status, later.retry_after_seconds) == (RequestStatus.RETRY, 2.5)
        for name, expected in (
            ("fail", "error"),
            ("late", "timeout timeout"),
            ("unwritable", "error"),
            ("missing", "error handler_not_found"),
        ):
            assert kind(client.ask(request(name, version=version))) == expected
        long = client.ask(request("large", version=version, characters=3_000_000))
        assert long.result == "x" * 3_000_000
        too_long = client.ask(request("large", version=version, characters=17 << 20))
        assert kind(too_long) == "error"
        bad = request("add", version=version)
        assert kind(client.ask(replace(bad, protocol_version="9"))) == "error unsupported_version"
    fleet.process.terminate()
    fleet.wait()
    assert not place.socket.exists()
    fleet.leaves_nothing()


def test_answers_of_version_1_come_in_order_and_of_version_2_as_they_are_done(
    place: Folder, serve: Serve
) -> None:
    serve("-n", "2")
    for version in (V1, V2):
        with Client(place.socket) as client:
            slow = request("rest", version=version, seconds=None)
            slow = replace(slow, kwargs={"seconds": 0.5})
            quick = request("add", version=version, a=1, b=1)
            client.send(slow, quick)
            answers = [client.answer(), client.answer()]
        ids = [answer and answer.request_id for answer in answers]
        in_order = [slow.request_id, quick.request_id]
        assert ids == (in_order if version == V1 else in_order[::-1])


@pytest.mark.parametrize("by_request", [True, False])
def test_a_cancel_on_another_connection_ends_the_function(
    place: Folder, serve: Serve, by_request: bool
) -> None:
    serve("-n", "1")
    marker = place.folder / "began"
    with Client(place.socket) as client, Client(place.socket) as other:
        resting = request("rest", marker=str(marker))
        client.send(resting)
        pid = int(until(lambda: marker.exists() and marker.read_text()))
        other.cancel(resting, by_request=by_request)
        assert kind(client.answer()) == "error cancelled"
        until(lambda: not Path(f"/proc/{pid}").exists(), what="the function still runs")
        assert client.ask(request("add", a=2, b=2)).result == 4


def test_a_deadline_that_passes_is_a_timeout(place: Folder, serve: Serve) -> None:
    serve("-n", "1")
    with Client(place.socket) as client:
        assert kind(client.ask(request("rest", seconds=0.3))) == "timeout timeout"
        assert client.ask(request("add", a=2, b=2)).result == 4


def test_what_a_client_asked_for_ends_when_it_leaves(place: Folder, serve: Serve) -> None:
    serve("-n", "1")
    marker = place.folder / "began"
    with Client(place.socket) as client:
        client.send(request("rest", marker=str(marker)))
        pid = int(until(lambda: marker.exists() and marker.read_text()))
    until(lambda: not Path(f"/proc/{pid}").exists(), what="the function still runs")
    with Client(place.socket) as another:
        assert another.ask(request("add", a=2, b=2)).result == 4


def test_a_worker_that_is_killed_leaves_nobody_without_an_answer(
    place: Folder, serve: Serve
) -> None:
    serve("-n", "2")
    marker = str(place.folder / "killed")
    with Client(place.socket) as client, Client(place.socket) as neighbour:
        neighbour.send(replace(request("rest"), kwargs={"seconds": 0.5}))
        assert kind(client.ask(request("once", marker=marker))) == "error worker_lost"
        assert client.ask(request("once", marker=marker)).result == "survived"
        assert kind(neighbour.answer()) == "success"


def test_a_worker_that_is_killed_with_several_requests_has_each_of_them_answered(
    place: Folder, serve: Serve
) -> None:
    fleet = serve("-n", "1", "--in-flight", "4")
    began, marker = place.folder / "began", str(place.folder / "killed")
    with Client(place.socket) as client, Client(place.socket) as neighbour:
        dozing = {"seconds": 60, "marker": str(began)}
        neighbour.send(replace(request("doze"), kwargs=dozing))
        until(began.exists)
        assert kind(client.ask(request("once", marker=marker))) == "error worker_lost"
        assert kind(neighbour.answer()) == "error worker_lost"
        assert client.ask(request("once", marker=marker)).result == "survived"
    shared = int(began.read_text())
    until(lambda: not Path(f"/proc/{shared}").exists(), what="the shared process survived")
    fleet.process.terminate()
    fleet.wait()
    fleet.leaves_nothing()


def test_in_flight_goes_with_functions_only(place: Folder) -> None:
    done = call(place, "rrq-executor", "--in-flight", "2", "--", "true")
    assert (done.returncode, "--allow-module" in done.stderr) == (2, True), done.stderr


def test_a_command_finds_the_request_in_a_file(place: Folder, serve: Serve) -> None:
    script = 'cat "$BW_ISSUE_FILE" > "$0.$2"; echo "said $1"; exit "$(cat exit)"'
    out = str(place.folder / "out")
    fleet = serve("-n", "1", work=("--", "sh", "-c", script, out, "{title}", "{attempt}"))
    with Client(place.socket) as client:
        for status, expected in ((0, "success"), (75, "retry"), (3, "error")):
            (place.folder / "exit").write_text(str(status))
            asked = request("anything", 1, "two", attempt=7, flag=True)
            answer = client.ask(asked)
            assert kind(answer) == expected
            assert answer.result is None
            assert (answer.error and answer.error.message) == ("said anything" if status else None)
            found = json.loads(Path(f"{out}.7").read_text())
            assert found["request_id"] == asked.request_id
            assert (found["args"], found["kwargs"]) == ([1, "two"], {"flag": True})
    log = fleet.run_folder / "logs" / f"{asked.job_id}.7.log"
    assert log.read_text() == "said anything\n"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_its_end_answers_what_runs_and_what_waits_and_leaves_nothing(
    place: Folder, serve: Serve, how: signal.Signals
) -> None:
    fleet = serve("-n", "1")
    marker = place.folder / "began"
    with Client(place.socket) as client, Client(place.socket) as waiting:
        client.send(request("rest", marker=str(marker)))
        until(marker.exists)
        waiting.send(request("add", a=1, b=1))
        fleet.wait_for("claimed")
        fleet.process.send_signal(how)
        assert kind(client.answer()) == "error cancelled"
        assert kind(waiting.answer()) == "error cancelled"
        assert client.answer() is None
    fleet.wait()
    until(lambda: not place.socket.exists())
    until(lambda: not Path(f"/proc/{fleet.pid}").exists())
    fleet.leaves_nothing()


BAD = {
    "empty": struct.pack(">I", 0),
    "oversized": struct.pack(">I", (16 << 20) + 1),
    "no json": struct.pack(">I", 4) + b"nope",
    "unknown": struct.pack(">I", 28) + b'{"type":"x","payload":{}}   ',
}


def test_who_loses_its_orchestrator_at_its_first_line_is_gone_in_a_moment(place: Folder) -> None:
    begins = "import os, beads_workers; os.write(1, b'!'); "
    begins += "from beads_workers.cli import app; app.main()"
    command = [sys.executable, "-c", begins, "rrq-executor", "-n", "1", *FUNCTIONS]
    orchestrator = ["sh", "-c", '"$@" & echo $!; wait', "sh", *command]
    with subprocess.Popen(
        orchestrator, cwd=place.folder, env=place.environment, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        said = parent.stdout.read(1)
        while not said.endswith(b"!"):
            said += parent.stdout.read(1)
        parent.kill()
        pid = int(said.rstrip(b"!"))
        until(lambda: not Path(f"/proc/{pid}").exists(), what="it serves nobody")
    assert not place.socket.exists()


def test_bad_frames_close_their_connection_and_harm_nobody_else(
    place: Folder, serve: Serve
) -> None:
    fleet = serve("-n", "1")
    with Client(place.socket) as good:
        for raw in BAD.values():
            with Client(place.socket) as bad:
                bad.raw(raw)
                assert bad.answer() is None
        with Client(place.socket) as torn:
            torn.raw(struct.pack(">I", 100) + b"{")
        assert good.ask(request("add", a=1, b=1)).result == 2
    assert fleet.process.poll() is None


def test_several_in_one_folder_each_have_a_state_of_their_own(
    place: Folder, start: StartFleet
) -> None:
    sockets = [place.folder / f"{n}.sock" for n in (1, 2)]
    for path in sockets:
        start(place, "-n", "1", "--socket", str(path), *FUNCTIONS, verb="rrq-executor").started()
    for path in sockets:
        with Client(path) as client:
            assert client.ask(request("add", a=1, b=1)).result == 2
    states = place.folder / ".beads-workers" / "rrq"
    assert sorted(path.name for path in states.iterdir()) == ["1", "2"]


def test_a_port_behind_the_command_is_where_it_listens(place: Folder, start: StartFleet) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    state = ("--state-dir", str(place.folder / "state"))
    behind = ("--", "true", "--tcp-socket", f"127.0.0.1:{port}")
    start(place, *state, "-n", "1", *behind, verb="rrq-executor").started()
    with Client(port) as client:
        assert kind(client.ask(request("x", version=V2))) == "success"


@pytest.mark.parametrize(
    ("arguments", "set_to", "says"),
    [
        (FUNCTIONS, {}, "no address"),
        (FUNCTIONS, {"RRQ_EXECUTOR_SOCKET": "/tmp/x", "RRQ_EXECUTOR_TCP_SOCKET": "::1:1"}, "both"),
        (FUNCTIONS, {"RRQ_EXECUTOR_TCP_SOCKET": "0.0.0.0:9000"}, "not this machine alone"),
        ((), {"RRQ_EXECUTOR_SOCKET": "/tmp/x"}, "nothing to run"),
        (("--allow-module", "nowhere"), {"RRQ_EXECUTOR_SOCKET": "/tmp/x"}, "no such module"),
        ((*FUNCTIONS, "--", "true"), {"RRQ_EXECUTOR_SOCKET": "/tmp/x"}, "both functions"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_done(
    place: Folder, arguments: tuple[str, ...], set_to: dict[str, str], says: str
) -> None:
    del place.environment["RRQ_EXECUTOR_SOCKET"]
    place.environment |= set_to
    done = call(place, "rrq-executor", *arguments)
    assert done.returncode == 2
    assert says in done.stderr and "hint: " in done.stderr
    assert not (place.folder / ".beads-workers").exists()
