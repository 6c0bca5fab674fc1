"""Processes of attempts are told from those of a person, however they were started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from beads_workers.runtime.locks import try_lock
from beads_workers.runtime.within_attempt import is_reached_from, is_within, marks

RUN, SOCKET = "20261127-064555.000-48c90b", "/tmp/beads-workers-4242.sock"
SAYS = "import os; print(os.getpid(), flush=True); input()"
ORPHANED = f"""
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {SAYS}
    os._exit(0)
os.wait()
input()
"""
TOKEN = {"BW_RUN_ID": RUN, "BW_WORKER_ID": "W1"}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A run directory with one run."""
    (tmp_path / "state" / "runs" / RUN).mkdir(parents=True)
    (tmp_path / "state" / "run.json").write_text(json.dumps({"run_id": RUN, "socket": SOCKET}))
    return tmp_path / "state"


class Started:
    """A process that waits; ``pid``: of the one that it says."""

    def __init__(self, *argv: str, variables: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            argv, env={**variables}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.pid = int(self.process.stdout.readline())

    def __enter__(self) -> int:
        return self.pid

    def __exit__(self, *_: object) -> None:
        self.process.communicate("\n\n")


def waiting(variables: Mapping[str, str]) -> Started:
    return Started(sys.executable, "-c", SAYS, variables=variables)


def test_a_process_is_an_attempts_by_the_token_and_of_no_other_project(
    state: Path, tmp_path: Path
) -> None:
    (tmp_path / "other" / "runs" / "another").mkdir(parents=True)
    with waiting(TOKEN) as pid:
        assert is_within(state, pid)
        assert not is_within(tmp_path / "other", pid)
        assert not is_within(tmp_path / "nothing", pid)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"BW_RUN_ID": RUN},
        {"BW_RUN_ID": "", "BW_SOCKET": "", "BW_WORKER_ID": "W1"},
        {"BW_SOCKET": SOCKET},
        {"BW_RUN_ID": "another", "BW_SOCKET": "/tmp/another", "BW_WORKER_ID": "W1"},
    ],
)
def test_a_person_who_has_some_of_the_variables_is_none(
    state: Path, variables: Mapping[str, str]
) -> None:
    with waiting(variables) as pid:
        assert not is_within(state, pid)


def test_a_task_of_a_worker_that_a_person_started_is_known_by_the_fleets_socket(
    state: Path,
) -> None:
    own = {"BW_RUN_ID": "of-its-own", "BW_SOCKET": SOCKET, "BW_WORKER_ID": "W7"}
    with waiting(own) as pid:
        assert is_within(state, pid)
        (state / "run.json").write_text("damaged")
        assert not is_within(state, pid)


def test_a_child_with_an_empty_environment_is_its_parents(state: Path) -> None:
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SAYS!r}], env={{}})"
    with Started(sys.executable, "-c", child, variables=TOKEN) as pid:
        assert (Path("/proc") / str(pid) / "environ").read_bytes() == b""
        assert is_within(state, pid)


def test_an_orphan_is_known_by_the_worker_that_adopts_it(state: Path) -> None:
    """It has forked twice, leads a session and has no environment."""
    worker = f"""
import subprocess, sys
from beads_workers.runtime.locks import try_lock
from beads_workers.runtime.kernel import system
from pathlib import Path
system.adopt()
held = try_lock(Path({str(state)!r}, "runs", {RUN!r}, "alive"))
subprocess.run([sys.executable, "-c", {ORPHANED!r}], env={{}})
"""
    variables = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with Started(sys.executable, "-c", worker, variables=variables) as pid:
        assert is_within(state, pid)
        assert not is_within(state, os.getpid())


def test_what_the_orchestrator_itself_starts_is_a_persons(state: Path) -> None:
    """It holds the lock of the run directory, and the run's as well."""
    alive, lock = (try_lock(state / name) for name in (f"runs/{RUN}/alive", "lock"))
    assert alive is not None and lock is not None
    with waiting({}) as pid:
        assert not is_within(state, pid)
        os.close(lock)
        assert is_within(state, pid), "a worker holds only the run's"
    os.close(alive)


def test_nobody_can_tell_of_a_process_that_is_gone_and_of_one_outside_it_is_known(
    state: Path,
) -> None:
    with waiting({}) as pid:
        assert marks(pid) is not None
    assert marks(pid) is None and is_within(state, pid)
    assert not is_within(state, 0)


# --- connections over loopback --------------------------------------------------------------------

CONNECTS = """
import os, socket, sys
caller = socket.socket(getattr(socket, sys.argv[1]))
caller.connect((sys.argv[2], int(sys.argv[3])))
print(os.getpid(), flush=True)
input()
"""


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.mark.parametrize(
    ("family", "address"), [("AF_INET", "127.0.0.1"), ("AF_INET6", "::ffff:127.0.0.1")]
)
def test_the_peer_of_a_port_is_found(
    state: Path, server: socket.socket, family: str, address: str
) -> None:
    port = server.getsockname()[1]
    argv = (sys.executable, "-c", CONNECTS, family, address, str(port))
    for variables, is_one in ((TOKEN, True), (dict[str, str](), False)):
        with Started(*argv, variables=variables):
            connection, peer = server.accept()
            assert is_reached_from(state, peer, port) is is_one
            connection.close()


def test_a_peer_that_has_closed_its_end_is_taken_for_one(
    state: Path, server: socket.socket
) -> None:
    port = server.getsockname()[1]
    for reset in (False, True):
        caller = socket.create_connection(("127.0.0.1", port))
        connection, peer = server.accept()
        assert not is_reached_from(state, peer, port)
        if reset:
            linger = b"\1\0\0\0\0\0\0\0"
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        caller.close()
        assert is_reached_from(state, peer, port)
        connection.close()
